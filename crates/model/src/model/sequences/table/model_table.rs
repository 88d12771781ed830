//! The table under one model's lock: the core, the requests, and the data of live sequences. Turns effects into actions for after the lock is
//! released.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sequor_core::{
    Core, Effect, EndReason, Event, Id, Instance, LoadId, Next, Note, PolicyAnswer, Refusal, Req, Round, Seq, Slab,
    Submit, Time, Tombstone,
};

use crate::config::model::settings::DurabilityWhen;
use crate::error::EndedBy;
use crate::model::load::{LoadDurability, LoadedModel};
use crate::model::sequences::ensembles::{MemberSequences, ReplyTo, SequenceHolder};
use crate::model::sequences::jobs::{ChosenBy, Job};
use crate::model::sequences::offloaded::{KeptSequence, RowToSeal, Spilling, WrittenSequence};
use crate::scheduling::{Decider, LoadPolicy};
use crate::state::budget::Budget;
use crate::state::tier::{EndedState, Successions, VersionDigest};

use super::batch::{FinishedBatch, PendingSeals, Step};
use super::deferred_actions::{DeferredActions, PolicyNotice, SequenceChange};
use super::enders::{Enders, EndersOf, ended_in_plugin, failed_in_plugin};
use super::imports::{Import, Imports};
use super::job_stage::JobStage;
use super::live_sequences::{KeptAnswer, Live, LiveSequences};
use super::load_policies::LoadPolicies;
use super::pending_ends::PendingEnds;
use super::recent_steps::{RecentSteps, StepRecord};

#[derive(Debug, Default)]
pub(in crate::model) struct Table {
    pub(in crate::model) core: Core,
    pub(in crate::model::sequences) jobs: Slab<Req, JobStage>,
    /// The data of live sequences, by the index of their key.
    live: LiveSequences,
    /// The policy of each load for which a plug-in decides or is about to.
    policies: LoadPolicies,
    /// States that wait for the next step of an id without a live sequence.
    pub(in crate::model::sequences) imports: Imports,
    /// Sequences that are in the store and not live. Operators list them in portions, which needs an order.
    pub(in crate::model::sequences) kept: BTreeMap<Id, KeptSequence>,
    /// When to look for expired ones.
    pub(in crate::model::sequences) kept_due: Time,
    /// The successions: which versions continue from stored states of others.
    pub(in crate::model::sequences) successions: Successions,
    /// The successions that apply once the loads that are being prepared are in service.
    pub(in crate::model::sequences) coming: Option<Successions>,
    /// Requests whose sequences ended while the store read a state for them.
    pub(super) given_up: HashSet<Req>,
    /// Ids of requests that were cancelled while the store read their states. These states go back to the store.
    pub(super) returning: HashSet<Id>,
    /// Whether the server stops. Stored sequences then stay in the store.
    pub(in crate::model::sequences) stopping: bool,
    /// STARTs that wait for state memory, and the sequences that make room for them.
    pub(in crate::model::sequences) spilling: Spilling,
    /// By the id of an ended ensemble sequence: its sequences in the members, until they have been released.
    pub(super) ending_members: HashMap<Id, Arc<MemberSequences>>,
    effects: Vec<Effect>,
    pub(in crate::model::sequences) actions: DeferredActions,
    /// Ends of sequences of an earlier server, until a load remembers them.
    pub(in crate::model::sequences) ended_before: Vec<(Id, EndedState)>,
    /// The time at the clock's zero, since 1970.
    pub(in crate::model::sequences) zero: Duration,
    /// Rows whose states must be made durable. Set only while their batch is given back.
    sealing: Vec<RowToSeal>,
    pub(in crate::model::sequences) pending: PendingSeals,
    /// Ended sequences that the store must still forget.
    pub(in crate::model::sequences) pending_ends: PendingEnds,
    /// The plug-ins that ended sequences.
    pub(in crate::model::sequences) enders: Enders,
    /// The members that ended sequences, if this is an ensemble.
    pub(in crate::model::sequences) member_enders: Enders<String>,
    pub(in crate::model::sequences) recent: RecentSteps,
    /// The limit of states, for the answers that are kept.
    budget: Option<Budget>,
}

impl Table {
    /// An empty table. `zero` is the time at the clock's zero, since 1970.
    pub(in crate::model::sequences) fn new(zero: Duration) -> Table {
        Table { zero, ..Table::default() }
    }

    /// The same, whose kept answers count against this limit.
    pub(in crate::model::sequences) fn with_budget(self, budget: Budget) -> Table {
        Table { budget: Some(budget), ..self }
    }

    pub(in crate::model) fn apply(&mut self, now: Time, event: Event) {
        self.core.apply(now, event, &mut self.effects);
        self.take_effects(now);
    }

    /// Adds a request and puts it in its queue.
    pub(in crate::model) fn submit(&mut self, now: Time, mut job: Box<Job>, mut submit: Submit) -> Req {
        self.imports.give(&mut job, &mut submit);
        let req = self.jobs.insert(JobStage::Queued(job));
        submit.req = req;
        self.apply(now, Event::Submit(submit));
        req
    }

    /// Whether a live sequence belongs to a sequence of an ensemble. That keeps it in memory, and ends it together with those in the other
    /// members.
    pub(in crate::model::sequences) fn is_held(&self, seq: Seq) -> bool {
        self.live.get(seq).is_some_and(|live| live.holder.is_some())
    }

    /// Whether a given state, or one that a replaced load left, waits for the next step of this id.
    pub(in crate::model::sequences) fn has_import(&self, id: &Id) -> bool {
        self.imports.has(id)
    }

    /// Keeps a state for the next step of this id. Returns false, and does nothing, if the id has a live or a stored sequence.
    pub(in crate::model::sequences) fn import(&mut self, id: Id, import: Import) -> bool {
        let free = self.core.find(&id, None).is_none() && !self.kept.contains_key(&id);
        if free {
            self.imports.insert(id, import);
        }
        free
    }

    /// Takes back a finished batch, with its requests.
    pub(in crate::model) fn give_back(&mut self, now: Time, finished: FinishedBatch) {
        let FinishedBatch { batch, jobs, rows, sealing, refused_growth } = finished;
        let load = jobs.first().map(|(_, job)| &job.load).filter(|load| load.durable.is_some());
        if let (Some(load), Some(refused)) = (load, refused_growth) {
            self.spilling.growth = Some((Arc::clone(load), refused));
            self.actions.rare().wants_memory = true;
        }
        let mut failed = Vec::new();
        for (req, mut job) in jobs {
            failed.extend(failed_in_plugin(&job));
            self.commit_scratch(&mut job);
            self.go_on(now, req, &job);
            if let Some(stage) = self.jobs.get_mut(req) {
                *stage = JobStage::Queued(job);
            }
        }
        self.sealing = sealing;
        self.apply(now, Event::Ran { batch: batch.id, rows });
        self.sealing.clear();
        for (id, by) in failed {
            self.enders.note(&self.core, now, &id, by);
        }
    }

    /// Reports the properties of a request's next run to the core, before the finished run is given back.
    fn go_on(&mut self, now: Time, req: Req, job: &Job) {
        let Some(processed) = &job.processed else { return };
        if let (None, Some(meta)) = (&job.answer, processed.next_meta()) {
            self.apply(now, Event::NextRun(req, meta));
        }
    }

    pub(in crate::model) fn next(&mut self, now: Time, who: Instance) -> Step {
        if let Some(round) = self.core.consult(now, who.load) {
            return self.ask(who.load, round);
        }
        let next = self.core.next(now, who, &mut self.effects);
        self.step(now, who, next, ChosenBy::Policy)
    }

    /// Applies the answer to a question, and returns the next step of the instance.
    pub(in crate::model) fn answer(
        &mut self,
        now: Time,
        who: Instance,
        round: Box<Round>,
        answer: PolicyAnswer,
    ) -> Step {
        let (planned, chosen_by) = (matches!(answer, PolicyAnswer::Plan(_)), ChosenBy::after(&answer));
        let victims: Vec<Id> = round.victims(&answer).filter_map(|seq| self.core.id_of(seq).cloned()).collect();
        let next = self.core.answer(now, round, answer, &mut self.effects);
        for id in victims {
            if let Some(by) = self.scheduler_of(who.load) {
                self.enders.note(&self.core, now, &id, by);
            }
        }
        // After an admission a batch comes first, before any other question. Otherwise nothing would run if sequences came and went faster
        // than a plug-in answers which of them gets a slot.
        let next = if planned { next } else { self.core.next(now, who, &mut self.effects) };
        self.step(now, who, next, chosen_by)
    }

    /// Turns the core's next step into one for an instance. `chosen_by` chose the batch, if there is one.
    fn step(&mut self, now: Time, who: Instance, next: Next, chosen_by: ChosenBy) -> Step {
        // Before requests are lent, because effects record facts in them.
        self.take_effects(now);
        match next {
            Next::Run(batch) => Step::Run(self.lend(now, batch, chosen_by)),
            Next::Tidy(ops) => Step::Tidy(ops),
            // An admission question may have come up while this thread was awake. No other thread is woken for it.
            Next::Sleep(until) => match self.core.consult(now, who.load) {
                Some(round) => self.ask(who.load, round),
                None => Step::Sleep(until),
            },
            Next::Ask(round) => self.ask(who.load, round),
            Next::Gone => Step::Gone,
        }
    }

    fn ask(&self, load: LoadId, round: Box<Round>) -> Step {
        Step::Ask(round, self.decider(load))
    }

    // === which policy decides ===

    /// The plug-in that decides for a load.
    pub(in crate::model::sequences) fn decider(&self, load: LoadId) -> Option<Decider> {
        self.policies.decider(load)
    }

    /// Changes the policy of a load, and the hooks that the core calls for it. Returns the previous policy, which the caller drops without
    /// the lock.
    pub(in crate::model::sequences) fn change_policy(
        &mut self,
        now: Time,
        load: LoadId,
        change: &mut dyn FnMut(&mut LoadPolicy<Decider>),
    ) -> LoadPolicy<Decider> {
        let before = self.policies.get(load);
        let mut after = before.clone();
        change(&mut after);
        // The rounds that are lost here belong to the previous policy, which is still set.
        if let Some(event) = after.event_since(&before, load) {
            self.apply(now, event);
        }
        self.policies.set(load, after)
    }

    /// Removes the policy of a load that is gone. The caller drops it without the lock.
    pub(in crate::model::sequences) fn forget_policy(&mut self, load: LoadId) -> Option<LoadPolicy<Decider>> {
        self.policies.forget(load)
    }

    /// Takes the actions to carry out after the lock is released.
    pub(in crate::model::sequences) fn take_actions(&mut self) -> DeferredActions {
        for (job, refusal, _) in &mut self.actions.refused {
            job.ended_by = self.enders.of_refusal(&job.id, *refusal).map(Box::new);
        }
        self.pending_ends.sort(&self.core, &mut self.actions);
        DeferredActions { due: self.core.due(), ..std::mem::take(&mut self.actions) }
    }

    /// Turns effects into actions. If nothing on this server carries out a stage, answers it here, so that no request waits for it.
    fn take_effects(&mut self, now: Time) {
        while !self.effects.is_empty() {
            for event in self.take_some_effects(now) {
                self.core.apply(now, event, &mut self.effects);
            }
        }
    }

    fn take_some_effects(&mut self, now: Time) -> Vec<Event> {
        let mut answers = Vec::new();
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Refuse { req, refusal, ended } => {
                    let mut job = self.jobs.remove(req).and_then(JobStage::into_job);
                    if let Some(job) = &mut job {
                        self.keep_on_import(now, job);
                        self.keep_on(now, req, job, (refusal, ended));
                        if let Some(by) = self.ender_in(job, refusal, ended) {
                            self.enders.note(&self.core, now, &job.id, by);
                        }
                    }
                    self.actions.refused.extend(job.map(|job| (job, refusal, ended)));
                }
                Effect::Release(req) => answers.extend(self.release(now, req)),
                Effect::Replay(req, seq) => self.replay(req, seq),
                Effect::Wake(instance) => self.actions.wake.push((instance, self.decider(instance.load))),
                Effect::Note(note) => self.take_note(now, note),
                Effect::Tell(load) => {
                    let (first, news, lost) = self.core.observed(load);
                    self.notify(load, PolicyNotice::News(first, news, lost));
                }
                // The threads of the load find the question before their next step.
                Effect::Consult(_) => {}
                Effect::Prepare(req, seq) => answers.extend(self.lend_to_prepare(req, seq)),
                Effect::Post(req, _) => answers.extend(self.lend_to_post(req)),
                Effect::Reply { req, seal } => answers.extend(self.done_without_run(req, seal)),
                Effect::Seal(batch) => self.pending.batches.push((batch, std::mem::take(&mut self.sealing))),
            }
        }
        self.effects = effects;
        answers
    }

    // === who ended a sequence ===

    /// The plug-in and the member that caused this very end.
    pub(in crate::model::sequences) fn enders_of(&self, id: &Id, stone: Tombstone) -> EndersOf {
        (self.enders.of(id, stone), self.member_enders.of(id, stone))
    }

    /// The plug-in that refuses a request and ends its sequence with it.
    fn ender_in(&self, job: &Job, refusal: Refusal, ended: bool) -> Option<EndedBy> {
        match refusal {
            Refusal::Policy(_) if ended => self.scheduler_of(job.load.key),
            Refusal::Failed(_) => ended_in_plugin(job.processed.as_ref()?.refusal.as_ref()?),
            _ => None,
        }
    }

    /// The scheduler of a load, as the cause of an end.
    fn scheduler_of(&self, load: LoadId) -> Option<EndedBy> {
        let decider = self.decider(load)?;
        Some(EndedBy { plugin: decider.binding().plugin().to_owned(), world: "scheduler" })
    }

    /// The versions that may continue from states of this one: the successor once the loads that are being made serve, and the present one.
    pub(in crate::model::sequences) fn successors(&self, maker: VersionDigest) -> [VersionDigest; 2] {
        let now = self.successions.successor_of(maker);
        [self.coming.as_ref().map_or(now, |coming| coming.successor_of(maker)), now]
    }

    /// The last durable step of a sequence, if answers do not wait for their states.
    pub(in crate::model::sequences) fn durable_step(&self, seq: Option<Seq>) -> Option<u64> {
        self.live(seq?)?.written.as_ref()?.behind()
    }

    /// A request that is in the table, and not with an instance.
    pub(in crate::model::sequences) fn job(&self, req: Req) -> Option<&Job> {
        self.jobs.get(req).and_then(JobStage::job)
    }

    pub(in crate::model::sequences) fn job_mut(&mut self, req: Req) -> Option<&mut Job> {
        self.jobs.get_mut(req).and_then(JobStage::job_mut)
    }

    pub(in crate::model::sequences) fn set_stage(&mut self, req: Req, stage: fn(Box<Job>) -> JobStage) {
        if let Some(of) = self.jobs.get_mut(req) {
            of.set(stage);
        }
    }

    fn release(&mut self, now: Time, req: Req) -> Option<Event> {
        let mut job = match self.jobs.remove(req)? {
            JobStage::Running(step) => {
                if let Some(step) = step {
                    self.actions.rare().lost_steps.push(step);
                }
                return None;
            }
            stage => stage.into_job()?,
        };
        if let Some(seq) = job.seq.filter(|seq| self.is_out_of_lease(*seq, &job)) {
            self.actions.refused.push((job, Refusal::Ended(EndReason::Fenced), true));
            return Some(Event::End(seq, EndReason::Fenced));
        }
        if let Some(seq) = job.seq {
            self.recent.add((seq, self.live.get(seq).is_some()), &job.id, StepRecord::new(now, &job));
        }
        let kept = match &job.answer {
            Some(Ok(outputs)) if job.counted && job.seq.is_some_and(|seq| self.live.get(seq).is_some()) => {
                Some(KeptAnswer::new(outputs, self.budget.as_ref()))
            }
            _ => None,
        };
        let has_run = job.processed.as_ref().is_some_and(|processed| processed.has_run);
        if let Some(live) = job.seq.and_then(|seq| self.live_mut(seq)) {
            // An earlier answer does not belong to this step.
            match &job.answer {
                Some(Ok(_)) => live.kept = kept,
                _ if has_run => live.kept = None,
                _ => {}
            }
        }
        job.write.durable_step = self.durable_step(job.seq);
        if self.leaves_stale(&job) {
            self.pending.failed_starts.push(job);
        } else {
            self.actions.released.push(job);
        }
        None
    }

    /// Whether an answer must not leave, because another server may own its sequence. If the store has the state that it is of, the answer is
    /// right in any case: no other server has written that step.
    fn is_out_of_lease(&self, seq: Seq, job: &Job) -> bool {
        let is_shared =
            |durable: &&LoadDurability| durable.store.shared().is_some() && durable.when != DurabilityWhen::Step;
        let Some(durable) = job.load.durable.as_ref().filter(is_shared) else { return false };
        // A sequence of an ensemble is not shared.
        if !matches!((&job.answer, &job.reply), (Some(Ok(_)), ReplyTo::Surface(_))) {
            return false;
        }
        let is_fenced = || match self.core.id_of(seq) {
            Some(_) => self.live(seq).is_some_and(|live| live.is_fenced),
            None => self.core.end_of(&job.id).is_some_and(|stone| stone.why == EndReason::Fenced),
        };
        durable.store.has_lapsed() || is_fenced()
    }

    /// Marks a sequence that another server owns now. None of its answers leaves.
    pub(in crate::model::sequences) fn fence(&mut self, seq: Seq) {
        if let Some(live) = self.live_mut(seq) {
            live.is_fenced = true;
        }
    }

    /// Whether the store still has work for an id without a sequence, or a request of a sequence that ends still runs.
    pub(in crate::model::sequences) fn is_between(&self, id: &Id) -> bool {
        let is_ending = self.core.find_ending(id).is_some() || self.core.is_leaving(id);
        is_ending || self.returning.contains(id) || self.pending_ends.has(id)
    }

    /// Answers a repeated step with its kept answer.
    fn replay(&mut self, req: Req, seq: Seq) {
        let Some(mut job) = self.jobs.remove(req).and_then(JobStage::into_job) else { return };
        let step = self.core.view_of(seq).map_or(0, |view| view.step);
        let written = self.live(seq).and_then(|live| live.written.as_ref());
        if written.is_some_and(|written| written.replies > 0) {
            // The answer is here, but may still fail with a write to the store that is in progress.
            self.actions.refused.push((job, Refusal::StepBusy { step }, false));
            return;
        }
        match self.live_mut(seq).and_then(|live| Some(live.kept.as_ref()?.outputs.clone())) {
            Some(kept) => {
                job.answer = Some(Ok(kept));
                (job.replayed, job.write.durable_step) = (true, self.durable_step(Some(seq)));
                self.actions.released.push(job);
            }
            None => {
                self.actions.refused.push((job, Refusal::StepGone { want: step + 1 }, false));
            }
        }
    }

    fn take_note(&mut self, now: Time, note: Note) {
        let change = match note {
            Note::Started(seq, req) => self.started(seq, req),
            Note::Ended(seq, why) => self.ended(now, seq, why),
            Note::Slotted(seq, _, _, waited) => {
                self.live_mut(seq).map(|live| (Arc::clone(&live.load), SequenceChange::Slotted(waited)))
            }
            Note::Fallback(load) => {
                self.notify(load, PolicyNotice::Fallback);
                None
            }
            Note::Stale(load, n) => {
                self.notify(load, PolicyNotice::Stale(n));
                None
            }
            // The binding checks the answer, too, and reports more about it.
            Note::Fault(..) => None,
        };
        self.actions.sequences.extend(change);
    }

    /// Adds the data of a sequence that a request has started. If the id has a live sequence, that one starts again.
    fn started(&mut self, seq: Seq, req: Req) -> Option<(Arc<LoadedModel>, SequenceChange)> {
        if self.live_mut(seq).is_some() {
            let job = self.jobs.get_mut(req).and_then(JobStage::job_mut);
            let taken = job.map(|job| (job.start_keys(), job.claims.permit.take(), job.in_ensemble.holder.take()));
            let (keys, permit, holder) = taken.unwrap_or_default();
            let live = self.live_mut(seq)?;
            live.started_again(keys, permit, holder);
            return Some((Arc::clone(&live.load), SequenceChange::Started));
        }
        let job = self.jobs.get_mut(req).and_then(JobStage::job_mut)?;
        let live = Live::begin(req, job);
        if !self.imports.is_empty() && job.facts.start {
            self.imports.remove(&job.id);
        }
        let load = Arc::clone(&live.load);
        self.live.insert(seq, live);
        Some((load, SequenceChange::Started))
    }

    /// Removes the data of a sequence that has ended. A sequence that restarts keeps its memory.
    fn ended(&mut self, now: Time, seq: Seq, why: EndReason) -> Option<(Arc<LoadedModel>, SequenceChange)> {
        self.recent.end(seq, why);
        if self.core.id_of(seq).is_some() {
            let live = self.live_mut(seq)?;
            live.begin_anew();
            return Some((Arc::clone(&live.load), SequenceChange::Ended(why)));
        }
        let mut live = self.live.remove(seq)?;
        if why == EndReason::Spilled {
            self.take_back(now, &mut live);
        }
        let rolls_back = live.rolls_back.take().filter(|_| why == EndReason::RolledBack);
        if let Some((kept, written)) = rolls_back.zip(live.written.as_ref()) {
            self.keep_again(written.id.clone(), *kept);
        }
        // A server that stops leaves the stored state. So does a START on the id of a stored sequence if it took no effect.
        let stays = self.stopping && why == EndReason::Drained;
        let obsolete = live.take_obsolete(why).filter(|of| !stays && !self.kept.contains_key(&of.id));
        if let Some(WrittenSequence { id, incarnation, .. }) = obsolete {
            self.forget(id, incarnation);
        }
        if let Some(id) = live.shared_id.take() {
            self.actions.rare().unused.push(id);
        }
        self.end_ensemble_parts(live.members, live.holder, why);
        Some((live.load, SequenceChange::Ended(why)))
    }

    /// Handles the end of a sequence of an ensemble, or of a member of one.
    fn end_ensemble_parts(
        &mut self,
        members: Option<Arc<MemberSequences>>,
        holder: Option<SequenceHolder>,
        why: EndReason,
    ) {
        if let Some(members) = members {
            self.ending_members.insert(members.id.clone(), Arc::clone(&members));
            self.actions.rare().ended_ensembles.push((members, why));
        }
        let is_lost = !(why.continues_from_store() || matches!(why, EndReason::End | EndReason::Restarted));
        if let Some(holder) = holder.filter(|_| is_lost) {
            self.actions.rare().lost_members.push((holder, why));
        }
    }

    /// Forgets the members' sequences of an ended sequence, once they have been released.
    pub(in crate::model::sequences) fn forget_ending_members(&mut self, members: &Arc<MemberSequences>) {
        if self.ending_members.get(&members.id).is_some_and(|of| Arc::ptr_eq(of, members)) {
            self.ending_members.remove(&members.id);
        }
    }

    /// The load of a request that waits.
    pub(in crate::model::sequences) fn load_of(&self, req: Req) -> Option<Arc<LoadedModel>> {
        self.jobs.get(req)?.job().map(|job| Arc::clone(&job.load))
    }

    fn notify(&mut self, load: LoadId, notice: PolicyNotice) {
        let decider = self.decider(load);
        self.actions.rare().policies.push((load, decider, notice));
    }

    pub(in crate::model::sequences) fn live(&self, seq: Seq) -> Option<&Live> {
        self.live.get(seq)
    }

    pub(in crate::model::sequences) fn live_mut(&mut self, seq: Seq) -> Option<&mut Live> {
        self.live.get_mut(seq)
    }
}
