//! What every tier does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::Id;

use super::error::TierError;
use super::record::{EndedState, StateHead, TierKey};
use super::succession::Successions;

/// A change of what is kept.
#[derive(Debug, Clone)]
pub enum TierChange {
    /// Keep this file in place of what is kept under the key. If that is of a sequence that began later, nothing changes.
    Put { key: TierKey, head: Arc<StateHead>, file: Bytes },
    /// Forget what is kept under the key, unless that is of a sequence that began later.
    Remove { key: TierKey, incarnation: u64 },
    /// Remember how a sequence has ended. The tier remembers the last ones only.
    Remember { key: TierKey, ended: EndedState },
    /// Numbers up to this epoch are in use: the next server begins after it.
    UseEpochs { until: u64 },
    /// The versions of a model that go on from states of others, in place of what was known of them.
    Succeed { model: String, successions: Successions },
    /// Servers have been running with this tier for so long. With `closes` this one stops: all that it has done is written.
    NoteRunning { until: Duration, closes: bool },
}

/// How long servers have been running with a tier, without the times between them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunningTime {
    /// Until the tier was opened. After a crash that is the last time that was noted.
    pub at_open: Duration,
    /// Until the server before this one began.
    pub last_began: Duration,
    /// Whether that server was stopped, and did not crash.
    pub last_closed: bool,
}

impl RunningTime {
    /// How long a sequence had been idle when the tier was opened, since its state was written. Time that may not have been idle does not count: steps
    /// after the state may have been answered, or one was running when the server crashed.
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

/// A stored state with what is known of it, if there is one.
pub type FoundState = Result<Option<(Arc<StateHead>, Vec<u8>)>, TierError>;

/// How much a tier keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierUsage {
    pub states: usize,
    pub bytes: u64,
    /// Maximum bytes.
    pub limit: u64,
}

/// Keeps states by model and sequence id. What it has confirmed survives the end of the process, and of the machine's power.
pub trait Tier: Send + Sync + fmt::Debug {
    /// The stored state of a sequence, and what is known of it. The bytes are those that were put, or it is an error.
    fn get(&self, key: &TierKey) -> FoundState;

    /// Makes these changes, in order. When it returns, all are durable but those that exceed the limit. Returns the places of these.
    fn put_batch(&self, changes: &[TierChange]) -> Result<Vec<usize>, TierError>;

    /// Forgets what is kept of a sequence.
    fn remove(&self, key: &TierKey, incarnation: u64) -> Result<(), TierError> {
        self.put_batch(&[TierChange::Remove { key: key.clone(), incarnation }]).map(drop)
    }

    /// Takes the stored state of a sequence out of the tier. After that nothing else goes on from it.
    fn claim(&self, key: &TierKey) -> FoundState {
        let found = self.get(key)?;
        if let Some((head, _)) = &found {
            self.remove(key, head.incarnation)?;
        }
        Ok(found)
    }

    /// The facts about the stored state of a sequence. Does not wait for the disk.
    fn head(&self, key: &TierKey) -> Option<Arc<StateHead>>;

    /// The stored sequences of a model. Reads no state.
    fn list(&self, model: &str) -> Vec<(Id, Arc<StateHead>)>;

    /// The sequences of a model that had ended when the tier was opened, the last end of each id, in the order of their ends. Each is listed once.
    fn take_ended(&self, model: &str) -> Vec<(Id, EndedState)>;

    /// The versions of a model that go on from states of others. Does not wait for the disk.
    fn successions(&self, model: &str) -> Successions;

    /// How long servers have been running with this tier.
    fn running_time(&self) -> RunningTime;

    /// How much is kept now. Does not wait for the disk.
    fn usage(&self) -> TierUsage;

    /// A number that is larger than those of earlier servers and the epochs that they used, and at least `least`.
    fn next_epoch(&self, least: u64) -> Result<u64, TierError>;

    /// Releases what it holds. It is not used after that.
    fn close(&self);
}
