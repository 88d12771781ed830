//! One model name as the server drives it: the core and the table of requests under one short lock, and what is done once it is given back.
//! Under the lock there is no I/O, payload, log or wake-up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use sequor_core::{
    Event, Id, Instance, LoadId, NoId, PolicyAnswer, Req, RequestMeta, Round, Seq, SequenceView, StateAt, Submit, Time,
    Tombstone, Usage,
};
use tokio::sync::oneshot;

use crate::error::{Failure, NotServed};
use crate::executor::{AnswerBatch, ExecutorHandle};
use crate::model::load::{LoadInitializer, LoadKey, LoadKeys, LoadedModel, SequenceStore, record, submit_to_plugins};
use crate::model::request::{InferRequest, intake};
use crate::model::runtime::{Clock, Tick, Timer};
use crate::recording::Recorder;
use crate::state::ChunkCache;
use crate::state::budget::{Budget, Ticket};
use crate::state::tier::TierKey;
use crate::sync::{AtomicU64, Mutex};

use super::batch::{FinishedBatch, SealAction};
use super::first_states::{Beginning, PrepareHost, Preparer};
use super::inline;
use super::job::{Job, Reply};
use super::kept::{Forgotten, StoreTask, checked};
use super::owner::{RequestOrigin, SequenceOwner, SequencePermit};
use super::processed::{LentRequest, PostTask, PreparedJob};
use super::table::{Actions, Import, SequenceChange, Step, Table};

/// A model name: every load of it, and every request to it.
#[derive(Debug)]
pub(in crate::model) struct ModelScheduler {
    pub(in crate::model) name: String,
    pub(in crate::model) table: Mutex<Table>,
    load_keys: LoadKeys,
    /// The loads that are there, newest last. Read without the lock.
    loads: ArcSwap<Vec<Arc<LoadedModel>>>,
    clock: Clock,
    timer: Timer,
    budget: Budget,
    chunk_cache: ChunkCache,
    /// The soonest time the timer knows of, in the clock's nanoseconds.
    armed: AtomicU64,
    /// Ids for sequences whose START came without one.
    fresh_ids: AtomicU64,
    /// Where requests that are through are written down.
    recorder: Option<Recorder>,
    /// Where sequences are kept that outlive the process.
    pub(super) store: Option<Arc<SequenceStore>>,
    /// Whether the store had sequences of this model.
    pub(super) has_kept: AtomicU64,
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
        ModelScheduler {
            name,
            recorder,
            store,
            has_kept: AtomicU64::new(0),
            table: Mutex::default(),
            load_keys: LoadKeys::default(),
            loads: ArcSwap::default(),
            clock,
            timer,
            budget,
            chunk_cache,
            armed: AtomicU64::new(Time::NEVER.0),
            fresh_ids: AtomicU64::new(first_id),
        }
    }

    pub(in crate::model) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(in crate::model) fn loads(&self) -> arc_swap::Guard<Arc<Vec<Arc<LoadedModel>>>> {
        self.loads.load()
    }

    /// The load that serves this version, or the server's choice of one.
    pub(in crate::model) fn load_for(&self, version: Option<u64>) -> Option<Arc<LoadedModel>> {
        let loads = self.loads();
        let fits = loads.iter().filter(|l| version.is_none_or(|v| v == l.version));
        // A retired one serves the sequences that live on it, and tells others what became of it. Of equals the last, which is the newest, wins.
        fits.max_by_key(|l| (!l.is_retired(), l.version)).cloned()
    }

    pub(in crate::model) fn usage(&self, load: LoadId) -> Usage {
        self.table.lock().core.usage(load)
    }

    /// Reserves the key of a load that is about to be made. Dropping the key makes its place free again.
    pub(in crate::model) fn reserve_load(&self) -> LoadKey {
        self.load_keys.reserve()
    }

    /// Takes a load into service.
    pub(in crate::model) fn add(self: &Arc<Self>, load: &Arc<LoadedModel>) {
        let spec = load.spec();
        if let Some(recorder) = &self.recorder {
            recorder.load(record::load(load, &spec));
        }
        self.loads.rcu(|loads| loads.iter().cloned().chain([Arc::clone(load)]).collect::<Vec<_>>());
        self.apply(Event::Loaded(load.key, spec));
    }

    /// Takes a load out of service: no new sequences; what is live at `until` is ended.
    pub(in crate::model) fn retire(self: &Arc<Self>, load: LoadId, until: Time) {
        if let Some(load) = self.loads().iter().find(|l| l.key == load) {
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
            self.loads.rcu(|loads| loads.iter().filter(|l| l.key != load).cloned().collect::<Vec<_>>());
            table.forget_policy(load)
        };
        drop(policy);
    }

    // === a request ===

    /// Checks a request and puts it in its queue. A short step may be left to the connection that the request came on. Returns where its answer
    /// comes, and the request's key until then.
    pub(in crate::model) fn submit(
        self: &Arc<Self>,
        mut request: InferRequest,
        version: Option<u64>,
        origin: RequestOrigin<'_>,
    ) -> Result<(oneshot::Receiver<Reply>, Req), Failure> {
        let version = self.version_of(&request, version);
        let Some(mut load) = self.load_for(version) else {
            return Err(Failure::NotServed(NotServed::NoVersion { model: self.name.clone() }));
        };
        if self.loads().len() > 1 {
            let route = self.table.lock().core.route(&request.sequence.id, version, request.sequence.start);
            load = route.and_then(|key| self.loads().iter().find(|l| l.key == key).cloned()).unwrap_or(load);
        }
        let accepted = intake::accept(&load.client, &mut request, &load.texts).map_err(|what| Failure::Invalid {
            model: self.name.clone(),
            id: request.id.clone(),
            what: Box::new(what),
        })?;
        let (reply, receiver) = oneshot::channel();
        let now = self.now();
        let submit = self.event(&load, &request, version, accepted.meta, now);
        let mut job = Job::new(load, request, accepted, now, reply);
        job.connection = origin.connection.cloned();
        if submit.fresh_id != 0 {
            (job.id, job.made_id) = (Id::Int(submit.fresh_id), true);
        }
        let req = self.enqueue(job, submit, origin, now)?;
        Ok((receiver, req))
    }

    /// State memory for the sequence that this request starts. A live sequence begins anew in the memory that it has.
    fn ticket(&self, table: &Table, load: &LoadedModel, submit: &Submit) -> Result<Option<Ticket>, Failure> {
        let bytes = load.state_bytes();
        let begins = submit.start || table.resumes(&submit.id, submit.version);
        if !begins || bytes == 0 || table.holds(&submit.id, submit.version, load.key) {
            return Ok(None);
        }
        let drops_one = || load.initializer.as_ref().is_some_and(|of| of.kept.drop_one());
        let taken = loop {
            match self.budget.take(bytes) {
                // Live sequences go before kept states.
                Err(_) if drops_one() => {}
                taken => break taken,
            }
        };
        taken.map(Some).map_err(|no_room| Failure::StateMemory {
            model: self.name.clone(),
            id: submit.id.clone(),
            wanted: no_room.wanted,
            used: no_room.used,
            limit: no_room.limit,
        })
    }

    /// Counts the sequence that this request starts for its owner.
    fn permit(
        &self,
        table: &Table,
        load: &LoadedModel,
        submit: &Submit,
        owner: Option<&Arc<dyn SequenceOwner>>,
    ) -> Result<Option<SequencePermit>, Failure> {
        use crate::config::model::settings::Scheduling;
        let is_sequence = matches!(load.settings.scheduling, Scheduling::Sequence(_));
        let starts =
            is_sequence && (submit.start || table.has_import(&submit.id) || table.resumes(&submit.id, submit.version));
        let Some(owner) = owner.filter(|_| starts) else { return Ok(None) };
        if table.is_owned(&submit.id, submit.version, owner) {
            return Ok(Some(SequencePermit::instead(owner)));
        }
        SequencePermit::try_new(owner).map(Some).map_err(|limit| Failure::PeerSequences {
            model: self.name.clone(),
            id: submit.id.clone(),
            limit,
        })
    }

    fn event(
        &self,
        load: &LoadedModel,
        request: &InferRequest,
        version: Option<u64>,
        meta: RequestMeta,
        now: Time,
    ) -> Submit {
        use crate::config::model::settings::Scheduling;
        let sequence = match &load.settings.scheduling {
            Scheduling::Sequence(sequence) => Some(sequence),
            _ => None,
        };
        let timeout = request.timeout.map(|t| now + t);
        let wait = sequence.and_then(|s| s.backlog_timeout).map(|t| now + t).filter(|_| request.sequence.start);
        let step = &request.sequence;
        let dialect = sequence.and_then(|s| s.dialect).unwrap_or(request.dialect);
        let makes_id = sequence.is_some() && step.id == Id::None && step.start && dialect.no_id == NoId::Assign;
        Submit {
            // Set when the request is put into its table.
            req: Req::new(0, std::num::NonZeroU32::MIN),
            id: step.id.clone(),
            fresh_id: if makes_id { self.fresh_ids.fetch_add(1, Ordering::Relaxed) } else { 0 },
            start: step.start,
            end: step.end,
            adopt: None,
            prepare: false,
            step: step.step,
            version,
            dialect,
            deadline: timeout.or(request.patience.map(|t| now + t)),
            backlog_until: timeout.into_iter().chain(wait).min(),
            queue_until: match &load.settings.scheduling {
                Scheduling::Sequence(sequence) => timeout.filter(|_| sequence.reject_expired),
                Scheduling::Dynamic { queue, .. } => queue.timeout_of(request.timeout).map(|t| now + t),
                Scheduling::Each => None,
            },
            idle: step.idle,
            priority: request.priority,
            meta,
            origin: 0,
        }
    }

    fn enqueue(
        self: &Arc<Self>,
        mut job: Job,
        mut submit: Submit,
        RequestOrigin { owner, connection }: RequestOrigin<'_>,
        now: Time,
    ) -> Result<Req, Failure> {
        let mut table = self.table.lock();
        // An id that a client chose may be one that the server would have made.
        while submit.fresh_id != 0 && table.core.find(&Id::Int(submit.fresh_id), None).is_some() {
            submit.fresh_id = self.fresh_ids.fetch_add(1, Ordering::Relaxed);
            job.id = Id::Int(submit.fresh_id);
        }
        job.permit = self.permit(&table, &job.load, &submit, owner)?;
        job.ticket = self.ticket(&table, &job.load, &submit)?;
        table.look_up_kept(now, &mut job, &mut submit)?;
        job.load.metrics.queued();
        let req = table.submit(now, Box::new(job), submit);
        let actions = table.settle();
        drop(table);
        // A sequence that starts may leave less room for freed memory.
        self.chunk_cache.trim();
        self.act_for(connection, actions, now);
        Ok(req)
    }

    pub(in crate::model) fn cancel(self: &Arc<Self>, req: Req) {
        self.apply(Event::Cancel(req));
    }

    pub(in crate::model) fn apply(self: &Arc<Self>, event: Event) {
        let now = self.now();
        let mut table = self.table.lock();
        table.apply(now, event);
        let actions = table.settle();
        drop(table);
        self.act(actions, now);
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
    pub(super) fn adopt(&self, id: Id, import: Import) -> bool {
        self.table.lock().import(id, import)
    }

    pub(in crate::model) fn budget(&self) -> &Budget {
        &self.budget
    }

    // === an instance ===

    pub(in crate::model) fn next(self: &Arc<Self>, who: Instance, now: Time) -> Step {
        let mut table = self.table.lock();
        let step = table.next(now, who);
        let actions = table.settle();
        drop(table);
        self.act(actions, now);
        step
    }

    /// Takes the answer to a question, and the next step, in one lock section.
    pub(in crate::model) fn answer(self: &Arc<Self>, who: Instance, round: Box<Round>, said: PolicyAnswer) -> Step {
        let now = self.now();
        let mut table = self.table.lock();
        let step = table.answer(now, who, round, said);
        let actions = table.settle();
        drop(table);
        self.act(actions, now);
        step
    }

    /// Gives a batch's requests back and takes the next step, in one lock section.
    pub(in crate::model) fn complete(self: &Arc<Self>, who: Instance, finished: FinishedBatch, now: Time) -> Step {
        let mut table = self.table.lock();
        table.give_back(now, finished);
        let step = table.next(now, who);
        let actions = table.settle();
        drop(table);
        self.act(actions, now);
        step
    }

    /// Gives a batch's requests back. Whose it is is woken, if it has anything to do.
    pub(in crate::model) fn give_back(self: &Arc<Self>, finished: FinishedBatch) {
        let now = self.now();
        let mut table = self.table.lock();
        table.give_back(now, finished);
        let actions = table.settle();
        drop(table);
        self.act(actions, now);
    }

    // === after the lock ===

    pub(super) fn act(self: &Arc<Self>, actions: Actions, now: Time) {
        self.act_for(None, actions, now);
    }

    /// The same while a request of this connection is submitted.
    fn act_for(self: &Arc<Self>, connection: Option<&ExecutorHandle>, mut actions: Actions, now: Time) {
        for (instance, decider) in actions.wake {
            if let Some(load) = self.loads().iter().find(|l| l.key == instance.load) {
                inline::wake(load, instance.n, connection, decider.as_ref(), now);
            }
        }
        let mut batch = AnswerBatch::default();
        if actions.released.len() > 1 {
            actions.released.iter_mut().filter_map(|job| job.connection.take()).for_each(|held| batch.hold(held));
        }
        for job in actions.released {
            job.release(now, self.recorder.as_ref());
        }
        drop(batch);
        for (job, refusal, ended) in actions.refused {
            job.refuse(refusal, ended, now, self.recorder.as_ref());
        }
        for (load, change) in actions.sequences {
            match change {
                SequenceChange::Started => load.metrics.sequence_started(),
                SequenceChange::Ended(why) => load.metrics.sequence_ended(why),
                SequenceChange::Slotted(waited) => load.metrics.slotted(waited),
            }
        }
        for task in actions.store {
            self.ask_store(task);
        }
        for forgotten in actions.forgotten {
            self.forget_kept(&forgotten);
        }
        for task in actions.prepare {
            self.prepare(task);
        }
        for task in actions.post {
            self.post(task);
        }
        for action in actions.seals {
            self.seal(action);
        }
        for (load, decider, notice) in actions.policies {
            self.notify_policy(load, decider, notice);
        }
        if let Some(due) = actions.due {
            self.arm(due);
        }
    }

    /// Has the plug-ins of its load prepare a request, on their threads.
    fn prepare(self: &Arc<Self>, LentRequest { req, load }: LentRequest) {
        let model = Arc::downgrade(self);
        let prepare = move || {
            // A request that was cancelled while it waited costs nothing more.
            let Some(task) = model.upgrade().and_then(|model| model.table.lock().begin_prepare(req)) else { return };
            if let Some(model) = model.upgrade() {
                Preparer(model).prepare(task);
            }
        };
        submit_to_plugins(&load, Box::new(prepare));
    }

    /// Has the processors of its load finish a request, on their threads.
    fn post(self: &Arc<Self>, task: PostTask) {
        let (load, model) = (Arc::clone(&task.load), Arc::downgrade(self));
        let post = move || {
            let (req, finished) = task.run();
            if let Some(model) = model.upgrade() {
                model.change(|table, now| table.posted(now, req, finished));
            }
        };
        submit_to_plugins(&load, Box::new(post));
    }

    /// Changes the table under its lock, and does what follows from it.
    pub(super) fn change(self: &Arc<Self>, change: impl FnOnce(&mut Table, Time)) {
        let now = self.now();
        let mut table = self.table.lock();
        change(&mut table, now);
        let actions = table.settle();
        drop(table);
        self.act(actions, now);
    }

    /// Hands states to a tier, whose report releases or refuses the answers.
    fn seal(self: &Arc<Self>, SealAction { tier, id, batch }: SealAction) {
        let model = Arc::downgrade(self);
        let sealed = move |result| {
            if let Some(model) = model.upgrade() {
                model.apply(Event::Sealed(id, result));
            }
        };
        tier.seal(batch, Box::new(sealed));
    }

    // === sequences that the store keeps ===

    /// The version that a request is for: that of its kept state, if it names none.
    fn version_of(&self, request: &InferRequest, version: Option<u64>) -> Option<u64> {
        if version.is_some() || request.sequence.start || self.has_kept.load(Ordering::Acquire) == 0 {
            return version;
        }
        let of = self.table.lock().kept.get(&request.sequence.id).map(|kept| kept.head.version);
        of.filter(|of| self.loads().iter().any(|load| load.version == *of))
    }

    /// Forgets kept sequences whose idle time has passed.
    fn expire_due(self: &Arc<Self>) {
        if self.has_kept.load(Ordering::Acquire) == 0 {
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

    /// Has the store do its part for a request, on its own thread.
    fn ask_store(self: &Arc<Self>, task: StoreTask) {
        let model = Arc::downgrade(self);
        let (key, forgets) = (task.key.clone(), task.forgets);
        let Some(store) = self.store.clone() else { return };
        store.take(key, forgets, move |found| {
            let outcome = checked(&task, found);
            if let Some(model) = model.upgrade() {
                model.change(|table, now| table.stored(now, task, outcome));
            }
        });
    }

    /// Has the store forget a sequence that has ended.
    fn forget_kept(&self, forgotten: &Forgotten) {
        if let Some(store) = &self.store {
            let Forgotten { load, id, incarnation } = forgotten;
            store.forget(TierKey::new(&load.settings.name, id), *incarnation);
        }
    }

    /// Tells the timer of a deadline, if it is sooner than what it knows.
    pub(super) fn arm(self: &Arc<Self>, due: Time) {
        if due.0 < self.armed.fetch_min(due.0, Ordering::AcqRel) {
            let this = Arc::downgrade(self);
            self.timer.arm(due, this);
        }
    }
}

impl PrepareHost for ModelScheduler {
    fn prepared(self: Arc<Self>, req: Req, prepared: PreparedJob, beginning: Beginning) {
        self.change(|table, now| table.prepared(now, req, prepared, beginning));
    }

    fn is_preparing(&self, req: Req) -> bool {
        self.table.lock().core.is_preparing(req)
    }

    fn parent(
        &self,
        of: &LoadInitializer,
        load: &Arc<LoadedModel>,
        keys: &[u64],
        id: &str,
    ) -> Result<(Seq, StateAt), &'static str> {
        self.table.lock().parent(of, load, keys, id)
    }
}

impl Tick for ModelScheduler {
    fn tick(self: Arc<Self>) {
        self.armed.store(Time::NEVER.0, Ordering::Release);
        self.apply(Event::Tick);
        self.expire_due();
    }
}
