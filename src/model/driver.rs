//! One model name as the server drives it: the core and the table of requests under one short lock, and what is done once it is given back.
//! Under the lock: no I/O, no payload is read, no log, nobody is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sequor_core::{
    Batch, Core, Effect, Event, Id, Instance, Load, Next, Note, Refusal, Req, RowEnd, Seq, Slab, Submit, Time, Usage, Why,
};
use tokio::sync::oneshot;

use crate::error::{Failure, NotServed};
use crate::state::budget::{Budget, Ticket};
use crate::telemetry::{FailureReason, Recorder};
use crate::tensor::Tensor;

use super::clock::Clock;
use super::execute::Work;
use super::intake::{self, Accepted};
use super::job::Job;
use super::loaded::Loaded;
use super::pending::Pending;
use super::record::{self, Facts};
use super::request::InferRequest;
use super::timer::Timer;

/// A model name: every load of it, and every request to it.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) name: String,
    inner: Mutex<Inner>,
    /// The loads that are there, newest last. Read without the lock.
    loads: ArcSwap<Vec<Arc<Loaded>>>,
    clock: Clock,
    timer: Timer,
    budget: Budget,
    /// The soonest time the timer knows of, in the clock's nanoseconds.
    armed: AtomicU64,
    /// Ids for sequences whose START came without one.
    fresh_ids: AtomicU64,
    /// Where requests that are through are written down.
    recorder: Option<Recorder>,
}

#[derive(Debug, Default)]
struct Inner {
    core: Core,
    /// `None` while the request runs and its thread has it.
    jobs: Slab<Req, Option<Box<Job>>>,
    /// What live sequences hold, by the index of their key.
    live: Vec<Option<Live>>,
    effects: Vec<Effect>,
}

/// A live sequence: its load, and its state memory.
#[derive(Debug)]
struct Live {
    load: Arc<Loaded>,
    #[allow(dead_code, reason = "only its drop matters")]
    ticket: Option<Ticket>,
}

/// What happened to a sequence, for the metrics.
#[derive(Debug)]
enum Told {
    Started,
    Ended(Why),
    Slotted(Duration),
}

/// What is to be done after the lock is given back.
#[derive(Debug, Default)]
struct Acts {
    refused: Vec<(Box<Job>, Refusal)>,
    released: Vec<Box<Job>>,
    wake: Vec<Instance>,
    told: Vec<(Arc<Loaded>, Told)>,
    due: Option<Time>,
}

/// A batch with the requests it runs.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) batch: Batch,
    /// One for each row; `None` is padding.
    pub(super) jobs: Vec<Option<(Req, Box<Job>)>>,
}

/// What an instance's thread does next.
#[derive(Debug)]
pub(super) enum Step {
    Run(Task),
    Tidy(Vec<sequor_core::SlotOp>),
    Sleep(Option<Time>),
    Gone,
}

impl Model {
    pub(super) fn new(
        name: String,
        clock: Clock,
        timer: Timer,
        budget: Budget,
        first_id: u64,
        recorder: Option<Recorder>,
    ) -> Model {
        Model {
            name,
            recorder,
            inner: Mutex::default(),
            loads: ArcSwap::default(),
            clock,
            timer,
            budget,
            armed: AtomicU64::new(Time::NEVER.0),
            fresh_ids: AtomicU64::new(first_id),
        }
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn loads(&self) -> arc_swap::Guard<Arc<Vec<Arc<Loaded>>>> {
        self.loads.load()
    }

    /// The load that serves this version, or the server's choice of one.
    pub(super) fn load_for(&self, version: Option<u64>) -> Option<Arc<Loaded>> {
        let loads = self.loads();
        let fits = loads.iter().filter(|l| version.is_none_or(|v| v == l.version));
        fits.max_by_key(|l| (l.version, l.key)).cloned()
    }

    pub(super) fn usage(&self, load: Load) -> Usage {
        self.inner.lock().core.usage(load)
    }

    /// Takes a load into service.
    pub(super) fn add(self: &Arc<Self>, load: Arc<Loaded>) {
        let spec = load.spec();
        if let Some(recorder) = &self.recorder {
            recorder.load(record::load(&load, &spec));
        }
        self.loads.rcu(|loads| loads.iter().cloned().chain([Arc::clone(&load)]).collect::<Vec<_>>());
        self.apply(Event::Loaded(load.key, spec));
    }

    /// Takes a load out of service: no new sequences; what is live at `until` is ended.
    pub(super) fn retire(self: &Arc<Self>, load: Load, until: Time) {
        self.apply(Event::Retire { load, until });
    }

    /// Forgets a load whose threads have gone.
    pub(super) fn forget(&self, load: Load) {
        self.loads.rcu(|loads| loads.iter().filter(|l| l.key != load).cloned().collect::<Vec<_>>());
    }

    // === a request ===

    /// Checks a request and puts it in its queue.
    pub(super) fn submit(self: &Arc<Self>, mut request: InferRequest, version: Option<u64>) -> Result<Pending, Failure> {
        let Some(mut load) = self.load_for(version) else {
            return Err(Failure::NotServed(NotServed::NoVersion { model: self.name.clone() }));
        };
        if self.loads().len() > 1 {
            let route = self.inner.lock().core.route(&request.sequence.id, version, request.sequence.start);
            load = route.and_then(|key| self.loads().iter().find(|l| l.key == key).cloned()).unwrap_or(load);
        }
        let accepted = intake::accept(&load.settings, &mut request)
            .map_err(|what| Failure::Invalid { model: self.name.clone(), what })?;
        let ticket = self.ticket(&load, &request)?;
        let (reply, receiver) = oneshot::channel();
        let now = self.now();
        let job = job(&load, &mut request, &accepted, ticket, now, reply);
        let submit = self.event(&load, &request, version, &accepted, now);
        let req = self.enqueue(job.with_inputs(accepted.inputs), submit, now);
        Ok(Pending::new(receiver, Arc::clone(self), req))
    }

    /// State memory for the sequence that this request starts.
    fn ticket(&self, load: &Arc<Loaded>, request: &InferRequest) -> Result<Option<Ticket>, Failure> {
        let bytes = load.state_bytes();
        if !request.sequence.start || bytes == 0 {
            return Ok(None);
        }
        self.budget.take(bytes).map(Some).map_err(|no_room| Failure::StateMemory {
            model: self.name.clone(),
            id: request.sequence.id.clone(),
            wanted: no_room.wanted,
            used: no_room.used,
            limit: no_room.limit,
        })
    }

    fn event(&self, load: &Loaded, request: &InferRequest, version: Option<u64>, accepted: &Accepted, now: Time) -> Submit {
        use crate::config::model::settings::Scheduling;
        let sequence = match &load.settings.scheduling {
            Scheduling::Sequence(sequence) => Some(sequence),
            _ => None,
        };
        let deadline = request.timeout.map(|t| now + t);
        let wait = sequence.and_then(|s| s.backlog_timeout).map(|t| now + t).filter(|_| request.sequence.start);
        let step = &request.sequence;
        Submit {
            // Set when the request is put into its table.
            req: Req::new(0, std::num::NonZeroU32::MIN),
            id: step.id.clone(),
            fresh_id: if step.id == Id::None && step.start { self.fresh_ids.fetch_add(1, Ordering::Relaxed) } else { 0 },
            start: step.start,
            end: step.end,
            step: step.step,
            version,
            dialect: sequence.and_then(|s| s.dialect).unwrap_or(request.dialect),
            deadline,
            backlog_until: deadline.into_iter().chain(wait).min(),
            queue_until: deadline.filter(|_| sequence.is_some_and(|s| s.reject_expired)),
            idle: None,
            priority: request.priority,
            traits: accepted.traits,
            origin: 0,
        }
    }

    fn enqueue(self: &Arc<Self>, job: Job, mut submit: Submit, now: Time) -> Req {
        let metrics = Arc::clone(&job.load.metrics);
        metrics.queued();
        let mut inner = self.inner.lock();
        let req = inner.jobs.insert(Some(Box::new(job)));
        submit.req = req;
        inner.apply(now, Event::Submit(submit));
        let acts = inner.settle();
        drop(inner);
        self.act(acts, now);
        req
    }

    pub(super) fn cancel(self: &Arc<Self>, req: Req) {
        self.apply(Event::Cancel(req));
    }

    /// Does what has come due.
    pub(super) fn tick(self: &Arc<Self>) {
        self.armed.store(Time::NEVER.0, Ordering::Release);
        self.apply(Event::Tick);
    }

    fn apply(self: &Arc<Self>, event: Event) {
        let now = self.now();
        let mut inner = self.inner.lock();
        inner.apply(now, event);
        let acts = inner.settle();
        drop(inner);
        self.act(acts, now);
    }

    // === an instance ===

    pub(super) fn next(self: &Arc<Self>, who: Instance) -> Step {
        let now = self.now();
        let mut inner = self.inner.lock();
        let step = inner.next(now, who);
        let acts = inner.settle();
        drop(inner);
        self.act(acts, now);
        step
    }

    /// Gives a batch's requests back and takes the next step, in one lock section. `rows` are in the order of the batch's real rows.
    pub(super) fn complete(self: &Arc<Self>, who: Instance, batch: &Batch, jobs: Vec<(Req, Box<Job>)>, rows: Vec<RowEnd>) -> Step {
        let now = self.now();
        let mut inner = self.inner.lock();
        for (req, job) in jobs {
            if let Some(place) = inner.jobs.get_mut(req) {
                *place = Some(job);
            }
        }
        inner.apply(now, Event::Ran { batch: batch.id, rows });
        let step = inner.next(now, who);
        let acts = inner.settle();
        drop(inner);
        self.act(acts, now);
        step
    }

    // === after the lock ===

    fn act(self: &Arc<Self>, acts: Acts, now: Time) {
        for instance in acts.wake {
            if let Some(load) = self.loads().iter().find(|l| l.key == instance.load) {
                load.wake(instance.n);
            }
        }
        for job in acts.released {
            let (metrics, total) = (Arc::clone(&job.load.metrics), now - job.arrived);
            match &job.answer {
                Some(Ok(_)) => metrics.succeeded(job.taken - job.arrived, total),
                _ => metrics.failed(FailureReason::Backend, total),
            }
            if let Some(recorder) = &self.recorder {
                record::released(recorder, &job, now);
            }
            job.release();
        }
        for (job, refusal) in acts.refused {
            job.load.metrics.dequeued(1);
            if let Some(reason) = failure_reason(&refusal) {
                job.load.metrics.failed(reason, now - job.arrived);
            }
            if let Some(recorder) = &self.recorder {
                record::refused(recorder, &job, &refusal, now);
            }
            job.refuse(refusal, now);
        }
        for (load, told) in acts.told {
            match told {
                Told::Started => load.metrics.sequence_started(),
                Told::Ended(why) => load.metrics.sequence_ended(why),
                Told::Slotted(waited) => load.metrics.slotted(waited),
            }
        }
        if let Some(due) = acts.due {
            self.arm(due);
        }
    }

    /// Brings the gauges of every load up to date.
    pub(super) fn observe(&self) {
        for load in self.loads().iter() {
            let usage = self.usage(load.key);
            load.metrics.set_backlogged(usage.backlog as usize);
            load.metrics.set_slots(u64::from(usage.slots_used), u64::from(usage.slots.saturating_sub(usage.slots_used)));
            load.metrics.set_state_bytes(u64::from(usage.live).saturating_mul(load.state_bytes()));
        }
    }

    /// Tells the timer of a deadline, if it is sooner than what it knows.
    fn arm(self: &Arc<Self>, due: Time) {
        if due.0 < self.armed.fetch_min(due.0, Ordering::AcqRel) {
            self.timer.arm(due, self);
        }
    }
}

impl Inner {
    fn apply(&mut self, now: Time, event: Event) {
        self.core.apply(now, event, &mut self.effects);
    }

    fn next(&mut self, now: Time, who: Instance) -> Step {
        match self.core.next(now, who, &mut self.effects) {
            Next::Run(batch) => Step::Run(self.task(now, batch)),
            Next::Tidy(ops) => Step::Tidy(ops),
            Next::Sleep(until) => Step::Sleep(until),
            Next::Gone => Step::Gone,
            // No load has an external policy yet; if one had, the built-in would serve.
            Next::Ask(round) => {
                let said = sequor_core::Said::Plan(Ok(sequor_core::Decision::Default));
                match self.core.answer(now, round, said, &mut self.effects) {
                    Next::Run(batch) => Step::Run(self.task(now, batch)),
                    _ => Step::Sleep(Some(now)),
                }
            }
        }
    }

    fn task(&mut self, now: Time, batch: Batch) -> Task {
        let mates = u32::try_from(batch.real().count()).unwrap_or(u32::MAX);
        let lend = |row: &sequor_core::Row| match row {
            sequor_core::Row::Pad => None,
            sequor_core::Row::Real(real) => {
                let mut job = self.jobs.get_mut(real.req)?.take()?;
                job.taken = now;
                job.facts.batch = mates;
                Some((real.req, job))
            }
        };
        let jobs = batch.rows.iter().map(lend).collect();
        Task { batch, jobs }
    }

    /// Turns effects into what is to be done without the lock.
    fn settle(&mut self) -> Acts {
        let mut acts = Acts { due: self.core.due(), ..Acts::default() };
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Refuse(req, refusal) => {
                    acts.refused.extend(self.jobs.remove(req).flatten().map(|job| (job, refusal)));
                }
                Effect::Release(req) => acts.released.extend(self.jobs.remove(req).flatten()),
                Effect::Wake(instance) => acts.wake.push(instance),
                Effect::Note(note) => acts.told.extend(self.told(note)),
                // Requests do not count their steps yet, so that none repeats one.
                Effect::Replay(req, _) => {
                    acts.refused.extend(self.jobs.remove(req).flatten().map(|job| (job, Refusal::StepGone { want: 0 })));
                }
                // No load names these stages yet.
                Effect::Prepare(..) | Effect::Post(..) | Effect::Seal(_) | Effect::Consult => {}
            }
        }
        acts
    }

    fn told(&mut self, note: Note) -> Option<(Arc<Loaded>, Told)> {
        match note {
            Note::Started(seq, req) => {
                let job = self.jobs.get_mut(req).and_then(Option::as_mut)?;
                let (load, ticket) = (Arc::clone(&job.load), job.ticket.take());
                self.put(seq, Some(Live { load: Arc::clone(&load), ticket }));
                Some((load, Told::Started))
            }
            Note::Ended(seq, why) => self.put(seq, None).map(|live| (live.load, Told::Ended(why))),
            Note::Slotted(seq, _, _, waited) => {
                let live = self.live.get(seq.ix as usize)?.as_ref()?;
                Some((Arc::clone(&live.load), Told::Slotted(waited)))
            }
            Note::Fault(_) | Note::Fallback | Note::Stale(_) => None,
        }
    }

    fn put(&mut self, seq: Seq, live: Option<Live>) -> Option<Live> {
        let ix = seq.ix as usize;
        if self.live.len() <= ix {
            self.live.resize_with(ix + 1, || None);
        }
        std::mem::replace(self.live.get_mut(ix)?, live)
    }
}

fn job(
    load: &Arc<Loaded>,
    request: &mut InferRequest,
    accepted: &Accepted,
    ticket: Option<Ticket>,
    now: Time,
    reply: oneshot::Sender<Result<super::InferAnswer, Failure>>,
) -> Job {
    Job {
        load: Arc::clone(load),
        mark: std::mem::take(&mut request.id),
        id: request.sequence.id.clone(),
        inputs: Vec::new(),
        outputs: accepted.outputs.clone(),
        rows: accepted.rows,
        arrived: now,
        taken: now,
        ticket,
        facts: Facts::of(request, &accepted.traits),
        answer: None,
        reply,
    }
}

impl Job {
    fn with_inputs(self, inputs: Vec<Option<Tensor>>) -> Job {
        Job { inputs, ..self }
    }

    /// What its row needs to run.
    pub(super) fn work(&mut self, row: &sequor_core::RealRow) -> Work {
        Work {
            inputs: std::mem::take(&mut self.inputs),
            rows: self.rows,
            start: row.start,
            end: row.end,
            id: self.id.clone(),
            slot: row.seat.map(|(_, slot)| slot.ix),
        }
    }
}

/// Triton's count of failures that a refusal belongs to; what is refused before the queue belongs to none.
fn failure_reason(refusal: &Refusal) -> Option<FailureReason> {
    match refusal {
        Refusal::Cancelled => Some(FailureReason::Canceled),
        Refusal::QueueTimeout { .. } | Refusal::QueueFull { .. } | Refusal::BacklogFull { .. } | Refusal::Policy(_) => {
            Some(FailureReason::Rejected)
        }
        Refusal::Ended(_) | Refusal::Failed(_) => Some(FailureReason::Other),
        _ => None,
    }
}
