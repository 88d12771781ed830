//! A row on its way through a run: what it brings, and what the run has left of it.

use std::time::Duration;

use sequor_core::Id;

use crate::batch::BatchRow;
use crate::telemetry::BatchTimes;
use crate::tensor::Tensor;

/// A row to run; `None` in a batch is padding.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) inputs: Vec<Option<Tensor>>,
    pub(super) rows: u64,
    pub(super) start: bool,
    pub(super) end: bool,
    pub(super) id: Id,
    pub(super) slot: Option<u32>,
}

impl Work {
    pub(super) fn row(&self) -> BatchRow<'_> {
        BatchRow { inputs: &self.inputs, rows: self.rows, start: self.start, end: self.end, id: &self.id }
    }
}

/// What a row's run has left: its outputs in the order of the settings, and what its state is like now.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) outputs: Vec<Tensor>,
    pub(super) state: StateNow,
}

/// A row's state as the core counts it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StateNow {
    pub(super) shape: u64,
    pub(super) bytes: u64,
}

/// How long the parts of one run took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunTimes {
    pub(super) state_in: Duration,
    pub(super) run: Duration,
    pub(super) state_out: Duration,
}

/// How large a run is.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunSize {
    requests: u64,
    rows: u64,
    /// Padding included.
    pub(super) executed: u64,
}

impl RunSize {
    pub(super) fn of(batch: &[Option<Work>]) -> RunSize {
        let requests = batch.iter().flatten().count() as u64;
        let rows = batch.iter().flatten().map(|w| w.rows).sum();
        RunSize { requests, rows, executed: rows + batch.len() as u64 - requests }
    }

    pub(super) fn times(&self, times: &RunTimes) -> BatchTimes {
        let as_u32 = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let RunTimes { state_in, run, state_out } = *times;
        let (requests, rows, executed) = (as_u32(self.requests), as_u32(self.rows), as_u32(self.executed));
        BatchTimes { requests, rows, executed, state_in, run, state_out }
    }
}
