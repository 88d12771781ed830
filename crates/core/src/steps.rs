//! Step numbers of clients that count: which step is taken, repeated or missing.

use crate::core::Core;
use crate::event::{Refusal, Submit};
use crate::faults::{Planted, fault};
use crate::ids::Seq;
use crate::request::RequestStage;
use crate::sequence::Sequence;

/// Whether a request repeats the last step that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeated {
    No,
    LastStep,
}

impl Core {
    /// Compares the client's step number, if it gives one, with the sequence's.
    ///
    /// The next step is taken. A later one leaves a gap and is refused. A step is busy from admission until its answer has left. The last
    /// answered step is repeated. All earlier steps are gone.
    pub(crate) fn step_of(&self, s: &Sequence, submit: &Submit) -> Result<Repeated, Refusal> {
        let Some(step) = submit.step else { return Ok(Repeated::No) };
        // A START begins a new count, unless it repeats the last START.
        let repeats_start = step == s.first && s.next_step == step.saturating_add(1);
        if step == s.next_step || (submit.start && !repeats_start) {
            return Ok(Repeated::No);
        }
        if step > s.next_step {
            return Err(Refusal::StepGap { want: s.next_step });
        }
        let has_answered = self.has_answered(s);
        let answered = match (s.starts, has_answered) {
            (0, true) => s.step,
            (0, false) => s.step.saturating_sub(1),
            // No step of the life that this START begins is answered yet, and none of the previous life is repeated.
            _ => s.first.saturating_sub(1),
        };
        let is_busy = s.current.is_some() || !s.queue.is_empty() || !has_answered;
        if step > answered && is_busy {
            return Err(Refusal::StepBusy { step });
        }
        let is_kept = step == s.step && step >= s.first && s.starts == 0 && has_answered && s.announced;
        if is_kept { Ok(Repeated::LastStep) } else { Err(Refusal::StepGone { want: s.next_step }) }
    }

    /// Whether the answer of the last committed step of a sequence has left.
    pub fn is_answered(&self, seq: Seq) -> bool {
        self.seqs.get(seq).is_some_and(|s| self.has_answered(s))
    }

    /// Whether the answer of its last committed step has left: it waits neither for a stage after the run nor for its turn.
    fn has_answered(&self, s: &Sequence) -> bool {
        let stage = s.current.and_then(|req| self.reqs.get(req)).map(|r| r.stage);
        let is_past_run = matches!(stage, Some(RequestStage::Sealing | RequestStage::Posting));
        let first_turn = self.load(s.load).map_or(0, |load| load.first_turn);
        let awaits_turn = s.turn.is_some_and(|turn| turn >= first_turn);
        let is_past_run = is_past_run && !fault(Planted::ReplayedBeforeAnswered);
        let awaits_turn = awaits_turn && !fault(Planted::ReplayedBeforeItsTurn);
        !is_past_run && !awaits_turn
    }
}
