//! The last questions of a load. A new version must answer them before it may decide (the dry run).

use std::collections::VecDeque;
use std::time::Duration;

use sequor_core::{Hooks, PolicyAnswer, PolicyQuestion, Round, Time};
use sequor_wasm::call_error::CallError;

use super::guest::{Events, Guest};

const MOST: usize = 16;
/// Minimum time between two kept questions, because each is copied.
const EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Recent {
    rounds: VecDeque<Round>,
    next: Time,
}

impl Recent {
    /// Keeps a copy of this question, unless one was kept just now.
    pub(super) fn keep(&mut self, now: Time, round: &mut Round) {
        if now < self.next {
            return;
        }
        self.next = now + EVERY;
        if self.rounds.len() >= MOST {
            self.rounds.pop_front();
        }
        // The answer is not kept.
        let picks = std::mem::take(&mut round.picks);
        let mut kept = round.clone();
        round.picks = picks;
        kept.news.clear();
        self.rounds.push_back(kept);
    }

    /// The rounds with every column that these hooks want, oldest first.
    pub(super) fn for_hooks(&self, hooks: Hooks) -> Vec<Round> {
        let fits = |round: &&Round| {
            let shown = round.hooks;
            hooks.columns & !shown.columns == 0 && (hooks.numbers, hooks.keys) == (shown.numbers, shown.keys)
        };
        self.rounds.iter().filter(fits).cloned().collect()
    }
}

/// Asks a guest a question, with the events since its last call.
pub(super) fn ask(guest: &mut dyn Guest, round: &mut Round, news: &Events) -> Result<PolicyAnswer, CallError> {
    round.picks.clear();
    match &round.asked {
        PolicyQuestion::Plan(who) => {
            Ok(PolicyAnswer::Plan(Ok(guest.plan(u32::from(who.n), &round.see, news, &mut round.picks)?)))
        }
        PolicyQuestion::Admit { room, victims, .. } => {
            Ok(PolicyAnswer::Admit(Ok(guest.admit(&round.see, room, victims, news)?)))
        }
    }
}
