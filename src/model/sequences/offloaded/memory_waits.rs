//! Requests that wait for state memory, and the sequences that leave it for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sequor_core::{Id, Req, RequestMeta, Seq, Time};

use crate::model::load::LoadedModel;
use crate::state::tier::StateHead;

/// State memory that a request waits for.
#[derive(Debug, Clone, Copy)]
pub(in crate::model::sequences) struct WantedMemory {
    pub(in crate::model::sequences) bytes: u64,
    /// As the request was accepted.
    pub(in crate::model::sequences) meta: RequestMeta,
}

/// Maximum bytes of files that wait to be written, which is also an eighth of the state memory. Further sequences leave once the store has caught up.
const UNWRITTEN: u64 = 64 << 20;

/// Requests that wait for state memory, in their order, and the sequences that leave for them.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct Spilling {
    pub(in crate::model::sequences) waiting: VecDeque<MemoryWait>,
    pub(in crate::model::sequences) leaving: Vec<(Seq, u64)>,
    /// Bytes of the files of those that have left and that the store does not have yet.
    pub(in crate::model::sequences) unwritten: Arc<AtomicU64>,
    /// Files that the store is about to write.
    pub(in crate::model::sequences) writing: u32,
    /// Files that it could not write.
    pub(in crate::model::sequences) failed: Vec<(Id, Arc<StateHead>)>,
    /// Growth of a load's states for which there was no room: the steps were refused, and clients send them again.
    pub(in crate::model::sequences) growth: Option<(Arc<LoadedModel>, RefusedGrowth)>,
    /// Loads that others have replaced, and whose sequences can wait in the store for a step on those.
    pub(in crate::model::sequences) replaced: Vec<Arc<LoadedModel>>,
    /// No sequence leaves before this time.
    pub(in crate::model::sequences) paused_until: Time,
}

impl Spilling {
    /// Bytes that may leave now, where states may have `limit` bytes.
    pub(in crate::model::sequences) fn may_leave(&self, limit: u64) -> u64 {
        let most = (limit / 8).clamp(1, UNWRITTEN);
        if self.writing == 0 {
            // Files that are unwritten all the same belong to requests that wait here themselves.
            return most;
        }
        most.saturating_sub(self.unwritten.load(Ordering::Acquire))
    }

    /// The same, less the files that the store does not have yet.
    pub(in crate::model::sequences) fn room(&self, limit: u64) -> u64 {
        (limit / 8).clamp(1, UNWRITTEN).saturating_sub(self.unwritten.load(Ordering::Acquire))
    }

    /// Whether memory comes free, or may come free once the store has written more.
    pub(in crate::model::sequences) fn is_coming(&self, limit: u64) -> bool {
        !self.leaving.is_empty() || (self.writing > 0 && self.may_leave(limit) == 0)
    }
}

/// Growth of states that was refused, for want of memory.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct RefusedGrowth {
    /// The first sequence that was refused. It does not leave to make room for itself.
    pub(in crate::model) seq: Seq,
    /// Bytes by which all of them were to grow.
    pub(in crate::model) bytes: u64,
}

#[derive(Debug)]
pub(in crate::model::sequences) struct MemoryWait {
    pub(in crate::model::sequences) req: Req,
    pub(in crate::model::sequences) seq: Option<Seq>,
    pub(in crate::model::sequences) load: Arc<LoadedModel>,
    pub(in crate::model::sequences) wanted: WantedMemory,
}
