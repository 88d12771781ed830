//! An instance's own thread: it pulls what to do next, does slot operations in the order given, runs, commits, and reports.

use std::sync::Arc;
use std::time::SystemTime;

use sequor_core::{Instance, Req, RowEnd};

use crate::backend::BackendError;
use crate::error::Failure;
use crate::telemetry::BatchTimes;

use super::driver::Model;
use super::execute::{Executor, Outcome, RunError, Spent, Work};
use super::job::Job;
use super::loaded::Loaded;
use super::sync;
use super::table::{Step, Task};

/// Pulls until the load is gone.
pub(super) fn run(model: &Arc<Model>, load: &Arc<Loaded>, who: Instance, mut executor: Executor) {
    let mut step = model.next(who);
    loop {
        if let Some(mail) = load.mail.get(usize::from(who.n)) {
            mail.serve(model, &mut executor);
        }
        step = match step {
            Step::Run(task) => {
                let (batch, jobs, rows) = execute(load, &mut executor, task);
                model.complete(who, &batch, jobs, rows)
            }
            Step::Tidy(ops) => {
                if let Err(error) = executor.slot_ops(&ops, |_| None) {
                    tracing::error!(model = model.name, %error, "a slot was not tidied");
                }
                model.next(who)
            }
            Step::Sleep(until) => {
                sync::park(until.map(|until| until - model.now()));
                model.next(who)
            }
            Step::Gone => {
                if let Some(mail) = load.mail.get(usize::from(who.n)) {
                    mail.close();
                }
                // Once it is forgotten nobody finds its other threads to wake them, and each must see for itself that it is over.
                model.forget(load.key);
                return load.wake_all();
            }
        };
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
}
