//! Writes changes again whose commit has failed, in ever smaller commits, so that only those fail that cannot be written.
//!
//! - A failed commit is halved, until a change that cannot be written is alone. All changes of one sequence stay together, in their order.
//! - A store that takes nothing at all is not asked again and again: after some failures without a success the rest fails, too. From then on
//!   failed commits are not halved until the store has taken one.

use std::collections::{HashMap, VecDeque};

use super::contract::{Tier, TierChange};
use super::error::TierError;

/// Failures without a success after which the rest fails: the whole, its halves and its quarters.
const IN_VAIN: usize = 7;
/// Maximum number of failures: enough to find two changes among thousands.
const FAILURES: usize = 32;

/// The facts about a store that its failed commits show.
#[derive(Debug, Default)]
pub(super) struct SmallerCommits {
    /// Whether the store took nothing of the last commit that was halved.
    takes_nothing: bool,
}

/// Places of changes that are written together: those of one sequence, or a single one.
type ChangeGroup = Vec<usize>;

impl SmallerCommits {
    /// The store has taken a commit.
    pub(super) fn succeeded(&mut self) {
        self.takes_nothing = false;
    }

    /// Writes the changes at these places. The commit of all `changes` has failed, so all are in `failed`; those that are durable now are
    /// removed from it.
    pub(super) fn write(
        &mut self,
        tier: &dyn Tier,
        changes: &[TierChange],
        places: Vec<usize>,
        failed: &mut HashMap<usize, TierError>,
    ) {
        let is_whole = places.len() == changes.len();
        let groups = groups(changes, places);
        let mut parts = VecDeque::new();
        match is_whole {
            // It has failed already.
            true if self.takes_nothing => {}
            true => parts.extend(halves(groups)),
            false => parts.push_back(groups),
        }
        let (mut failures, mut has_written) = (1, false);
        while let Some(part) = parts.pop_front().filter(|part| !part.is_empty()) {
            match write_part(tier, changes, &part, failed) {
                Ok(()) => {
                    has_written = true;
                    self.takes_nothing = false;
                }
                Err(TierError::Closed) => return,
                Err(_) => {
                    failures += 1;
                    if !has_written && failures >= IN_VAIN {
                        self.takes_nothing = true;
                    }
                    if failures >= FAILURES || self.takes_nothing {
                        return;
                    }
                    parts.extend(halves(part));
                }
            }
        }
    }
}

/// The places by sequence.
fn groups(changes: &[TierChange], places: Vec<usize>) -> Vec<ChangeGroup> {
    let (mut groups, mut of_sequence): (Vec<ChangeGroup>, HashMap<_, usize>) = (Vec::new(), HashMap::new());
    for place in places {
        let known =
            changes.get(place).and_then(TierChange::key).map(|key| *of_sequence.entry(key).or_insert(groups.len()));
        match known.and_then(|n| groups.get_mut(n)) {
            Some(group) => group.push(place),
            None => groups.push(vec![place]),
        }
    }
    groups
}

/// The two halves; none if it is a single group.
fn halves(mut part: Vec<ChangeGroup>) -> Vec<Vec<ChangeGroup>> {
    if part.len() < 2 {
        return Vec::new();
    }
    let second = part.split_off(part.len() / 2);
    vec![part, second]
}

/// Makes the changes of these groups in one commit.
fn write_part(
    tier: &dyn Tier,
    changes: &[TierChange],
    part: &[ChangeGroup],
    failed: &mut HashMap<usize, TierError>,
) -> Result<(), TierError> {
    let places: Vec<usize> = part.iter().flatten().copied().collect();
    let of_part: Vec<TierChange> = places.iter().filter_map(|place| changes.get(*place).cloned()).collect();
    let mut alone = tier.put_each(&of_part).inspect_err(|error| {
        // The reason of its last attempt.
        failed.extend(places.iter().map(|place| (*place, error.clone())));
    })?;
    for (n, place) in places.into_iter().enumerate() {
        match alone.remove(&n) {
            Some(error) => failed.insert(place, error),
            None => failed.remove(&place),
        };
    }
    Ok(())
}
