//! Owed changes: changes that could not be written and that no request makes again.
//!
//! - A failed change is owed if its subject is over in memory: the removal of an ended sequence, an end, the successions, epochs in use. A
//!   state is not owed: its sequence has ended, or its next step writes the state. A change that follows a reading is not owed either: its
//!   request fails, and the sequence is as before. Nor is the removal for an END whose answer waits for it, with the end: the sequence may go
//!   on. If the removal is durable and only the end failed, the end is owed.
//! - Only the last change of each subject is owed. A later change of the subject replaces it, even if the later one is durable. So a handover
//!   that was withdrawn is not written afterwards.
//! - Owed changes have commits of their own, so nothing else fails with them.
//! - They are tried after a wait that doubles with each failure. Other commits do not change the wait.
//! - A failed attempt is halved, until the faulty change is alone. That one then waits until all others had their turn. After a success the
//!   next attempt follows at once, with twice as many changes. So neither a bad page nor a disk with little room holds up changes that can be
//!   written.
//! - When the store closes, they are tried once more. Changes that fail then are lost: the next server finds the states of ended sequences.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::time::{Duration, Instant};

use super::contract::{Tier, TierChange};
use super::error::TierError;

/// The waits of the writer before it tries owed changes: the first, and the longest.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryWaits {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

/// Maximum number of changes in one attempt.
const PORTION: usize = 64;
/// Maximum number of failed attempts when the writer ends: enough to find a single faulty change.
const LAST_FAILURES: usize = 24;
/// Maximum number of owed ends. Only the text of a refusal depends on an end.
const ENDS: usize = 4096;

/// The subject of a change. Sequences are named by their encoded keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Epochs,
    Running,
    Successions(String),
    State(Vec<u8>),
    End(Vec<u8>),
    Ownership(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct OwedChanges {
    changes: BTreeMap<Subject, TierChange>,
    /// Number of owed ends.
    ends: usize,
    waits: RetryWaits,
    /// The wait before the next attempt, and when that is due.
    wait: Duration,
    due: Instant,
    /// Maximum number of changes in the next attempt. It begins after `after`.
    portion: usize,
    after: Option<Subject>,
}

impl Default for RetryWaits {
    fn default() -> Self {
        RetryWaits { first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

impl Subject {
    fn of(change: &TierChange) -> Subject {
        match change {
            TierChange::UseEpochs { .. } => Subject::Epochs,
            TierChange::NoteRunning { .. } => Subject::Running,
            TierChange::Succeed { model, .. } => Subject::Successions(model.clone()),
            TierChange::Put { key, .. } | TierChange::Remove { key, .. } => Subject::State(key.encode()),
            TierChange::Remember { key, .. } => Subject::End(key.encode()),
            TierChange::Release { key, .. } => Subject::Ownership(key.encode()),
        }
    }
}

impl OwedChanges {
    pub(super) fn new(waits: RetryWaits) -> OwedChanges {
        let (changes, wait, due) = (BTreeMap::new(), waits.first, Instant::now());
        OwedChanges { changes, ends: 0, waits, wait, due, portion: PORTION, after: None }
    }

    /// The time until the next attempt. `None` if nothing is owed.
    pub(super) fn due_in(&self) -> Option<Duration> {
        (!self.changes.is_empty()).then(|| self.due.saturating_duration_since(Instant::now()))
    }

    /// Adds a change that failed.
    pub(super) fn add(&mut self, tier: &dyn Tier, change: TierChange) {
        let is_end = matches!(change, TierChange::Remember { .. });
        if !is_left(tier, &change) || (is_end && self.ends >= ENDS) {
            return;
        }
        if self.changes.is_empty() {
            (self.wait, self.due) = (self.waits.first, Instant::now() + self.waits.first);
            self.portion = PORTION;
        }
        let before = self.changes.insert(Subject::of(&change), change);
        self.ends += usize::from(is_end && before.is_none());
    }

    /// Removes the owed change of the same subject, because a later change is durable.
    pub(super) fn replaced_by(&mut self, change: &TierChange) {
        if !self.changes.is_empty() {
            self.remove(&Subject::of(change));
        }
    }

    fn remove(&mut self, subject: &Subject) {
        let removed = self.changes.remove(subject);
        self.ends -= usize::from(matches!(removed, Some(TierChange::Remember { .. })));
    }

    /// The owed removal of the state of a sequence, by its encoded key.
    pub(super) fn removal(&self, key: Vec<u8>) -> Option<&TierChange> {
        self.changes.get(&Subject::State(key))
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Tries a portion of the changes, if it is due. Returns the outcome.
    pub(super) fn try_due(&mut self, tier: &dyn Tier) -> Option<Result<(), TierError>> {
        if self.due_in() != Some(Duration::ZERO) {
            return None;
        }
        let subjects = self.next_portion();
        let outcome = self.write(tier, &subjects);
        match &outcome {
            Ok(()) => {
                (self.wait, self.due) = (self.waits.first, Instant::now());
                self.portion = (2 * self.portion).min(PORTION);
            }
            Err(error) => {
                let (owed, wait) = (self.changes.len(), (2 * self.wait).min(self.waits.longest));
                tracing::warn!(%error, owed, ?wait, "what the store could not write is not written yet; it tries again");
                (self.wait, self.due) = (wait, Instant::now() + wait);
                self.portion = (subjects.len() / 2).max(1);
                if let [alone] = &subjects[..] {
                    self.after = Some(alone.clone());
                }
            }
        }
        Some(outcome)
    }

    /// Tries all once more when the writer ends. A failed attempt is halved here, too.
    pub(super) fn try_last(&mut self, tier: &dyn Tier) {
        let (mut parts, mut failures) = (vec![self.changes.keys().cloned().collect::<Vec<_>>()], 0);
        let mut last = None;
        while let Some(mut part) = parts.pop() {
            let Err(error) = self.write(tier, &part) else { continue };
            failures += 1;
            if part.len() > 1 && failures < LAST_FAILURES {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            } else {
                last = Some(error);
            }
        }
        if let Some(error) = last {
            let changes = self.changes.len();
            tracing::error!(%error, changes, "the store closes, and these changes are not written: ended sequences may come back after the restart");
        }
    }

    /// The subjects of the next attempt: those after the last one that failed alone, and then from the first one on.
    fn next_portion(&self) -> Vec<Subject> {
        let from = self.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.changes.range((from, Bound::Unbounded)).map(|(subject, _)| subject);
        let rest = self.changes.keys().take_while(|subject| self.after.as_ref().is_some_and(|after| *subject <= after));
        behind.chain(rest).take(self.portion).cloned().collect()
    }

    /// Writes these in one commit. Those that are durable or no longer needed are owed no more.
    fn write(&mut self, tier: &dyn Tier, subjects: &[Subject]) -> Result<(), TierError> {
        let needed = subjects.iter().filter_map(|subject| self.changes.get_key_value(subject));
        let needed = needed.filter(|(_, change)| is_left(tier, change));
        let (places, changes): (Vec<Subject>, Vec<TierChange>) = needed.map(|(of, c)| (of.clone(), c.clone())).unzip();
        let mut failed = if changes.is_empty() { HashMap::new() } else { tier.put_each(&changes)? };
        // Another server has the sequence now, and its change is not ours any more.
        failed.retain(|_, error| *error != TierError::Fenced);
        let left: BTreeSet<&Subject> = failed.keys().filter_map(|place| places.get(*place)).collect();
        subjects.iter().filter(|subject| !left.contains(subject)).for_each(|subject| self.remove(subject));
        failed.into_values().next().map_or(Ok(()), Err)
    }
}

/// Whether a change must still be made. A removal is not needed if the state is gone, or is of a later sequence.
fn is_left(tier: &dyn Tier, change: &TierChange) -> bool {
    match change {
        TierChange::Remove { key, incarnation } => tier.may_have(key, *incarnation),
        _ => true,
    }
}
