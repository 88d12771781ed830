//! What a store keeps in memory, and the plan for a batch of changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::state::tier::contract::{RunningTime, TierChange};
use crate::state::tier::record::{EndedState, StateHead, TierKey};
use crate::state::tier::succession::Successions;

/// The facts about all stored states.
#[derive(Default)]
pub(super) struct KeptHeads {
    pub(super) heads: HashMap<TierKey, Arc<StateHead>>,
    /// Keys of commits that have failed. The file may have other heads for them.
    pub(super) unsure: HashSet<TierKey>,
    pub(super) successions: HashMap<String, Successions>,
    pub(super) running: RunningTime,
    /// Bytes of all files.
    pub(super) used: u64,
    pub(super) limit: u64,
    /// Ends that were stored when the store was opened, until their models take them.
    pub(super) ended: Vec<(TierKey, EndedState)>,
    /// The place in the ring for the next end.
    pub(super) next_end: u32,
    pub(super) closed: bool,
}

/// The new state under a key; `None` removes it.
pub(super) type NewState<'a> = Option<(&'a Arc<StateHead>, &'a [u8])>;

/// The plan for a batch of changes: the writes to make, and the facts that hold after it.
pub(super) struct CommitPlan<'a> {
    pub(super) writes: Vec<(&'a TierKey, NewState<'a>)>,
    /// The place in the ring for the next end.
    pub(super) next_end: u32,
    pub(super) ends: Vec<(&'a TierKey, &'a EndedState)>,
    /// Epochs up to this one are in use.
    pub(super) epoch: u64,
    pub(super) successions: Vec<(&'a str, &'a Successions)>,
    /// Total running time of servers, and whether this one stops.
    pub(super) running: Option<(Duration, bool)>,
    pub(super) used: u64,
    pub(super) too_large: Vec<usize>,
}

impl CommitPlan<'_> {
    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        let has_states = !self.writes.is_empty() || !self.ends.is_empty() || !self.successions.is_empty();
        !has_states && self.epoch == 0 && self.running.is_none()
    }
}

impl KeptHeads {
    /// Those of these keys for which the file may have other heads.
    pub(super) fn unsure_of<'a>(&self, keys: impl Iterator<Item = &'a TierKey>) -> Vec<TierKey> {
        if self.unsure.is_empty() {
            return Vec::new();
        }
        keys.filter(|key| self.unsure.contains(*key)).cloned().collect()
    }

    /// Takes over the head that the file has for a key.
    pub(super) fn set_found(&mut self, key: TierKey, head: Option<StateHead>) {
        self.unsure.remove(&key);
        self.used = self.used.saturating_add(head.as_ref().map_or(0, |head| head.bytes));
        let before = match head {
            Some(head) => self.heads.insert(key, Arc::new(head)),
            None => self.heads.remove(&key),
        };
        self.used = self.used.saturating_sub(before.map_or(0, |head| head.bytes));
    }

    /// Plans the writes for these changes. Of several changes of one key, only the last one is written.
    pub(super) fn plan<'a>(&self, changes: &'a [TierChange]) -> CommitPlan<'a> {
        let mut after: HashMap<&TierKey, NewState<'_>> = HashMap::new();
        let (mut ends, mut epoch, mut successions, mut running) = (Vec::new(), 0, Vec::new(), None);
        let (mut used, mut too_large) = (self.used, Vec::new());
        for (n, change) in changes.iter().enumerate() {
            let (key, new, incarnation) = match change {
                TierChange::Put { key, head, file } => (key, Some((head, file.as_ref())), head.incarnation),
                TierChange::Remove { key, incarnation } => (key, None, *incarnation),
                TierChange::Remember { key, ended } => {
                    ends.push((key, ended));
                    continue;
                }
                TierChange::UseEpochs { until } => {
                    epoch = epoch.max(*until);
                    continue;
                }
                TierChange::Succeed { model, successions: of_model } => {
                    successions.push((model.as_str(), of_model));
                    continue;
                }
                TierChange::NoteRunning { until, closes } => {
                    running = Some((*until, *closes));
                    continue;
                }
                // One server has the whole store.
                TierChange::Release { .. } => continue,
            };
            let now = match after.get(key) {
                Some(now) => now.map(|(head, _)| head),
                None => self.heads.get(key),
            };
            if now.is_some_and(|head| head.incarnation > incarnation) || (now.is_none() && new.is_none()) {
                continue;
            }
            let (freed, more) = (now.map_or(0, |head| head.bytes), new.map_or(0, |(head, _)| head.bytes));
            let sum = used.saturating_sub(freed).saturating_add(more);
            // A state that takes no more bytes than before is written even if the limit was lowered.
            if more > freed && sum > self.limit {
                too_large.push(n);
                continue;
            }
            used = sum;
            after.insert(key, new);
        }
        let next_end = self.next_end;
        let writes = after.into_iter().collect();
        CommitPlan { writes, next_end, ends, epoch, successions, running, used, too_large }
    }
}
