//! Follows a batch from the core and back: which rows run, and how each row ends. A row that fails does not fail the others.

use bytes::Bytes;
use sequor_core::{Batch, BatchId, Dim, Req, RowEnd, Seq, Shape};

use crate::backend::BackendError;
use crate::batch::Staging;
use crate::config::model::settings::Output;
use crate::error::{ExceededLimit, Failure};
use crate::model::execute::{Executor, InstanceSlots, RowOutcome, RowWork, RunError, RunSize, RunTimes};
use crate::model::load::LoadedModel;
use crate::model::sequences::{FinishedBatch, Job, RefusedGrowth, RowToSeal, TakenBatch};
use crate::state::budget::NoRoom;
use crate::state::{NotFinite, StateValues};
use crate::tensor::Tensor;

/// A batch whose rows run. [`BatchRun::end`] makes the batch that is given back to the core.
#[derive(Debug)]
pub(super) struct BatchRun {
    batch: Batch,
    jobs: Vec<Option<(Req, Box<Job>)>>,
    /// How each real row ends.
    dispositions: Vec<RowDisposition>,
}

/// How a row of a batch ends.
#[derive(Debug)]
enum RowDisposition {
    Runs,
    Nothing,
    Fails(RunError),
}

impl BatchRun {
    /// Applies the batch's operations to the slots, and selects the rows to run.
    pub(in crate::model) fn begin(
        load: &LoadedModel,
        slots: &mut InstanceSlots,
        taken: TakenBatch,
    ) -> (BatchRun, Vec<Option<RowWork>>) {
        let TakenBatch { batch, mut jobs, mut adopted } = taken;
        let begun = jobs.iter_mut().flatten().filter_map(|(_, job)| job.begins().then_some(())).count();
        let work = work(&batch, &mut jobs);
        let kept = |req: Req| {
            let at = adopted.iter().position(|(of, _)| *of == req)?;
            Some(adopted.swap_remove(at).1)
        };
        load.metrics.dequeued(u32::try_from(begun).unwrap_or(u32::MAX));
        let first = first_values(&batch, &jobs);
        let first = |slot: u32| first.iter().find(|(of, _)| *of == slot).map(|(_, values)| values.clone());
        slots.apply(&batch.ops, kept, first);
        let full = load.answers.exceeded();
        let dispositions = work.iter().flatten().map(|w| disposition(load, slots, full.as_ref(), w)).collect();
        let runnable = runnable(load, slots, full.as_ref(), work);
        (BatchRun { batch, jobs, dispositions }, runnable)
    }

    pub(super) fn id(&self) -> BatchId {
        self.batch.id
    }

    /// Stores the result of every request in its job. `ran` has one result for each row that ran.
    pub(in crate::model) fn end(self, load: &LoadedModel, ran: Vec<Result<RowOutcome, RunError>>) -> FinishedBatch {
        let BatchRun { batch, jobs, dispositions } = self;
        let mut ran = ran.into_iter();
        let lost = || Err(RunError::Backend(BackendError("the row was lost".to_owned())));
        let mut rows = Vec::with_capacity(dispositions.len());
        let mut back = Vec::with_capacity(dispositions.len());
        let (mut sealing, mut refused_growth) = (Vec::new(), None::<RefusedGrowth>);
        for ((req, mut job), disposition) in jobs.into_iter().flatten().zip(dispositions) {
            let mut result = match disposition {
                RowDisposition::Runs => ran.next().unwrap_or_else(lost).and_then(RowOutcome::taken),
                // An END that does not run gets outputs without elements.
                RowDisposition::Nothing => Ok(RowOutcome { outputs: nothing(load), ..RowOutcome::default() }),
                RowDisposition::Fails(error) => Err(error),
            };
            let no_room = result.as_ref().err().and_then(RunError::over_limit);
            if let Some((no_room, seq)) = no_room.zip(sequence_of(&batch, req)) {
                refused_growth.get_or_insert(RefusedGrowth { seq, bytes: 0 }).bytes += no_room.wanted;
            }
            let row = batch.real().find(|row| row.req == req);
            let end = match &result {
                Ok(RowOutcome { state, .. }) => RowEnd::Done { state_shape: state.shape, state_bytes: state.bytes },
                Err(RunError::NoState(_)) => RowEnd::NoRoom,
                Err(RunError::NotFinite(_)) => RowEnd::NotFinite,
                // A START that is refused leaves no sequence.
                Err(RunError::AnswerRoom(_)) if row.is_some_and(|row| row.start) => RowEnd::NoRoom,
                Err(_) => RowEnd::Failed,
            };
            let copy = result.as_mut().ok().and_then(|outcome| {
                job.compute.add(&outcome.times);
                outcome.copy.take()
            });
            let copy = job.keep(copy).filter(|_| job.is_due());
            let to_seal = row.filter(|row| row.seal && result.is_ok());
            let failure = |e: RunError| failure(&e, load, &job, row.map_or(0, |row| row.step));
            let result = result.map(|outcome| outcome.outputs).map_err(failure);
            let has_to_end = job.ran(result);
            // A sequence that ends leaves no state to make durable.
            let to_seal = to_seal.filter(|_| !has_to_end);
            sealing.extend(to_seal.map(|row| RowToSeal { req, end: row.end, copy }));
            rows.push(if has_to_end && end != RowEnd::NotFinite { RowEnd::NoRoom } else { end });
            back.push((req, job));
        }
        FinishedBatch { batch, jobs: back, rows, sealing, refused_growth }
    }
}

/// Runs the rows of a failed batch one by one. Returns one result for each real row. A batch of one row is not run again, unless its padding
/// rows are the reason.
pub(super) fn one_by_one(
    load: &LoadedModel,
    executor: &mut Executor,
    staging: &mut Staging,
    work: Vec<Option<RowWork>>,
    error: &RunError,
) -> Vec<Result<RowOutcome, RunError>> {
    let real: Vec<RowWork> = work.into_iter().flatten().collect();
    if real.len() < 2 && !error.is_too_long_together() {
        return vec![Err(error.clone())];
    }
    let alone = |row: RowWork| {
        let (mut row, mut times) = (vec![Some(row)], RunTimes::default());
        pad(load, &mut row);
        let result = executor.run(staging, &row, &mut times);
        load.ran(&RunSize::measure(&row).times(&times));
        result.and_then(|mut outcomes| outcomes.pop().ok_or_else(|| error.clone()))
    };
    real.into_iter().map(alone).collect()
}

fn sequence_of(batch: &Batch, req: Req) -> Option<Seq> {
    batch.real().find(|row| row.req == req)?.placement.map(|(seq, _)| seq)
}

/// The failure that a client gets for a row that did not run, or whose states were not taken.
fn failure(error: &RunError, load: &LoadedModel, job: &Job, step: u64) -> Failure {
    if let RunError::NotFinite(NotFinite { state, is_nan }) = error {
        let (model, id, state) = (load.settings.name.clone(), job.id.clone(), state.clone());
        return Failure::StateNotFinite { model, id, state, is_nan: *is_nan, step };
    }
    if let Some(NoRoom { wanted, used, limit }) = error.over_limit() {
        let (model, id) = (load.settings.name.clone(), job.id.clone());
        return Failure::StateMemory { model, id, wanted, used, limit };
    }
    if let RunError::AnswerRoom(exceeded) = error {
        return Failure::Limit(exceeded.clone());
    }
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

/// The first states of sequences that begin in this batch, by slot. Sequences that begin with the states of config.pbtxt are left out.
fn first_values(batch: &Batch, jobs: &[Option<(Req, Box<Job>)>]) -> Vec<(u32, StateValues)> {
    let row = |(row, job): (&sequor_core::Row, &Option<(Req, Box<Job>)>)| match (row, job) {
        (sequor_core::Row::Real(real), Some((_, job))) => {
            Some((real.placement?.1.ix, job.source.first.as_ref()?.values.clone()))
        }
        _ => None,
    };
    batch.rows.iter().zip(jobs).filter_map(row).collect()
}

/// The inputs of each row, in the order of the batch.
fn work(batch: &Batch, jobs: &mut [Option<(Req, Box<Job>)>]) -> Vec<Option<RowWork>> {
    let row = |(row, job): (&sequor_core::Row, &mut Option<(Req, Box<Job>)>)| match (row, job) {
        (sequor_core::Row::Real(real), Some((_, job))) => Some(job.work(real)),
        _ => None,
    };
    batch.rows.iter().zip(jobs).map(row).collect()
}

/// `full` is the limit on answers, if it is exceeded.
fn disposition(
    load: &LoadedModel,
    slots: &InstanceSlots,
    full: Option<&ExceededLimit>,
    work: &RowWork,
) -> RowDisposition {
    if let Some(exceeded) = full.filter(|_| work.may_be_refused) {
        return RowDisposition::Fails(RunError::AnswerRoom(exceeded.clone()));
    }
    match slots.without_memory(work.slot) {
        Some(error) => RowDisposition::Fails(error.clone()),
        None if load.settings.inputs.is_empty() || !work.inputs.is_empty() => RowDisposition::Runs,
        None => RowDisposition::Nothing,
    }
}

/// The rows that have inputs and a state. If rows are fixed to slots, the others become padding.
fn runnable(
    load: &LoadedModel,
    slots: &InstanceSlots,
    full: Option<&ExceededLimit>,
    work: Vec<Option<RowWork>>,
) -> Vec<Option<RowWork>> {
    let runs = |w: &RowWork| matches!(disposition(load, slots, full, w), RowDisposition::Runs);
    let mut rows: Vec<Option<RowWork>> = match load.has_fixed_rows() {
        true => work.into_iter().map(|row| row.filter(runs)).collect(),
        false => work.into_iter().filter(|row| row.as_ref().is_none_or(runs)).collect(),
    };
    pad(load, &mut rows);
    rows
}

/// Adds padding rows, if the model pads its batches.
fn pad(load: &LoadedModel, rows: &mut Vec<Option<RowWork>>) {
    if let Some(stateful) = load.settings.stateful.as_ref().filter(|_| !rows.is_empty()) {
        rows.resize_with(stateful.padded(rows.len()), || None);
    }
}

/// The outputs of an END that does not run: without elements, or none if an END may come without inputs.
fn nothing(load: &LoadedModel) -> Vec<Tensor> {
    if load.settings.stateful.is_none() {
        return Vec::new();
    }
    let empty = |output: &Output| {
        let dims = output.dims.0.iter().enumerate();
        let dim = |(n, dim): (usize, &Dim)| if Some(n) == output.batch_dim { 0 } else { dim.fixed().unwrap_or(0) };
        let shape = Shape(std::iter::once(1).chain(dims.map(dim)).collect());
        Tensor { dtype: output.dtype, shape, data: Bytes::new() }
    };
    load.settings.outputs.iter().map(empty).collect()
}
