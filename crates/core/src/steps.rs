//! Step numbers of clients that count: what is taken, what is repeated, what is missing.

use crate::core::Core;
use crate::event::{Refusal, Submit};
use crate::faults::{Planted, fault};
use crate::request;
use crate::sequence::Sequence;

/// Whether a request repeats the last step that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeated {
    No,
    LastStep,
}

impl Core {
    /// Holds the client's step number, if it gives one, against the sequence's.
    pub(crate) fn step_of(&self, s: &Sequence, submit: &Submit) -> Result<Repeated, Refusal> {
        let Some(step) = submit.step else { return Ok(Repeated::No) };
        // A START begins a new count, unless it can only be the last START once more.
        let repeats_start = step == s.first && s.next_step == step.saturating_add(1);
        if step == s.next_step || (submit.start && !repeats_start) {
            return Ok(Repeated::No);
        }
        if step > s.next_step {
            return Err(Refusal::StepGap { want: s.next_step });
        }
        let current = s.current.and_then(|req| self.reqs.get(req));
        let unanswered =
            current.is_some_and(|r| matches!(r.stage, request::RequestStage::Sealing | request::RequestStage::Posting));
        let unanswered = unanswered && !fault(Planted::ReplayedBeforeAnswered);
        let through = match (s.starts, unanswered) {
            (0, false) => s.step,
            (0, true) => s.step.saturating_sub(1),
            _ => s.first.saturating_sub(1),
        };
        if step > through && (s.current.is_some() || !s.queue.is_empty()) {
            return Err(Refusal::StepBusy { step });
        }
        let kept = step == s.step && s.starts == 0 && !unanswered && s.announced;
        if kept { Ok(Repeated::LastStep) } else { Err(Refusal::StepGone { want: s.next_step }) }
    }
}
