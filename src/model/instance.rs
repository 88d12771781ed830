//! An instance's own thread: it pulls what to do next, does slot operations in the order given, runs, commits, and reports.

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use sequor_core::{Asked, Decision, Fault, Instance, Req, Round, RowEnd, Said, SlotOp};

use crate::backend::BackendError;
use crate::error::Failure;
use crate::plugin::Answer;
use crate::telemetry::BatchTimes;

use super::driver::Model;
use super::execute::{Executor, Outcome, RunError, Spent, Work};
use super::job::Job;
use super::loaded::Loaded;
use super::sync::{self, Mutex, Thread};
use super::table::{Step, Task};

/// An instance's means of running. Who holds it is the instance: its own thread, or for one step a socket's.
#[derive(Debug)]
pub(super) struct Baton(Mutex<Held>);

#[derive(Debug)]
struct Held {
    executor: Executor,
    /// What was taken and left to its own thread.
    step: Option<Step>,
}

/// How others reach an instance.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) thread: Thread,
    pub(super) baton: Weak<Baton>,
}

impl Baton {
    pub(super) fn new(executor: Executor) -> Baton {
        Baton(Mutex::new(Held { executor, step: None }))
    }
}

/// Pulls until the load is gone.
pub(super) fn run(model: &Arc<Model>, load: &Arc<Loaded>, who: Instance, baton: &Baton) {
    let mail = load.mail.get(usize::from(who.n));
    loop {
        let mut held = baton.0.lock();
        let mut step = held.step.take().unwrap_or_else(|| model.next(who));
        let rest = loop {
            if let Some(mail) = mail {
                mail.serve(model, &mut held.executor);
            }
            step = match step {
                Step::Run(task) => run_batch(model, load, who, &mut held.executor, task),
                Step::Tidy(ops) => tidy(model, who, &mut held.executor, &ops),
                Step::Ask(round) => ask(model, load, who, round),
                Step::Sleep(until) => break Some(until),
                Step::Gone => break None,
            }
        };
        drop(held);
        let Some(until) = rest else { break };
        sync::park(until.map(|until| until - model.now()));
    }
    if let Some(mail) = mail {
        mail.close();
    }
    // Once it is forgotten nobody finds its other threads to wake them, and each must see for itself that it is over.
    model.forget(load.key);
    load.wake_all();
}

/// Does a step in place of the instance's own thread, if that is at rest. What comes after it is left to that thread.
pub(super) fn visit(model: &Arc<Model>, load: &Loaded, who: Instance) {
    let baton = load.handle(who.n).and_then(|handle| handle.baton.upgrade());
    let Some(mut held) = baton.as_ref().and_then(|baton| baton.0.try_lock()) else { return load.wake(who.n) };
    if !matches!(held.step, None | Some(Step::Sleep(_))) {
        return load.wake(who.n);
    }
    held.step = None;
    let mut step = model.next(who);
    if let Step::Tidy(ops) = &step {
        step = tidy(model, who, &mut held.executor, ops);
    }
    if let Step::Run(task) = step {
        step = run_batch(model, load, who, &mut held.executor, task);
    }
    if !matches!(step, Step::Sleep(None)) {
        held.step = Some(step);
        drop(held);
        load.wake(who.n);
    }
}

fn run_batch(model: &Arc<Model>, load: &Loaded, who: Instance, executor: &mut Executor, task: Task) -> Step {
    let (batch, jobs, rows) = execute(load, executor, task);
    model.complete(who, &batch, jobs, rows)
}

fn tidy(model: &Arc<Model>, who: Instance, executor: &mut Executor, ops: &[SlotOp]) -> Step {
    if let Err(error) = executor.slot_ops(ops, |_| None) {
        tracing::error!(model = model.name, %error, "a slot was not tidied");
    }
    model.next(who)
}

/// Puts a question to the load's external policy, without any lock of the core.
fn ask(model: &Arc<Model>, load: &Loaded, who: Instance, mut round: Box<Round>) -> Step {
    let attachment = load.attachment.load_full();
    let answer = match &attachment {
        Some(attachment) => attachment.ask(&mut round),
        // It was taken off just now.
        None => Answer { said: nothing(&round), shadow: None },
    };
    let step = model.answer(who, round, answer.said);
    if let (Some(attachment), Some(shadow)) = (attachment, answer.shadow) {
        let ran: Option<Vec<Req>> = match &step {
            Step::Run(task) => Some(task.batch.real().map(|row| row.req).collect()),
            _ => None,
        };
        attachment.compare(&shadow, ran.as_deref());
    }
    step
}

/// What whoever is not there says: the built-in policy decides.
fn nothing(round: &Round) -> Said {
    match round.asked {
        Asked::Plan(_) => Said::Plan(Ok(Decision::Default)),
        Asked::Admit { .. } => Said::Admit(Err(Fault::Busy)),
    }
}

type Done = (sequor_core::Batch, Vec<(Req, Box<Job>)>, Vec<RowEnd>);

/// Runs a batch; if that fails, its rows one by one, so that a bad one fails alone.
fn execute(load: &Loaded, executor: &mut Executor, task: Task) -> Done {
    let Task { batch, mut jobs } = task;
    let mut spent = Spent::default();
    let work = work(&batch, &mut jobs);
    let kept = |req: Req| jobs.iter().flatten().find(|(r, _)| *r == req).and_then(|(_, job)| job.snapshot.clone());
    let requests = batch.real().count();
    load.metrics.dequeued(u32::try_from(requests).unwrap_or(u32::MAX));
    let results: Vec<Result<Outcome, RunError>> = match executor.slot_ops(&batch.ops, kept) {
        Err(error) => (0..requests).map(|_| Err(error.clone())).collect(),
        Ok(()) => run_all(load, executor, work, &mut spent),
    };
    let mut rows = Vec::with_capacity(results.len());
    let mut back = Vec::with_capacity(results.len());
    for ((req, mut job), result) in jobs.into_iter().flatten().zip(results) {
        rows.push(match &result {
            Ok(outcome) => RowEnd::Done { state_shape: outcome.state_shape, state_bytes: outcome.state_bytes },
            Err(RunError::NoState(_)) => RowEnd::NoRoom,
            Err(_) => RowEnd::Failed,
        });
        let failure = |e: RunError| failure(&e, load, &job);
        job.answer = Some(result.map(|outcome| outcome.outputs).map_err(failure));
        back.push((req, job));
    }
    (batch, back, rows)
}

/// What a client is told of a row that did not run.
fn failure(error: &RunError, load: &Loaded, job: &Job) -> Failure {
    match error.no_room() {
        Some((place, wanted)) => Failure::DeviceMemory {
            model: load.settings.name.clone(),
            id: job.id.clone(),
            place: place.to_string(),
            wanted: wanted as u64,
        },
        None => Failure::Run(error.to_string()),
    }
}

/// What each row brings, in the order of the batch.
fn work(batch: &sequor_core::Batch, jobs: &mut [Option<(Req, Box<Job>)>]) -> Vec<Option<Work>> {
    let row = |(row, job): (&sequor_core::Row, &mut Option<(Req, Box<Job>)>)| match (row, job) {
        (sequor_core::Row::Real(real), Some((_, job))) => Some(job.work(real)),
        _ => None,
    };
    batch.rows.iter().zip(jobs).map(row).collect()
}

fn run_all(
    load: &Loaded,
    executor: &mut Executor,
    work: Vec<Option<Work>>,
    spent: &mut Spent,
) -> Vec<Result<Outcome, RunError>> {
    let fate = |w: &Work| match executor.roomless(w) {
        Some(error) => Fate::Fails(error.clone()),
        None if load.settings.inputs.is_empty() || !w.inputs.is_empty() => Fate::Runs,
        None => Fate::Nothing,
    };
    let fates: Vec<Fate> = work.iter().flatten().map(fate).collect();
    let run = runnable(load, executor, work);
    let mut ran = run_or_retry(load, executor, run, spent).into_iter();
    // An END without inputs runs nothing and is answered with nothing.
    let nothing = || Ok(Outcome { outputs: Vec::new(), state_shape: 0, state_bytes: 0 });
    let lost = || Err(RunError::Backend(BackendError("the row was lost".to_owned())));
    let result = |fate| match fate {
        Fate::Runs => ran.next().unwrap_or_else(lost),
        Fate::Nothing => nothing(),
        Fate::Fails(error) => Err(error),
    };
    fates.into_iter().map(result).collect()
}

/// What becomes of a row.
enum Fate {
    Runs,
    Nothing,
    Fails(RunError),
}

/// The rows that bring inputs and have a state; where rows are fixed to slots, the others become padding.
fn runnable(load: &Loaded, executor: &Executor, work: Vec<Option<Work>>) -> Vec<Option<Work>> {
    let empty = |w: &Work| (w.inputs.is_empty() && !load.settings.inputs.is_empty()) || executor.roomless(w).is_some();
    if load.has_fixed_rows() {
        return work.into_iter().map(|row| row.filter(|w| !empty(w))).collect();
    }
    work.into_iter().filter(|row| !row.as_ref().is_some_and(empty)).collect()
}

/// One result for each real row.
fn run_or_retry(
    load: &Loaded,
    executor: &mut Executor,
    work: Vec<Option<Work>>,
    spent: &mut Spent,
) -> Vec<Result<Outcome, RunError>> {
    if work.iter().flatten().next().is_none() {
        return Vec::new();
    }
    let whole = executor.run(&work, spent);
    count(load, &work, *spent);
    let error = match whole {
        Ok(outcomes) => return outcomes.into_iter().map(Ok).collect(),
        Err(error) => error,
    };
    let real: Vec<Work> = work.into_iter().flatten().collect();
    if real.len() < 2 {
        return vec![Err(error)];
    }
    let alone = |row: Work| {
        let (row, mut spent) = ([Some(row)], Spent::default());
        let result = executor.run(&row, &mut spent);
        count(load, &row, spent);
        result.and_then(|mut outcomes| outcomes.pop().ok_or_else(|| error.clone()))
    };
    real.into_iter().map(alone).collect()
}

fn count(load: &Loaded, work: &[Option<Work>], spent: Spent) {
    let real = || work.iter().flatten();
    let as_u32 = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let rows: u64 = real().map(|w| w.rows).sum();
    load.metrics.executed(&BatchTimes {
        requests: as_u32(real().count() as u64),
        rows: as_u32(rows),
        executed: as_u32(rows + (work.len() - real().count()) as u64),
        state_in: spent.state_in,
        run: spent.run,
        state_out: spent.state_out,
    });
    load.metrics.ran_at(SystemTime::now());
    load.pace.note(spent.state_in + spent.run + spent.state_out);
}
