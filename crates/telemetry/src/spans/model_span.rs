//! The part of a request's span that its model knows: how long it waited, how long it ran, and with how many others.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Shared by a traced request and its model. The model fills it before it sends the answer.
#[derive(Debug, Default)]
pub struct ModelSpan {
    /// The number of the step in its sequence; 0 until it runs.
    step: AtomicU64,
    times: OnceLock<ModelTimes>,
}

/// The times of a request at its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelTimes {
    pub version: u64,
    /// Requests in its batch; 0 if it did not run.
    pub batch: u32,
    /// From its arrival until its batch was taken, or until it was refused.
    pub queue: Duration,
    /// From then until its answer; zero if it did not run.
    pub run: Duration,
    /// The parts of its runs: staging of inputs and states, the graph, taking of outputs and states.
    pub parts: [Duration; 3],
    /// When it was answered.
    pub answered: Instant,
}

impl ModelSpan {
    /// Notes the number of the step that runs.
    pub fn runs(&self, step: u64) {
        self.step.store(step, Relaxed);
    }

    /// Notes the times of a request that is answered or refused. Only the first call counts.
    pub fn answered(&self, times: ModelTimes) {
        // A second answer would be a bug elsewhere, and the first one is what the client got.
        let _ = self.times.set(times);
    }

    pub(super) fn step(&self) -> Option<u64> {
        Some(self.step.load(Relaxed)).filter(|step| *step > 0)
    }

    pub(super) fn times(&self) -> Option<ModelTimes> {
        self.times.get().copied()
    }
}
