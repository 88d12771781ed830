//! One model name in the server: the core and the table of requests under one short lock, and the actions after its release (`carry_out`).
//! Under the lock there is no I/O, payload, log or wake-up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sequor_core::{
    BatchId, EndReason, Event, Id, Instance, LoadId, PolicyAnswer, Req, Round, Seq, SequenceView, StateAt, Time,
    Tombstone, Usage,
};

#[cfg(all(test, not(feature = "shuttle")))]
use crate::ensemble::EnsembleGate;
use crate::executor::ExecutorHandle;
use crate::model::load::{LoadKey, LoadedModel, SequenceStore, record};
use crate::model::runtime::{Clock, Stopwatch, Timer};
use crate::model::sequences::ensembles::{EnsembleMembers, EnsembleParts, MemberUses};
use crate::model::sequences::gate::SequenceGate;
use crate::model::sequences::jobs::{Captures, RecentRefusals};
use crate::model::sequences::offloaded::{CarriedLoad, KeptStore};
use crate::model::sequences::table::{DeferredActions, EndersOf, FinishedBatch, Import, KeptStages, Step, Table};
use crate::model::sequences::write_back::sealing;
use crate::recording::Recorder;
use crate::state::ChunkCache;
use crate::state::budget::Budget;
use crate::sync::{AtomicU64, Mutex};

use super::admission::RequestAdmission;
use super::carry_out::{ActingThread, carry_out};
use super::loads::{LoadsNow, ModelLoads};
use super::to_store;

/// A model name: every load of it, and every request to it.
#[derive(Debug)]
pub(in crate::model) struct ModelScheduler {
    pub(in crate::model) name: String,
    pub(in crate::model) table: Mutex<Table>,
    /// The chain of calling models for a client's request: only this model.
    pub(in crate::model::sequences) own_path: Arc<[String]>,
    pub(in crate::model::sequences) loads: ModelLoads,
    pub(in crate::model::sequences) clock: Clock,
    pub(in crate::model::sequences) timer: Timer,
    pub(in crate::model::sequences) admission: RequestAdmission,
    pub(in crate::model::sequences) chunk_cache: ChunkCache,
    /// The soonest deadline that the timer has, in nanoseconds of the clock.
    armed: AtomicU64,
    /// Records finished requests.
    pub(in crate::model::sequences) recorder: Option<Recorder>,
    /// The last refused requests, for operators.
    pub(in crate::model::sequences) refusals: RecentRefusals,
    pub(in crate::model::sequences) store: KeptStore,
    /// Only if several servers share the store.
    pub(in crate::model::sequences) gate: Option<Arc<SequenceGate>>,
    pub(in crate::model::sequences) captures: Captures,
    /// The members of its loads that are ensembles.
    pub(in crate::model::sequences) members: Mutex<Vec<(LoadId, Arc<EnsembleMembers>)>>,
    /// The ensembles that it is a member of.
    pub(in crate::model::sequences) uses: Mutex<MemberUses>,
    /// Replaced loads whose sequences have to move to their successors.
    pub(in crate::model::sequences) carrying: Mutex<Vec<CarriedLoad>>,
}

impl ModelScheduler {
    pub(in crate::model) fn new(
        name: String,
        clock: Clock,
        timer: Timer,
        (budget, chunk_cache): (Budget, ChunkCache),
        first_id: u64,
        (recorder, store): (Option<Recorder>, Option<Arc<SequenceStore>>),
    ) -> ModelScheduler {
        let zero = clock.wall().saturating_sub(clock.now() - Time::ZERO);
        ModelScheduler {
            own_path: Arc::new([name.clone()]),
            recorder,
            refusals: RecentRefusals::new(),
            store: KeptStore::new(store.clone()),
            gate: store.clone().filter(|of| of.shared().is_some()).map(|of| Arc::new(SequenceGate::new(of))),
            captures: Captures::new(),
            table: Mutex::new(Table::new(zero).with_budget(budget.clone())),
            loads: ModelLoads::default(),
            clock,
            timer,
            admission: RequestAdmission::new(&name, budget, (first_id, store)),
            name,
            chunk_cache,
            armed: AtomicU64::new(Time::NEVER.0),
            members: Mutex::default(),
            uses: Mutex::default(),
            carrying: Mutex::default(),
        }
    }

    pub(in crate::model) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(in crate::model) fn stopwatch(&self) -> Stopwatch {
        self.clock.stopwatch()
    }

    /// The present loads, newest last.
    pub(in crate::model) fn loads(&self) -> LoadsNow {
        self.loads.now()
    }

    /// The load that serves this version, or the server's choice of one.
    pub(in crate::model) fn load_for(&self, version: Option<u64>) -> Option<Arc<LoadedModel>> {
        self.loads.of_version(version)
    }

    pub(in crate::model) fn usage(&self, load: LoadId) -> Usage {
        self.table.lock().core.usage(load)
    }

    /// Reserves the key of a load that is about to be made. Dropping the key frees its place.
    pub(in crate::model) fn reserve_load(&self) -> LoadKey {
        self.loads.reserve()
    }

    /// Takes a load into service.
    pub(in crate::model) fn add(self: &Arc<Self>, load: &Arc<LoadedModel>) {
        let spec = load.spec();
        if let Some(recorder) = &self.recorder {
            recorder.load(record::load(load, &spec));
        }
        if let Some(gate) = self.gate.as_ref().filter(|_| load.durable.is_some()) {
            gate.activate();
        }
        self.loads.add(load);
        self.change(|table, now| {
            table.apply(now, Event::Loaded(load.key, spec));
            table.remember_ended(load.key);
        });
    }

    /// Takes a load out of service. It takes no new sequences, and those that still live at `until` end.
    pub(in crate::model) fn retire(self: &Arc<Self>, load: LoadId, until: Time) {
        if let Some(load) = self.loads.find(load) {
            load.retire();
        }
        self.apply(Event::Retire { load, until });
    }

    /// Records the end of a thread of a retired load. The last one removes the load.
    pub(in crate::model) fn forget(&self, load: LoadId) {
        if !self.loads().iter().any(|l| l.key == load && l.thread_ends()) {
            return;
        }
        let dropped = {
            // In one lock section with the loads, so that a change of the policy finds both or neither.
            let mut table = self.table.lock();
            self.loads.remove(load);
            let replaced: Vec<_> = table.spilling.replaced.extract_if(.., |of| of.key == load).collect();
            (table.forget_policy(load), replaced)
        };
        drop(dropped);
        self.release_members(load);
    }

    // === requests ===

    pub(in crate::model) fn cancel(self: &Arc<Self>, req: Req) {
        self.apply(Event::Cancel(req));
    }

    pub(in crate::model) fn apply(self: &Arc<Self>, event: Event) {
        let now = self.now();
        self.locked(now, |table| table.apply(now, event));
    }

    /// Number of requests that wait in front of the newest ensemble of this name.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(in crate::model) fn waiting_at_gate(&self) -> usize {
        self.members.lock().last().map_or(0, |(_, members)| members.gates.waiting(EnsembleGate::Whole))
    }

    // === for operators ===

    /// A portion of the live sequences, and where the next one begins.
    pub(in crate::model) fn seen(&self, from: u32, most: u32) -> (Vec<SequenceView>, Option<u32>) {
        self.table.lock().core.seen(from, most)
    }

    /// The last sequences that ended, the latest first, with the plug-ins and the members that ended them.
    pub(in crate::model) fn ended(&self, most: usize) -> Vec<(Id, Tombstone, EndersOf)> {
        let table = self.table.lock();
        let with_ender = |(id, stone)| {
            let enders = table.enders_of(&id, stone);
            (id, stone, enders)
        };
        table.core.ended(most).into_iter().map(with_ender).collect()
    }

    // === a sequence's state ===

    /// The live sequence of this id, and the place of its state if it has one.
    pub(in crate::model) fn state_of(&self, id: &Id, version: Option<u64>) -> Option<(Seq, Option<StateAt>)> {
        let table = self.table.lock();
        table.core.find(id, version).map(|seq| (seq, table.core.state_of(seq)))
    }

    /// The place of this sequence's state, if it still has one.
    pub(in crate::model) fn state_now(&self, seq: Seq) -> Option<StateAt> {
        self.table.lock().core.state_of(seq)
    }

    /// The place of this sequence's states, if they may be copied now.
    pub(in crate::model) fn copyable_now(&self, seq: Seq) -> Option<StateAt> {
        let table = self.table.lock();
        table.core.state_of(seq).filter(|_| !table.core.is_between_runs(seq))
    }

    /// Keeps a state for the next step of an id. Returns false if the id has a live or a stored sequence.
    pub(in crate::model::sequences) fn adopt(self: &Arc<Self>, id: Id, import: Import) -> bool {
        let until = import.until();
        let is_kept = self.table.lock().import(id, import);
        if is_kept {
            self.arm(until);
        }
        is_kept
    }

    pub(in crate::model) fn budget(&self) -> &Budget {
        self.admission.budget()
    }

    /// Bytes of states that may be added to those that wait to be written.
    pub(in crate::model::sequences) fn room_to_leave(&self) -> u64 {
        self.table.lock().spilling.room(self.budget().limit())
    }

    // === an instance ===

    pub(in crate::model) fn next(self: &Arc<Self>, who: Instance, now: Time) -> Step {
        self.locked(now, |table| table.next(now, who))
    }

    /// Same as [`Self::next`], if no request is ready for this instance.
    pub(in crate::model) fn next_unless_ready(self: &Arc<Self>, who: Instance) -> Option<Step> {
        let now = self.now();
        self.locked(now, |table| (!table.core.has_ready(who)).then(|| table.next(now, who)))
    }

    /// Applies the answer to a question and takes the next step, in one lock section.
    pub(in crate::model) fn answer(self: &Arc<Self>, who: Instance, round: Box<Round>, answer: PolicyAnswer) -> Step {
        let now = self.now();
        self.locked(now, |table| table.answer(now, who, round, answer))
    }

    /// Gives a batch's requests back and takes the next step, in one lock section. Steps of other models that follow from the answers may be left
    /// to `thread`.
    pub(in crate::model) fn complete(
        self: &Arc<Self>,
        who: Instance,
        finished: FinishedBatch,
        now: Time,
        thread: Option<&ExecutorHandle>,
    ) -> Step {
        let give_back = |table: &mut Table| {
            table.give_back(now, finished);
            // Sequences that do not wait for the store may be in the next batch.
            sealing::work(table, now);
            table.next(now, who)
        };
        self.locked_on(ActingThread { answers: thread, ..ActingThread::default() }, now, give_back)
    }

    /// Gives a batch's requests back. Instances that then have work are woken.
    pub(in crate::model) fn give_back(self: &Arc<Self>, finished: FinishedBatch) {
        let now = self.now();
        self.locked(now, |table| table.give_back(now, finished));
    }

    /// The actions to carry out once the lock is released. Work for the store is in its queue then.
    pub(in crate::model::sequences) fn take_actions(self: &Arc<Self>, table: &mut Table, now: Time) -> DeferredActions {
        sealing::work(table, now);
        let mut actions = table.take_actions();
        to_store::queue(self, &mut actions);
        actions
    }

    /// Gives back a batch whose requests were lost in a panic. Their clients learn it because nothing can answer them any more; the table
    /// knows those of ensembles. What the run left of the states is not known, so their sequences end.
    pub(in crate::model) fn lose(self: &Arc<Self>, batch: BatchId) {
        self.change(|table, now| {
            for seq in table.core.sequences_in(batch) {
                table.apply(now, Event::End(seq, EndReason::Broken));
            }
            table.apply(now, Event::Ran { batch, rows: Vec::new() });
        });
    }

    /// The accelerator of an instance has failed.
    pub(in crate::model) fn instance_lost(self: &Arc<Self>, who: Instance) {
        self.change(|table, now| table.apply(now, Event::InstanceLost(who)));
    }

    // === after the lock ===

    pub(in crate::model::sequences) fn act(self: &Arc<Self>, actions: DeferredActions, now: Time) {
        carry_out(self, ActingThread::default(), actions, now);
    }

    /// Changes the table under its lock, and then carries out the actions that follow.
    fn locked<T>(self: &Arc<Self>, now: Time, what: impl FnOnce(&mut Table) -> T) -> T {
        self.locked_on(ActingThread::default(), now, what)
    }

    /// Same as [`Self::locked`], on a thread that may take steps of other models that follow.
    pub(in crate::model::sequences) fn locked_on<T>(
        self: &Arc<Self>,
        thread: ActingThread<'_>,
        now: Time,
        what: impl FnOnce(&mut Table) -> T,
    ) -> T {
        let mut table = self.table.lock();
        let outcome = what(&mut table);
        let actions = self.take_actions(&mut table, now);
        drop(table);
        carry_out(self, thread, actions, now);
        outcome
    }

    /// Changes the table under its lock, and carries out the actions that follow.
    pub(in crate::model::sequences) fn change(self: &Arc<Self>, change: impl FnOnce(&mut Table, Time)) {
        let now = self.now();
        self.locked(now, |table| change(table, now));
    }

    // === sequences that the store keeps ===

    /// Forgets stored sequences whose idle time has passed.
    fn expire_due(self: &Arc<Self>) {
        if !self.store.has_kept() {
            return;
        }
        let Some(load) = self.load_for(None) else { return };
        let now = self.now();
        let mut next = Time::NEVER;
        self.change(|table, now| next = table.expire_kept(now, &load));
        if next > now && next != Time::NEVER {
            // The other sequences still wait. Their idle time is noted for the next server.
            self.arm(self.store.get().map_or(next, |store| next.min(store.note_running())));
        }
    }

    /// Applies the due deadlines of the core, and forgets stored sequences that have expired.
    pub(in crate::model::sequences) fn apply_due(self: &Arc<Self>) {
        self.armed.store(Time::NEVER.0, Ordering::Release);
        self.apply(Event::Tick);
        self.expire_due();
    }

    /// Sets a deadline in the timer, if it is sooner than the one that the timer has.
    pub(in crate::model::sequences) fn arm(self: &Arc<Self>, due: Time) {
        if due.0 < self.armed.fetch_min(due.0, Ordering::AcqRel) {
            let this = Arc::downgrade(self);
            self.timer.arm(due, this);
        }
    }
}
