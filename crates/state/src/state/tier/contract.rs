//! The interface of every tier.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::Id;

use super::error::TierError;
use super::record::{EndedState, StateHead, TierKey};
use super::succession::Successions;

/// A change of the stored data.
#[derive(Debug, Clone)]
pub enum TierChange {
    /// Keep this file in place of the stored one. If the stored one is of a sequence that began later, nothing changes.
    Put { key: TierKey, head: Arc<StateHead>, file: Bytes },
    /// Remove the stored state, unless it is of a sequence that began later.
    Remove { key: TierKey, incarnation: u64 },
    /// Remember how a sequence has ended. The tier remembers only the last ends.
    Remember { key: TierKey, ended: EndedState },
    /// Epochs up to this one are in use. The next server begins after it.
    UseEpochs { until: u64 },
    /// Replace the successions of a model: which versions continue from states of others.
    Succeed { model: String, successions: Successions },
    /// Servers have been running with this tier for this long. `closes`: this server stops, and all its changes are written.
    NoteRunning { until: Duration, closes: bool },
    /// Only for a store that servers share: this server gives up a sequence.
    Release { key: TierKey, left: Released },
}

impl TierChange {
    /// The sequence that it is of.
    pub(super) fn key(&self) -> Option<&TierKey> {
        match self {
            TierChange::Put { key, .. }
            | TierChange::Remove { key, .. }
            | TierChange::Remember { key, .. }
            | TierChange::Release { key, .. } => Some(key),
            TierChange::UseEpochs { .. } | TierChange::Succeed { .. } | TierChange::NoteRunning { .. } => None,
        }
    }
}

/// The rest of a sequence that a server gives up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// Its stored state, from which any server may go on. It expires after this idle time; `None` is no limit.
    Waiting { idle_left: Option<Duration> },
    /// Nothing, because it has ended so, or has not begun. A stored state is removed.
    Nothing { ended: Option<EndedState> },
    /// Its stored state, if the store has one when this is written. If not, nothing, because it has ended so.
    AsStored { ended: Option<EndedState> },
}

/// Total running time of servers with a tier, without the times between them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunningTime {
    /// Until the tier was opened. After a crash, until the last time that is known.
    pub at_open: Duration,
    /// Until the start of the server before this one.
    pub last_began: Duration,
    /// Whether that server was stopped, and did not crash.
    pub last_closed: bool,
}

impl RunningTime {
    /// The idle time of a sequence from the write of its state until the tier was opened. Time in which it may not have been idle does not
    /// count: later steps may have been answered, or one was running when the server crashed.
    pub fn idle_since(&self, head: &StateHead) -> Duration {
        let waited = head.running < self.last_began;
        let since = match (waited, head.behind) {
            (true, false) => head.running,
            (true, true) => self.last_began,
            (false, false) if self.last_closed => head.running,
            (false, _) => self.at_open,
        };
        self.at_open.saturating_sub(since)
    }
}

/// A stored state with the facts about it, if there is one.
pub type FoundState = Result<Option<(Arc<StateHead>, Vec<u8>)>, TierError>;

/// The usage of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierUsage {
    pub states: usize,
    pub bytes: u64,
    /// Maximum bytes.
    pub limit: u64,
}

/// Keeps states by model and sequence id. Confirmed changes survive the end of the process and a power failure.
pub trait Tier: Send + Sync + fmt::Debug {
    /// The stored state of a sequence, with the facts about it. An error if the bytes are not those that were stored.
    fn get(&self, key: &TierKey) -> FoundState;

    /// Makes these changes, in order. When it returns, they are durable, except those that exceed the limit. Returns the places of those.
    fn put_batch(&self, changes: &[TierChange]) -> Result<Vec<usize>, TierError>;

    /// Same as [`Self::put_batch`], with the reason for each change that is not durable, by its place.
    fn put_each(&self, changes: &[TierChange]) -> Result<HashMap<usize, TierError>, TierError> {
        let too_large = self.put_batch(changes)?;
        let full = |place: usize| {
            let TierChange::Put { key, head, .. } = changes.get(place)? else { return None };
            // A state replaces the stored one of its sequence.
            let needed = head.bytes.saturating_sub(self.head(key).map_or(0, |stored| stored.bytes));
            let usage = self.usage();
            Some((place, TierError::Full { needed, used: usage.bytes, limit: usage.limit }))
        };
        Ok(too_large.into_iter().filter_map(full).collect())
    }

    /// Removes the stored state of a sequence, unless it is of a sequence that began later.
    fn remove(&self, key: &TierKey, incarnation: u64) -> Result<(), TierError> {
        self.put_batch(&[TierChange::Remove { key: key.clone(), incarnation }]).map(drop)
    }

    /// Takes the stored state of a sequence out of the tier, so that nothing else continues from it.
    fn claim(&self, key: &TierKey) -> FoundState {
        let found = self.get(key)?;
        if let Some((head, _)) = &found {
            self.remove(key, head.incarnation)?;
        }
        Ok(found)
    }

    /// Whether this stored state is of a sequence here with this incarnation.
    fn is_of(&self, _: &TierKey, head: &StateHead, incarnation: u64) -> bool {
        head.incarnation == incarnation
    }

    /// The facts about the stored state of a sequence. Does not wait for the disk.
    fn head(&self, key: &TierKey) -> Option<Arc<StateHead>>;

    /// The facts about the stored state of a sequence, if any. `None` if the tier does not know what it has, because a write of the sequence
    /// failed and may have been done all the same. Then [`Self::look`] finds out. Does not wait for the disk.
    fn known(&self, key: &TierKey) -> Option<Option<Arc<StateHead>>> {
        Some(self.head(key))
    }

    /// Reads the facts about the stored state of a sequence, if the tier does not know what it has. After that, an earlier write of the
    /// sequence changes nothing any more. The file is not read.
    fn look(&self, key: &TierKey) -> Result<Option<Arc<StateHead>>, TierError> {
        Ok(self.head(key))
    }

    /// Whether there may be a stored state of this sequence, or of one that began earlier. Does not wait for the disk.
    fn may_have(&self, key: &TierKey, incarnation: u64) -> bool {
        self.head(key).is_some_and(|head| head.incarnation <= incarnation)
    }

    /// The stored sequences of a model. Reads no state.
    fn list(&self, model: &str) -> Vec<(Id, Arc<StateHead>)>;

    /// The sequences of a model that had ended when the tier was opened, the last end of each id, in the order of their ends. Each is listed once.
    fn take_ended(&self, model: &str) -> Vec<(Id, EndedState)>;

    /// The successions of a model: which versions continue from states of others. Does not wait for the disk.
    fn successions(&self, model: &str) -> Successions;

    /// Total running time of servers with this tier.
    fn running_time(&self) -> RunningTime;

    /// Free bytes of the file system of the tier, if it has one.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// The present usage. Does not wait for the disk.
    fn usage(&self) -> TierUsage;

    /// An epoch that is larger than all earlier ones in use, and at least `least`.
    fn next_epoch(&self, least: u64) -> Result<u64, TierError>;

    /// Releases its resources. The tier is not used after that.
    fn close(&self);
}
