//! One model name as the server drives it: the core and the table of requests under one short lock, and what is done once it is given back (`carry_out`).
//! Under the lock there is no I/O, payload, log or wake-up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sequor_core::{
    EndReason, Event, Id, Instance, LoadId, PolicyAnswer, Refusal, Req, Round, Seq, SequenceView, StateAt, Submit,
    Time, Tombstone, Usage,
};
use tokio::sync::oneshot;

use crate::error::{Failure, NotServed};
use crate::executor::ExecutorHandle;
use crate::model::load::{CacheMiss, LoadKey, LoadedModel, SequenceStore, record};
use crate::model::request::{Accepted, InferRequest, intake};
use crate::model::runtime::{Clock, Timer};
use crate::processing::outgoing::CallingRequest;
use crate::recording::Recorder;
use crate::scheduling::Decider;
use crate::state::ChunkCache;
use crate::state::budget::Budget;
use crate::sync::{AtomicU64, Mutex};

use super::actions::{Actions, PolicyNotice};
use super::admission::{RequestAdmission, make_whole};
use super::batch::{FinishedBatch, Step};
use super::cached::{self, Looked};
use super::calling::{InheritedContext, circle};
use super::captures::{CapturedRequest, Captures};
use super::carried::CarriedLoad;
use super::carry_out::{ActingThread, ActionHost, carry_out};
use super::flow::EnsembleMembers;
use super::imports::Import;
use super::job::Job;
use super::kept::KeptStore;
use super::kept_stages::{self, KeptStages};
use super::loads::{LoadsNow, ModelLoads};
use super::members::{EnsembleParts, MemberUses, Reservation};
use super::owner::RequestOrigin;
use super::reply_to::{Reply, ReplyTo};
use super::sealing;
use super::spill::SpillHost;
use super::table::Table;

/// A model name: every load of it, and every request to it.
#[derive(Debug)]
pub(in crate::model) struct ModelScheduler {
    pub(in crate::model) name: String,
    pub(in crate::model) table: Mutex<Table>,
    /// The models that wait for a request of a client: this one.
    own_path: Arc<[String]>,
    loads: ModelLoads,
    clock: Clock,
    timer: Timer,
    admission: RequestAdmission,
    chunk_cache: ChunkCache,
    /// The soonest time the timer knows of, in the clock's nanoseconds.
    armed: AtomicU64,
    /// Where requests that are through are written down.
    recorder: Option<Recorder>,
    pub(super) store: KeptStore,
    pub(super) captures: Captures,
    /// The members of its loads that are ensembles.
    pub(super) members: Mutex<Vec<(LoadId, Arc<EnsembleMembers>)>>,
    /// The ensembles that it is a member of.
    pub(super) uses: Mutex<MemberUses>,
    /// Replaced loads whose sequences are to move to their successors.
    pub(super) carrying: Mutex<Vec<CarriedLoad>>,
}

/// A request that was checked, and the load that it is for.
struct AcceptedRequest {
    load: Arc<LoadedModel>,
    /// As the client named it, or that of its stored state.
    version: Option<u64>,
    accepted: Accepted,
    /// Its inputs, where its sequence is captured.
    captured: Option<Box<CapturedRequest>>,
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
            store: KeptStore::new(store.clone()),
            captures: Captures::new(),
            table: Mutex::new(Table::new(zero)),
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

    /// The loads that are there, newest last.
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

    /// Reserves the key of a load that is about to be made. Dropping the key makes its place free again.
    pub(in crate::model) fn reserve_load(&self) -> LoadKey {
        self.loads.reserve()
    }

    /// Takes a load into service.
    pub(in crate::model) fn add(self: &Arc<Self>, load: &Arc<LoadedModel>) {
        let spec = load.spec();
        if let Some(recorder) = &self.recorder {
            recorder.load(record::load(load, &spec));
        }
        self.loads.add(load);
        self.change(|table, now| {
            table.apply(now, Event::Loaded(load.key, spec));
            table.remember_ended(load.key);
        });
    }

    /// Takes a load out of service: no new sequences; what is live at `until` is ended.
    pub(in crate::model) fn retire(self: &Arc<Self>, load: LoadId, until: Time) {
        if let Some(load) = self.loads.find(load) {
            load.retire();
        }
        self.apply(Event::Retire { load, until });
    }

    /// A thread of a retired load ends; with the last of them the load is forgotten.
    pub(in crate::model) fn forget(&self, load: LoadId) {
        if !self.loads().iter().any(|l| l.key == load && l.thread_ends()) {
            return;
        }
        let policy = {
            // In one section with the loads: a change of the policy finds both or neither.
            let mut table = self.table.lock();
            self.loads.remove(load);
            table.forget_policy(load)
        };
        drop(policy);
        self.release_members(load);
    }

    // === a request ===

    /// Checks a request and puts it in its queue. A short step may be left to the connection that the request came on. Returns where its answer
    /// comes, and the request's key until then; no key if the response cache has answered it.
    pub(in crate::model) fn submit(
        self: &Arc<Self>,
        mut request: InferRequest,
        version: Option<u64>,
        origin: RequestOrigin<'_>,
    ) -> Result<(oneshot::Receiver<Reply>, Option<Req>), Failure> {
        let (reply, receiver) = oneshot::channel();
        let (reply, accepted) = (ReplyTo::Surface(reply), self.accept(&mut request, version, origin, None)?);
        let miss = match cached::look_up(&accepted.load, &request, &accepted.accepted) {
            Looked::Runs(miss) => miss,
            Looked::Answered(answer) => {
                reply.send(Ok(answer), None);
                return Ok((receiver, None));
            }
        };
        let req = self.submit_accepted(request, accepted, origin, reply, (None, miss))?;
        Ok((receiver, Some(req)))
    }

    /// The same for any receiver of the answer. With a reservation it is a START whose inputs come later, once it has its slot.
    pub(super) fn submit_for(
        self: &Arc<Self>,
        mut request: InferRequest,
        version: Option<u64>,
        origin: RequestOrigin<'_>,
        reply: ReplyTo,
        reservation: Option<Reservation>,
    ) -> Result<Req, Failure> {
        let accepted = self.accept(&mut request, version, origin, reservation.as_ref())?;
        self.submit_accepted(request, accepted, origin, reply, (reservation, None))
    }

    /// Finds the load that a request is for, and checks the request.
    fn accept(
        &self,
        request: &mut InferRequest,
        version: Option<u64>,
        origin: RequestOrigin<'_>,
        reservation: Option<&Reservation>,
    ) -> Result<AcceptedRequest, Failure> {
        if let Some(callers) = origin.callers.filter(|callers| callers.contains(&self.name)) {
            return Err(circle(callers, &self.name, request));
        }
        let version = self.version_of(request, version);
        let Some(mut load) = self.load_for(version) else {
            return Err(Failure::NotServed(NotServed::NoVersion { model: self.name.clone() }));
        };
        if self.loads().len() > 1 {
            let route = self.table.lock().core.route(&request.sequence.id, version, request.sequence.start);
            load = route.and_then(|key| self.loads.find(key)).unwrap_or(load);
        }
        make_whole(&load, request);
        let captured = self.captures.note(request, load.key);
        let accepted = match reservation {
            None => intake::accept(&load.client, request, origin.headers, &load.texts),
            Some(_) => intake::accept_reservation(&load.client, request, origin.headers, &load.texts),
        };
        let accepted = accepted.map_err(|what| Failure::Invalid {
            model: self.name.clone(),
            id: request.id.clone(),
            what: Box::new(what),
        })?;
        Ok(AcceptedRequest { load, version, accepted, captured })
    }

    fn submit_accepted(
        self: &Arc<Self>,
        request: InferRequest,
        AcceptedRequest { load, version, accepted, captured }: AcceptedRequest,
        origin: RequestOrigin<'_>,
        reply: ReplyTo,
        (reservation, miss): (Option<Reservation>, Option<CacheMiss>),
    ) -> Result<Req, Failure> {
        let now = self.now();
        let mut submit = self.admission.event((&load, version), &request, (accepted.meta, origin.patience), now);
        if reservation.is_some() {
            // The ensemble has decided what a START on a live id means.
            (submit.origin, submit.dialect) = (1, request.dialect);
        }
        let calling = load.calls_models().then(|| self.calling(&request, origin, now));
        let mut job = Job::new(load, request, accepted, now, reply);
        (job.connection, job.captured) = (origin.awaiting.or(origin.connection).cloned(), captured);
        job.cache_miss = miss;
        if let Some(processed) = &mut job.processed {
            processed.calling = calling;
        }
        if let Some(of) = &mut job.flow_request {
            (of.headers, of.until) = (origin.headers.to_vec(), origin.patience.map(|t| now + t));
            (of.callers, of.connection) = (Some(self.path(origin)), origin.connection.cloned());
        }
        if submit.fresh_id != 0 {
            (job.id, job.made_id) = (Id::Int(submit.fresh_id), true);
        }
        job.holder = reservation.as_ref().map(|reservation| reservation.holder.clone());
        job.reservation = reservation;
        self.enqueue(job, submit, origin, now)
    }

    /// The models that wait for a request that this one sends on.
    fn path(&self, origin: RequestOrigin<'_>) -> Arc<[String]> {
        match origin.callers {
            None => Arc::clone(&self.own_path),
            Some(callers) => callers.iter().chain(self.own_path.iter()).cloned().collect(),
        }
    }

    /// What the plug-ins of a request pass on when they call other models.
    fn calling(&self, request: &InferRequest, origin: RequestOrigin<'_>, now: Time) -> CallingRequest {
        let path = self.path(origin);
        CallingRequest { path, origin: InheritedContext::new(request, origin, now, &self.clock, &self.timer) }
    }

    fn enqueue(
        self: &Arc<Self>,
        mut job: Job,
        mut submit: Submit,
        RequestOrigin { owner, connection, .. }: RequestOrigin<'_>,
        now: Time,
    ) -> Result<Req, Failure> {
        let mut table = self.table.lock();
        if table.is_of_another(&job, &submit) {
            return Err(job.load.refused(Refusal::Live, submit.id, true, now));
        }
        // Its sequence moved to another load since the request was checked. Inputs and outputs are the same there.
        if let Some(load) = table.imports.load_of(&submit).filter(|_| job.load.is_retired()) {
            job.load = load;
        }
        self.admission.admit(&table, (&mut job, &mut submit), owner, now)?;
        table.imports.check(&job.load, &submit)?;
        table.look_up_kept(now, &mut job, &mut submit)?;
        job.load.metrics.queued();
        let req = table.submit(now, Box::new(job), submit);
        let actions = Self::settle(&mut table, now);
        drop(table);
        // A sequence that starts may leave less room for freed memory.
        self.chunk_cache.trim();
        carry_out(self, ActingThread { wakes: connection, answers: connection }, actions, now);
        Ok(req)
    }

    pub(in crate::model) fn cancel(self: &Arc<Self>, req: Req) {
        self.apply(Event::Cancel(req));
    }

    pub(in crate::model) fn apply(self: &Arc<Self>, event: Event) {
        let now = self.now();
        self.locked(now, |table| table.apply(now, event));
    }

    // === for operators ===

    /// A portion of the live sequences, and where the next one begins.
    pub(in crate::model) fn seen(&self, from: u32, most: u32) -> (Vec<SequenceView>, Option<u32>) {
        self.table.lock().core.seen(from, most)
    }

    pub(in crate::model) fn ended(&self, most: usize) -> Vec<(Id, Tombstone)> {
        self.table.lock().core.ended(most)
    }

    // === a sequence's state ===

    /// Where the state of this sequence lies.
    pub(in crate::model) fn state_of(&self, id: &Id, version: Option<u64>) -> Option<(Seq, Option<StateAt>)> {
        let table = self.table.lock();
        table.core.find(id, version).map(|seq| (seq, table.core.state_of(seq)))
    }

    /// Where the state of this very sequence lies, if it is still there.
    pub(in crate::model) fn state_now(&self, seq: Seq) -> Option<StateAt> {
        self.table.lock().core.state_of(seq)
    }

    /// Where the states of this very sequence lie, if they may be copied now.
    pub(in crate::model) fn copyable_now(&self, seq: Seq) -> Option<StateAt> {
        let table = self.table.lock();
        table.core.state_of(seq).filter(|_| !table.core.is_between_runs(seq))
    }

    /// Keeps a state for the next step of a sequence. False if that lives here.
    pub(super) fn adopt(self: &Arc<Self>, id: Id, import: Import) -> bool {
        let until = import.until();
        let is_kept = self.table.lock().import(id, import);
        if is_kept {
            self.arm(until);
        }
        is_kept
    }

    /// Ends a sequence that does not live here and whose state is kept. False if there is none of this id.
    pub(super) fn drop_kept(self: &Arc<Self>, id: &Id, why: EndReason) -> bool {
        let (load, mut was_kept) = (self.load_for(None).map(|load| load.key), false);
        self.change(|table, now| was_kept = kept_stages::drop_kept(table, now, load, id, why));
        was_kept
    }

    pub(in crate::model) fn budget(&self) -> &Budget {
        self.admission.budget()
    }

    // === an instance ===

    pub(in crate::model) fn next(self: &Arc<Self>, who: Instance, now: Time) -> Step {
        self.locked(now, |table| table.next(now, who))
    }

    /// Takes the answer to a question, and the next step, in one lock section.
    pub(in crate::model) fn answer(self: &Arc<Self>, who: Instance, round: Box<Round>, said: PolicyAnswer) -> Step {
        let now = self.now();
        self.locked(now, |table| table.answer(now, who, round, said))
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

    /// Gives a batch's requests back. Whose it is is woken, if it has anything to do.
    pub(in crate::model) fn give_back(self: &Arc<Self>, finished: FinishedBatch) {
        let now = self.now();
        self.locked(now, |table| table.give_back(now, finished));
    }

    /// The actions to carry out once the lock is released.
    pub(super) fn settle(table: &mut Table, now: Time) -> Actions {
        sealing::work(table, now);
        table.settle()
    }

    // === after the lock ===

    pub(super) fn act(self: &Arc<Self>, actions: Actions, now: Time) {
        carry_out(self, ActingThread::default(), actions, now);
    }

    /// Does something with the table under its lock, and then what follows from it.
    fn locked<T>(self: &Arc<Self>, now: Time, what: impl FnOnce(&mut Table) -> T) -> T {
        self.locked_on(ActingThread::default(), now, what)
    }

    /// The same on a thread that may take steps of models that follow.
    pub(super) fn locked_on<T>(
        self: &Arc<Self>,
        thread: ActingThread<'_>,
        now: Time,
        what: impl FnOnce(&mut Table) -> T,
    ) -> T {
        let mut table = self.table.lock();
        let outcome = what(&mut table);
        let actions = Self::settle(&mut table, now);
        drop(table);
        carry_out(self, thread, actions, now);
        outcome
    }

    /// Changes the table under its lock, and does what follows from it.
    pub(super) fn change(self: &Arc<Self>, change: impl FnOnce(&mut Table, Time)) {
        let now = self.now();
        self.locked(now, |table| change(table, now));
    }

    // === sequences that the store keeps ===

    /// The version that a request is for: that of its stored state, if it names none.
    fn version_of(&self, request: &InferRequest, version: Option<u64>) -> Option<u64> {
        if version.is_some() || request.sequence.start || !self.store.has_kept() {
            return version;
        }
        let of = self.table.lock().kept.get(&request.sequence.id).map(|kept| kept.head.version);
        of.filter(|of| self.loads().iter().any(|load| load.version == *of))
    }

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
            self.arm(next);
        }
    }

    /// Does what has come due in the core, and forgets stored sequences that have expired.
    pub(super) fn apply_due(self: &Arc<Self>) {
        self.armed.store(Time::NEVER.0, Ordering::Release);
        self.apply(Event::Tick);
        self.expire_due();
    }

    /// Tells the timer of a deadline, if it is sooner than what it knows.
    pub(super) fn arm(self: &Arc<Self>, due: Time) {
        if due.0 < self.armed.fetch_min(due.0, Ordering::AcqRel) {
            let this = Arc::downgrade(self);
            self.timer.arm(due, this);
        }
    }
}

impl SpillHost for ModelScheduler {
    fn change_table(self: &Arc<Self>, change: &mut dyn FnMut(&mut Table, Time)) {
        self.change(|table, now| change(table, now));
    }

    fn state_budget(&self) -> &Budget {
        self.admission.budget()
    }

    fn sequence_store(&self) -> Option<&Arc<SequenceStore>> {
        self.store.get()
    }

    fn model_name(&self) -> &str {
        &self.name
    }
}

impl ActionHost for ModelScheduler {
    fn loads_now(&self) -> LoadsNow {
        self.loads()
    }

    fn with_table(&self, with: &mut dyn FnMut(&mut Table)) {
        with(&mut self.table.lock());
    }

    fn kept_store(&self) -> &KeptStore {
        &self.store
    }

    fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    fn notify_plugin(&self, load: LoadId, decider: Option<Decider>, notice: PolicyNotice) {
        self.notify_policy(load, decider, notice);
    }

    fn arm_timer(self: &Arc<Self>, due: Time) {
        self.arm(due);
    }

    fn start_flow(self: &Arc<Self>, req: Req, load: LoadId, thread: Option<&ExecutorHandle>) {
        self.begin_flow(req, load, thread);
    }
}
