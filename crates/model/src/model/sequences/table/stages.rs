//! The stages of a request: plug-ins prepare it, an instance runs it in a batch, plug-ins finish its answer. The table lends the request to
//! each of them, with the data of its sequence. `store_stages` does the same with the server's store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{
    Batch, EndReason, Event, Id, LoadId, Preparation, RealRow, Refusal, Req, Row, Seq, SlotOp, Time, Tombstone,
};

use crate::error::Failure;
use crate::model::execute::AdoptedState;
use crate::model::load::{LoadDurability, LoadedModel};
use crate::model::sequences::jobs::{BatchOfStep, ChosenBy, Job, LentRequest, PostTask};
use crate::model::sequences::offloaded::{Forgotten, KeptSequence, MemoryWait, UnwrittenFile, WriteDoubt};
use crate::processing::CallFacts;
use crate::state::tier::{EndedState, StateHead};

use super::batch::TakenBatch;
use super::deferred_actions::StoreAction;
use super::imports::Import;
use super::job_stage::JobStage;
use super::live_sequences::{Live, StateOrigin};
use super::model_table::Table;
use super::plugin_stages::NO_PROCESSOR;
use super::store_stages::{BY_STORE, KeptStages};

impl Table {
    // === before the runs ===

    /// Lends a request for its preparation: to the wait for memory, an ensemble, the store or the processors. Returns an event if none of
    /// these takes it.
    pub(in crate::model::sequences) fn lend_to_prepare(&mut self, req: Req, seq: Option<Seq>) -> Option<Event> {
        self.set_stage(req, JobStage::Preparing);
        if self.wait_for_memory(req, seq) || self.lend_to_ensemble(req, seq) || self.lend_to_store(req, seq) {
            return None;
        }
        if let Some(load) = self.note_lent(req, seq) {
            self.actions.rare().prepare.push(LentRequest { req, load });
            return None;
        }
        let refusal = Refusal::Failed(NO_PROCESSOR);
        Some(Event::Prepared(req, Preparation::Refuse { refusal, ends: false }))
    }

    /// Hands a request to an ensemble, as a START with a slot that waits for its inputs, or as a request to the members. Returns whether it
    /// did.
    fn lend_to_ensemble(&mut self, req: Req, seq: Option<Seq>) -> bool {
        let Some(job) = self.jobs.get_mut(req).and_then(JobStage::job_mut) else { return false };
        job.seq = seq;
        if let (Some(reservation), Some(seq)) = (&job.in_ensemble.reservation, seq) {
            self.actions.rare().granted.push((reservation.clone(), req, seq));
            return true;
        }
        let is_ensemble = job.load.ensemble.is_some();
        if is_ensemble {
            self.actions.rare().flows.push((req, job.load.key));
        }
        is_ensemble
    }

    /// Records in a request the facts that its processors see besides its tensors.
    fn note_lent(&mut self, req: Req, seq: Option<Seq>) -> Option<Arc<LoadedModel>> {
        let step = self.core.step_of_request(req);
        let job = self.jobs.get_mut(req)?.job_mut()?;
        job.seq = seq;
        let (start, end) = (job.facts.start, job.facts.end);
        if let Some(captured) = &mut job.captured {
            captured.number = step;
        }
        let outputs = job.outputs.iter().filter_map(|at| u32::try_from(*at).ok()).collect();
        let (numbers, keys) = job.load.feature_counts;
        let processed = job.processed.as_mut()?;
        let meta = processed.meta;
        processed.facts = CallFacts {
            sequence: seq.map_or(0, Seq::handle),
            step,
            start,
            end,
            numbers: meta.numbers.iter().take(numbers).copied().collect(),
            keys: meta.keys.iter().take(keys).copied().collect(),
            outputs,
            calling: processed.calling.clone(),
        };
        Some(Arc::clone(&job.load))
    }

    // === a run ===

    /// Lends the requests of a batch to its instance, with the states that fill slots.
    pub(super) fn lend(&mut self, now: Time, batch: Batch, chosen_by: ChosenBy) -> TakenBatch {
        let mates = u32::try_from(batch.real().count()).unwrap_or(u32::MAX);
        let lend = |row: &Row| match row {
            Row::Pad => None,
            Row::Real(real) => {
                let mut job = self.jobs.get_mut(real.req)?.lend()?;
                self.replace_stored(&mut job);
                job.taken = now;
                job.facts.batch = mates;
                job.batch = BatchOfStep { id: Some(batch.id), chosen_by, step: real.step, size: mates, failed: false };
                job.seq = real.placement.map(|(seq, _)| seq);
                job.source.unrun =
                    job.seq.and_then(|seq| self.live_mut(seq)).is_some_and(|live| std::mem::take(&mut live.unrun));
                if real.start
                    && let Some(live) = job.seq.and_then(|seq| self.live_mut(seq))
                {
                    // A START without a preparation must not begin with the first state of an earlier START, which never ran.
                    let is_plain = job.facts.start && job.processed.is_none();
                    job.source.first = live.first.take().filter(|_| !is_plain);
                }
                job.write.due = self.is_due(real, &job);
                if let Some(captured) = &mut job.captured {
                    captured.number = self.core.step_of_request(real.req);
                }
                Some((real.req, job))
            }
        };
        let jobs = batch.rows.iter().map(lend).collect();
        let adopted = self.adopted(&batch);
        TakenBatch { batch, jobs, adopted }
    }

    /// The states from outside the slots that fill slots of a batch.
    fn adopted(&mut self, batch: &Batch) -> Vec<(Req, AdoptedState)> {
        if !batch.ops.iter().any(|op| matches!(op, SlotOp::Adopt(..))) {
            return Vec::new();
        }
        let of = |row: RealRow| {
            let live = self.live_mut(row.placement?.0)?;
            let (req, snapshot) = live.first_state.take()?;
            live.origin = None;
            let at_start = live.load.state_bytes();
            let grown = live.ticket.as_mut().and_then(|ticket| ticket.split_above(at_start));
            // Only a state that grows holds more later. Anything else was of a load whose slots had two sides.
            let grown = grown.filter(|_| live.load.grows());
            Some((req, AdoptedState { snapshot, grown }))
        };
        batch.real().filter_map(of).collect()
    }

    /// Whether the state after this run must be written.
    fn is_due(&self, row: &RealRow, job: &Job) -> bool {
        if job.load.durable.is_some() && job.seq.is_some_and(|seq| self.is_held(seq)) {
            return false;
        }
        let every = job.load.durable.as_ref().and_then(LoadDurability::interval);
        let Some(steps) = every.filter(|_| row.seal) else { return row.seal };
        let written = job.seq.and_then(|seq| self.live(seq)).and_then(|live| live.written.as_ref());
        let is_stale = written.is_some_and(|written| written.is_stale);
        !row.end && (is_stale || self.core.step_of_request(row.req).is_multiple_of(steps))
    }

    // === after the runs ===

    /// Lends a request whose runs are over to the processors of its load. Returns an event if they have nothing to do.
    pub(super) fn lend_to_post(&mut self, req: Req) -> Option<Event> {
        self.set_stage(req, JobStage::Posting);
        match self.post_task(req) {
            Some(task) => {
                self.actions.rare().post.push(task);
                None
            }
            None => self.done_posting(req),
        }
    }

    fn post_task(&mut self, req: Req) -> Option<PostTask> {
        let job = self.jobs.get_mut(req)?.job_mut()?;
        let load = Arc::clone(&job.load);
        let processed = job.processed.as_mut()?;
        let (facts, pending) = (processed.facts.clone(), processed.pending.take()?);
        let gone = processed.watch(false);
        let outputs = std::mem::take(&mut processed.outputs);
        Some(PostTask { req, load, facts, pending, outputs, gone, guard: None })
    }

    /// Continues a request whose processors are done. Returns an event if nothing must be written before its answer.
    pub(super) fn done_posting(&mut self, req: Req) -> Option<Event> {
        let writes = self.jobs.get(req).and_then(JobStage::job).is_some_and(|job| job.write.to_seal.is_some());
        if writes {
            self.pending.posted.push(req);
        }
        (!writes).then_some(Event::Posted(req))
    }

    /// Commits what a request leaves for its sequence that is done without a run. Its answer may leave much later, after other steps of the
    /// sequence. If it waits for a write (`seals`) and nothing has to be written, returns its event.
    pub(super) fn done_without_run(&mut self, req: Req, seals: bool) -> Option<Event> {
        let replied = || seals.then_some(Event::Replied(req, None));
        let Some(mut job) = self.jobs.get_mut(req).and_then(JobStage::lend) else { return replied() };
        self.commit_scratch(&mut job);
        self.replace_stored(&mut job);
        let writes = seals && job.leaves_scratch();
        if let Some(stage) = self.jobs.get_mut(req) {
            *stage = JobStage::Queued(job);
        }
        if writes {
            self.pending.replies.push(req);
            return None;
        }
        replied()
    }

    /// Makes the scratch of a request that of its sequence, if the request is done.
    pub(super) fn commit_scratch(&mut self, job: &mut Job) {
        let Some(processed) = &mut job.processed else { return };
        let scratch = processed.scratch.take();
        if let (Some(live), Some(scratch)) = (job.seq.and_then(|seq| self.live_mut(seq)), scratch) {
            live.scratch = scratch;
        }
    }

    // === state memory ===

    /// Lets a request wait for its state memory, if it has to. Returns whether it waits.
    pub(super) fn wait_for_memory(&mut self, req: Req, seq: Option<Seq>) -> bool {
        let Some(job) = self.jobs.get_mut(req).and_then(JobStage::job_mut) else { return false };
        let Some(wanted) = job.claims.wants.take() else { return false };
        let load = Arc::clone(&job.load);
        self.spilling.waiting.push_back(MemoryWait { req, seq, load, wanted: *wanted });
        self.actions.rare().wants_memory = true;
        true
    }

    // === sequences that the store keeps ===

    /// Whether this request is a START that failed on a live sequence, while the store may have a state from before it.
    pub(in crate::model::sequences) fn leaves_stale(&self, job: &Job) -> bool {
        let failed = job.facts.start && matches!(job.answer, Some(Err(_)));
        let live = job.seq.filter(|_| failed).and_then(|seq| self.live(seq));
        live.and_then(|live| live.written.as_ref()).is_some_and(|written| written.is_stale)
    }

    /// Removes the stored sequence that a START replaces, once the START takes effect. The answer waits for that.
    pub(super) fn replace_stored(&mut self, job: &mut Job) {
        if let Some(incarnation) = job.source.replaces.take()
            && let Some(kept) = self.take_kept(&job.id, incarnation)
        {
            self.forget_state(job.id.clone(), kept.incarnation);
        }
    }

    /// Takes the stored sequence of this id, if it has this incarnation.
    fn take_kept(&mut self, id: &Id, incarnation: u64) -> Option<KeptSequence> {
        let is_it = self.kept.get(id).is_some_and(|kept| kept.incarnation == incarnation);
        if is_it { self.kept.remove(id) } else { None }
    }

    /// Ends the stored sequence of a START that was refused before it took effect, as a live sequence would end. If there was no room for the
    /// START, or if the server stops, nothing changes.
    fn end_stored(&mut self, now: Time, job: &Job, incarnation: u64, (refusal, ended): (Refusal, bool)) {
        let had_room = !matches!(refusal, Refusal::BacklogTimeout { .. } | Refusal::Failed(BY_STORE));
        if !ended || !had_room || self.stopping {
            return;
        }
        let Some(kept) = self.take_kept(&job.id, incarnation) else { return };
        let why = self.core.end_of(&job.id).map_or(EndReason::Cancelled, |stone| stone.why);
        let stone = Tombstone { why, at: now, step: kept.head.step, idle: kept.head.idle };
        self.core.remember(job.load.key, job.id.clone(), stone);
        self.forget(job.id.clone(), incarnation);
    }

    /// Keeps the stored sequence of a request that was refused before the sequence began here. If it ends with the request, the store forgets
    /// it.
    pub(super) fn keep_on(&mut self, now: Time, req: Req, job: &mut Job, (refusal, ended): (Refusal, bool)) {
        if let Some(incarnation) = job.source.replaces.take() {
            return self.end_stored(now, job, incarnation, (refusal, ended));
        }
        if let Some(work) = job.source.store.take() {
            // The store was not asked yet.
            self.keep_again(job.id.clone(), work.kept);
        }
        let Some(kept) = job.source.kept.take() else { return };
        let (id, file) = (job.id.clone(), job.source.snapshot.take());
        // For the core, the sequence that began with this request ends with it. If a processor refused it, the refusal says whether the
        // stored sequence ends.
        let ended = match job.processed.as_ref().and_then(|processed| processed.refusal.as_ref()) {
            Some(Failure::Processor(failure)) if failure.ended => {
                self.remember_rejected(now, job.load.key, id.clone(), (kept.head.step, kept.head.idle));
                return self.forget(id, kept.incarnation);
            }
            Some(_) => false,
            None => ended,
        };
        match file {
            _ if self.stopping && ended => {}
            Some(file) if !ended => self.return_to_store(now, &job.load, id, *kept, file),
            // The store is still reading the file. The file goes back after that.
            None if !ended => _ = self.returning.insert(id),
            file => {
                let why = match refusal {
                    Refusal::Ended(why) => why,
                    Refusal::Policy(_) => EndReason::Rejected,
                    Refusal::BacklogTimeout { .. } => EndReason::NoSlot,
                    _ => EndReason::Cancelled,
                };
                let stone = Tombstone { why, at: now, step: kept.head.step, idle: kept.head.idle };
                self.core.remember(job.load.key, id.clone(), stone);
                if file.is_some() {
                    self.forget(id, kept.incarnation);
                } else {
                    self.pending_ends.begin(&id);
                    self.given_up.insert(req);
                }
            }
        }
    }

    /// Keeps the state of a request that was refused before its sequence began here. If a processor ended the sequence, drops the state.
    pub(super) fn keep_on_import(&mut self, now: Time, job: &mut Job) {
        let refusal = job.processed.as_ref().and_then(|processed| processed.refusal.as_ref());
        if !matches!(refusal, Some(Failure::Processor(failure)) if failure.ended) {
            return self.imports.keep_on(job);
        }
        if let Some(origin) = job.source.imported.take() {
            let idle = origin.carried.as_ref().and_then(|carried| carried.idle);
            self.remember_rejected(now, job.load.key, job.id.clone(), (origin.step, idle));
        }
    }

    /// Remembers the end of a sequence that had not begun here and that a processor ended.
    fn remember_rejected(&mut self, now: Time, load: LoadId, id: Id, (step, idle): (u64, Option<Duration>)) {
        self.core.remember(load, id, Tombstone { why: EndReason::Rejected, at: now, step, idle });
    }

    /// Takes back the state from which a sequence had to continue, if no step has run with it.
    pub(super) fn take_back(&mut self, now: Time, live: &mut Live) {
        let Some((origin, (_, file))) = live.origin.take().zip(live.first_state.take()) else { return };
        match *origin {
            StateOrigin::Stored(id, kept) => self.return_to_store(now, &live.load, id, kept, file),
            StateOrigin::Given(id, origin) => {
                let scratch = live.load.processors.is_some().then(|| std::mem::take(&mut live.scratch));
                self.imports.insert(id, Import { origin, snapshot: file, ticket: live.ticket.take(), scratch });
            }
        }
    }

    /// Returns a sequence to the store. If the store may have removed or outdated its file, writes the file again.
    pub(super) fn return_to_store(&mut self, now: Time, load: &LoadedModel, id: Id, kept: KeptSequence, file: Bytes) {
        if self.core.find(&id, None).is_some() || self.kept.contains_key(&id) {
            return self.forget(id, kept.incarnation);
        }
        let until = kept.head.idle.map_or(Time::NEVER, |idle| now + idle);
        let stays = load.durable.as_ref().is_some_and(|durable| durable.is_continual() && durable.interval().is_none());
        if stays {
            return self.keep_again(id, KeptSequence { until, ..kept });
        }
        // A sequence that came from another server was written there as another incarnation, which this server may not write any more.
        let is_same = kept.head.incarnation == kept.incarnation;
        let anew = || Arc::new(StateHead::clone(&kept.head).of_incarnation(kept.incarnation, &file));
        let head = if is_same { Arc::clone(&kept.head) } else { anew() };
        self.spilling.failed.push((id.clone(), Arc::clone(&head)));
        self.actions.rare().wants_memory = true;
        let unwritten = Some(Arc::new(UnwrittenFile::new(file, &self.spilling.unwritten)));
        self.keep_again(id, KeptSequence { head, until, unwritten, ..kept });
    }

    /// Adds a sequence to those in the store. A look at what the store has of it may have ended meanwhile and found no entry here, so the next
    /// step lets the store look again.
    pub(in crate::model::sequences) fn keep_again(&mut self, id: Id, mut kept: KeptSequence) {
        if let Some(WriteDoubt::Unread(failed)) = &mut kept.doubt {
            failed.is_asked = false;
        }
        self.kept_due = self.kept_due.min(kept.until);
        self.kept.insert(id, kept);
    }

    /// Lets the store forget the state of a sequence that has ended. No request of its id is answered before that.
    pub(in crate::model::sequences) fn forget(&mut self, id: Id, incarnation: u64) {
        let ended = self.core.end_of(&id).map(|stone| self.ended_state(stone));
        self.forget_as(id, incarnation, ended);
    }

    /// Lets the store forget a state that is kept in memory from now on. No request of its id is answered before that.
    pub(in crate::model::sequences) fn forget_state(&mut self, id: Id, incarnation: u64) {
        self.forget_as(id, incarnation, None);
    }

    /// Lets the store forget a state, and remember this end.
    pub(in crate::model::sequences) fn forget_as(&mut self, id: Id, incarnation: u64, ended: Option<EndedState>) {
        self.pending_ends.begin(&id);
        self.actions.rare().to_store.push(StoreAction::Forget(Forgotten { id, incarnation, ended }));
    }

    /// How a sequence ended, as the store remembers it.
    pub(in crate::model::sequences) fn ended_state(&self, Tombstone { why, at, step, idle }: Tombstone) -> EndedState {
        EndedState { why, step, idle, at: self.zero + (at - Time::ZERO) }
    }
}
