//! A row of a batch: its inputs, and the outcome of its run.

use std::time::Duration;

use bytes::Bytes;
use sequor_core::Id;

use crate::batch::BatchRow;
use crate::state::budget::Ticket;
use crate::state::{NotFinite, StateCopy};
use crate::telemetry::BatchTimes;
use crate::tensor::Tensor;

use super::run_error::RunError;

/// A row to run; `None` in a batch is padding.
#[derive(Debug, Clone)]
pub(in crate::model) struct RowWork {
    pub(in crate::model) inputs: Vec<Option<Tensor>>,
    pub(in crate::model) rows: u64,
    pub(in crate::model) start: bool,
    pub(in crate::model) end: bool,
    pub(in crate::model) id: Id,
    pub(in crate::model) slot: Option<u32>,
    /// Whether the run copies the new state, to make it durable or to keep it for later STARTs.
    pub(in crate::model) seal: bool,
    /// Whether its client's request can still be refused: it is no step of another request and has not run before.
    pub(in crate::model) may_be_refused: bool,
}

impl RowWork {
    pub(in crate::model) fn row(&self) -> BatchRow<'_> {
        BatchRow { inputs: &self.inputs, rows: self.rows, start: self.start, end: self.end, id: &self.id }
    }
}

/// A state from outside the slots, as a snapshot, that fills a sequence's slot before its next step.
#[derive(Debug)]
pub(in crate::model) struct AdoptedState {
    pub(in crate::model) snapshot: Bytes,
    /// Memory beyond the size at START, if the state has grown.
    pub(in crate::model) grown: Option<Ticket>,
}

/// The outcome of a row's run: its outputs in the order of the settings, the shape and size of its state, and a copy of the state if
/// [`RowWork::seal`] asks for one.
#[derive(Debug, Default)]
pub(in crate::model) struct RowOutcome {
    pub(in crate::model) outputs: Vec<Tensor>,
    pub(in crate::model) state: StateNow,
    pub(in crate::model) copy: Option<StateCopy>,
    /// A state of the row that has a NaN or an infinity. The row's states were not committed.
    pub(in crate::model) not_finite: Option<NotFinite>,
    /// The times of the batch that the row ran in.
    pub(in crate::model) times: RunTimes,
}

impl RowOutcome {
    /// The outcome itself, or an error if its states were not committed.
    pub(in crate::model) fn taken(mut self) -> Result<RowOutcome, RunError> {
        self.not_finite.take().map_or(Ok(self), |state| Err(RunError::NotFinite(state)))
    }
}

/// A row's state after a commit.
#[derive(Debug)]
pub(in crate::model) struct CommittedRow {
    pub(in crate::model) state: StateNow,
    pub(in crate::model) copy: Option<StateCopy>,
    pub(in crate::model) not_finite: Option<NotFinite>,
}

/// A row's state as the core counts it.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::model) struct StateNow {
    pub(in crate::model) shape: u64,
    pub(in crate::model) bytes: u64,
}

/// How long the parts of one run took.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::model) struct RunTimes {
    pub(super) state_in: Duration,
    pub(in crate::model) run: Duration,
    pub(super) state_out: Duration,
}

impl RunTimes {
    /// Staging, the graph, and taking of the results.
    pub(in crate::model) fn parts(&self) -> [Duration; 3] {
        [self.state_in, self.run, self.state_out]
    }

    pub(in crate::model) fn add(&mut self, more: &RunTimes) {
        self.state_in += more.state_in;
        self.run += more.run;
        self.state_out += more.state_out;
    }
}

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct RunSize {
    requests: u64,
    starts: u64,
    rows: u64,
    /// Rows with padding.
    pub(in crate::model) executed: u64,
}

impl RunSize {
    pub(in crate::model) fn measure(batch: &[Option<RowWork>]) -> RunSize {
        let requests = batch.iter().flatten().count() as u64;
        let starts = batch.iter().flatten().filter(|w| w.start).count() as u64;
        let rows = batch.iter().flatten().map(|w| w.rows).sum();
        RunSize { requests, starts, rows, executed: rows + batch.len() as u64 - requests }
    }

    /// The size of a run of one request with this many rows.
    pub(in crate::model) fn alone(start: bool, rows: u64) -> RunSize {
        RunSize { requests: 1, starts: u64::from(start), rows, executed: rows }
    }

    pub(in crate::model) fn times(&self, times: &RunTimes) -> BatchTimes {
        let as_u32 = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let RunTimes { state_in, run, state_out } = *times;
        let [requests, starts, rows, executed] = [self.requests, self.starts, self.rows, self.executed].map(as_u32);
        BatchTimes { requests, starts, rows, executed, state_in, run, state_out }
    }
}
