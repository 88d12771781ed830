//! A row on its way through a run: what it brings, and what the run has left of it.

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
    /// Its new state is to be made durable.
    pub(in crate::model) seal: bool,
}

impl RowWork {
    pub(in crate::model) fn row(&self) -> BatchRow<'_> {
        BatchRow { inputs: &self.inputs, rows: self.rows, start: self.start, end: self.end, id: &self.id }
    }
}

/// A state that a request brought for its sequence, as a file.
#[derive(Debug)]
pub(in crate::model) struct AdoptedState {
    pub(in crate::model) snapshot: Bytes,
    /// Memory beyond the size at START, where the state has grown.
    pub(in crate::model) grown: Option<Ticket>,
}

/// What a row's run has left: its outputs in the order of the settings, what its state is like now, and a copy of the state if it is to be made
/// durable.
#[derive(Debug, Default)]
pub(in crate::model) struct RowOutcome {
    pub(in crate::model) outputs: Vec<Tensor>,
    pub(in crate::model) state: StateNow,
    pub(in crate::model) copy: Option<StateCopy>,
    /// A state that it left and that was not taken for this.
    pub(in crate::model) not_finite: Option<NotFinite>,
    /// Of the batch that it ran in.
    pub(in crate::model) times: RunTimes,
}

impl RowOutcome {
    /// The same, or why its states were not taken.
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
    pub(in crate::model) fn add(&mut self, more: &RunTimes) {
        self.state_in += more.state_in;
        self.run += more.run;
        self.state_out += more.state_out;
    }
}

/// How large a run is.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct RunSize {
    requests: u64,
    starts: u64,
    rows: u64,
    /// Padding included.
    pub(in crate::model) executed: u64,
}

impl RunSize {
    pub(in crate::model) fn measure(batch: &[Option<RowWork>]) -> RunSize {
        let requests = batch.iter().flatten().count() as u64;
        let starts = batch.iter().flatten().filter(|w| w.start).count() as u64;
        let rows = batch.iter().flatten().map(|w| w.rows).sum();
        RunSize { requests, starts, rows, executed: rows + batch.len() as u64 - requests }
    }

    /// One request with so many rows.
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
