//! What a failed commit leaves to do: changes about what is over in memory already, so that no request comes for them again. The next commit begins with
//! them. A state that could not be written is not among them: its sequence has ended, or is written with its next step.

use std::collections::HashSet;
use std::time::Duration;

use super::contract::{Tier, TierChange};

/// How long the writer waits before it tries again by itself. Each failure in a row doubles that.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Ends that are remembered over failures. What they tell is one sentence.
const ENDS: usize = 4096;

#[derive(Debug)]
pub(super) struct OwedChanges {
    changes: Vec<TierChange>,
    wait: Duration,
}

impl Default for OwedChanges {
    fn default() -> Self {
        OwedChanges { changes: Vec::new(), wait: FIRST_WAIT }
    }
}

impl OwedChanges {
    /// How long to wait for other changes that they could be written with. `None`: there are none.
    pub(super) fn wait(&self) -> Option<Duration> {
        (!self.changes.is_empty()).then_some(self.wait)
    }

    /// Hands them out, to begin a commit with.
    pub(super) fn take(&mut self) -> Vec<TierChange> {
        std::mem::take(&mut self.changes)
    }

    /// That commit is durable.
    pub(super) fn written(&mut self) {
        self.wait = FIRST_WAIT;
    }

    /// That commit failed. Keeps what is still to be done of it, but for the removals at the places in `undone`, whose states stay in use.
    pub(super) fn failed(&mut self, tier: &dyn Tier, changes: Vec<TierChange>, undone: &HashSet<usize>) {
        self.wait = (2 * self.wait).min(LONGEST_WAIT);
        let (mut keys, mut models, mut has_epoch, mut ends) = (HashSet::new(), HashSet::new(), false, 0);
        let mut is_owed = |(place, change): &(usize, TierChange)| match change {
            TierChange::Put { .. } | TierChange::NoteRunning { .. } => false,
            TierChange::Remove { key, incarnation } => {
                let is_stored = tier.head(key).is_some_and(|head| head.incarnation <= *incarnation);
                is_stored && !undone.contains(place) && keys.insert(key.clone())
            }
            TierChange::Succeed { model, .. } => models.insert(model.clone()),
            // The last one names the most.
            TierChange::UseEpochs { .. } => !std::mem::replace(&mut has_epoch, true),
            TierChange::Remember { .. } => {
                ends += 1;
                ends <= ENDS
            }
        };
        // The last change of a key counts.
        let mut owed: Vec<_> = changes.into_iter().enumerate().rev().filter(|of| is_owed(of)).collect();
        owed.reverse();
        self.changes = owed.into_iter().map(|(_, change)| change).collect();
    }
}
