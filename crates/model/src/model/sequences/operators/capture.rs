//! Captures a sequence for an operator: its state, and the inputs and outputs of the steps that follow.
//!
//! Requests that were submitted before the capture began are not recorded. So if a step is missing between the state and the first recorded
//! step, the state is copied again: a capture never has a gap. While the sequence has no state, the capture waits for one.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use sequor_core::Id;

use crate::model::load::LoadedModel;
use crate::model::sequences::jobs::{ActiveCapture, CaptureNews};
use crate::model::sequences::scheduler::ModelScheduler;
use crate::state::{CapturedStep, with_steps};

use super::state_transfer::{AGAIN, TransferError, snapshot};

/// Maximum number of steps in the channel. A step that does not fit leaves a gap, and the state is copied again.
const WAITING: usize = 1024;

/// The limits of a capture. The first one that is reached ends it. An END ends it, too.
#[derive(Debug, Clone, Copy)]
pub struct CaptureLimits {
    pub steps: usize,
    /// Maximum bytes of the states, inputs and outputs.
    pub bytes: u64,
    /// How long to wait for the steps.
    pub wait: Duration,
}

/// A state, and the steps that followed without a gap.
struct CaptureState {
    /// The last step that is contained or has failed.
    last: u64,
    /// Whether that step has failed. A client that numbers its steps sends it again.
    has_failed: bool,
    file: Vec<u8>,
    steps: Vec<CapturedStep>,
}

impl CaptureState {
    /// Adds a step. Returns the reason if the capture ends with it. The error gives back a step that is not the next one.
    fn take(&mut self, step: CapturedStep) -> Result<Option<&'static str>, CapturedStep> {
        if !step.start && !self.comes_next(step.number) {
            return Err(step);
        }
        (self.last, self.has_failed) = (step.number, false);
        let ended = step.end.then_some("end");
        self.steps.push(step);
        Ok(ended)
    }

    /// Adds a START that has failed. The sequence continues with its first state. A client that numbers its steps sends the START again.
    fn fail_start(&mut self, step: CapturedStep) {
        (self.last, self.has_failed) = (step.number, true);
        self.steps.push(step);
    }

    /// Records that a step has failed and changed nothing.
    fn fail(&mut self, number: u64) {
        if self.comes_next(number) {
            (self.last, self.has_failed) = (number, true);
        }
    }

    fn comes_next(&self, number: u64) -> bool {
        number == self.last + 1 || (self.has_failed && number == self.last)
    }

    fn bytes(&self) -> u64 {
        self.file.len() as u64 + self.steps.iter().map(CapturedStep::bytes).sum::<u64>()
    }
}

/// Captures a live sequence of this load. Blocks until its steps have run, so no connection's thread may call it. `digest` is that of the
/// load's files.
pub(in crate::model) fn capture(
    model: &ModelScheduler,
    load: &LoadedModel,
    id: &Id,
    digest: &str,
    limits: CaptureLimits,
) -> Result<Vec<u8>, TransferError> {
    let name = &model.name;
    let (sender, receiver) = sync_channel(WAITING);
    let until = Instant::now() + limits.wait;
    let capture = ActiveCapture::new(id.clone(), load.key, limits.bytes, sender);
    let Some(guard) = model.captures.begin(capture) else {
        return Err(TransferError::Busy { model: name.clone() });
    };
    let state_now = || state_now(model, load, id, &guard.active, (limits, until));
    // The steps captured so far have no gap. So they are kept if there is no new state to begin with.
    let anew = |taken: &CaptureState| {
        guard.active.gives_back(taken.bytes());
        match state_now() {
            Err(TransferError::NoState { .. }) if !taken.steps.is_empty() => Ok(None),
            state => state.map(Some),
        }
    };
    let mut taken = state_now()?;
    let mut ended = loop {
        if taken.steps.len() >= limits.steps {
            break "steps";
        }
        match next(&receiver, until) {
            None => break "wait",
            Some(CaptureNews::TooLarge) => break "bytes",
            Some(CaptureNews::Failed(number)) => taken.fail(number),
            Some(CaptureNews::FailedStart(step)) => taken.fail_start(step),
            Some(CaptureNews::NewState) => match anew(&taken)? {
                Some(state) => taken = state,
                None => break "wait",
            },
            Some(CaptureNews::Step(step)) => match taken.take(step) {
                Ok(None) => {}
                Ok(Some(ended)) => break ended,
                Err(step) => {
                    guard.active.gives_back(step.bytes());
                    if step.number > taken.last {
                        match anew(&taken)? {
                            Some(state) => taken = state,
                            None => break "wait",
                        }
                    }
                }
            },
        }
    };
    // Steps that were recorded before the state may not fit beside it.
    while taken.bytes() > limits.bytes && taken.steps.pop().is_some() {
        ended = "bytes";
    }
    Ok(with_steps(&taken.file, id, (digest, ended), &taken.steps)?)
}

fn next(receiver: &Receiver<CaptureNews>, until: Instant) -> Option<CaptureNews> {
    receiver.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

/// Copies the present state, with no step beyond it. If the sequence has no state yet, waits until its first run has ended.
fn state_now(
    model: &ModelScheduler,
    load: &LoadedModel,
    id: &Id,
    active: &ActiveCapture,
    (limits, until): (CaptureLimits, Instant),
) -> Result<CaptureState, TransferError> {
    let (last, file) = loop {
        match snapshot(model, id, Some(load.version)) {
            Err(TransferError::NoState { .. }) if Instant::now() < until => std::thread::sleep(AGAIN),
            state => break state?,
        }
    };
    let bytes = file.len() as u64;
    if bytes > limits.bytes {
        return Err(TransferError::TooLarge { model: model.name.clone(), id: id.clone(), bytes, limit: limits.bytes });
    }
    active.holds(bytes);
    Ok(CaptureState { last, has_failed: false, file, steps: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u64, start: bool, end: bool) -> CapturedStep {
        CapturedStep { number, start, end, refused: false, inputs: Vec::new(), outputs: Vec::new() }
    }

    #[test]
    fn captured_steps_have_no_gap_and_a_start_restarts_their_numbers() {
        let mut taken = CaptureState { last: 7, has_failed: false, file: vec![0; 3], steps: Vec::new() };
        assert_eq!(taken.take(step(7, false, false)), Err(step(7, false, false)), "the state contains it");
        assert_eq!(taken.take(step(9, false, false)), Err(step(9, false, false)), "8 is missing");
        assert_eq!(taken.take(step(8, false, false)), Ok(None));
        assert_eq!(taken.take(step(1, true, false)), Ok(None));
        assert_eq!(taken.take(step(2, false, true)), Ok(Some("end")));
        assert_eq!((taken.last, taken.steps.len(), taken.bytes()), (2, 3, 3));
    }

    #[test]
    fn a_capture_continues_after_a_failed_step_with_its_repeat_or_the_next() {
        for again in [8, 9] {
            let mut taken = CaptureState { last: 7, has_failed: false, file: Vec::new(), steps: Vec::new() };
            taken.fail(8);
            assert_eq!(taken.take(step(7, false, false)), Err(step(7, false, false)));
            assert_eq!(taken.take(step(again, false, false)), Ok(None));
            assert_eq!(taken.take(step(again, false, false)), Err(step(again, false, false)));
            assert_eq!(taken.take(step(again + 1, false, false)), Ok(None));
        }
        let mut taken = CaptureState { last: 7, has_failed: false, file: Vec::new(), steps: Vec::new() };
        taken.fail_start(step(1, true, false));
        assert_eq!(taken.take(step(1, true, false)), Ok(None), "it comes again");
        taken.fail_start(step(1, true, false));
        assert_eq!(taken.take(step(2, false, false)), Ok(None), "it goes on with the first state");
        assert_eq!(taken.steps.len(), 4);
        let mut taken = CaptureState { last: 7, has_failed: false, file: Vec::new(), steps: Vec::new() };
        taken.fail(9);
        assert_eq!(taken.take(step(10, false, false)), Err(step(10, false, false)), "8 is missing");
    }
}
