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
    /// The properties of the request, as it was accepted.
    pub(in crate::model::sequences) meta: RequestMeta,
}

/// Maximum bytes of files that wait to be written, or an eighth of the state memory if that is less. Further sequences leave once the store
/// has caught up.
const UNWRITTEN: u64 = 64 << 20;

/// Requests that wait for state memory, in order, and the sequences that leave to make room.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct Spilling {
    pub(in crate::model::sequences) waiting: VecDeque<MemoryWait>,
    pub(in crate::model::sequences) leaving: Vec<(Seq, u64)>,
    /// Bytes of the files of sequences that have left, as far as the store does not have them yet.
    pub(in crate::model::sequences) unwritten: Arc<AtomicU64>,
    /// Number of files that the store is about to write.
    pub(in crate::model::sequences) writing: u32,
    /// Sequences whose files the store could not write.
    pub(in crate::model::sequences) failed: Vec<(Id, Arc<StateHead>)>,
    /// Growth of a load's states that found no room. The steps were refused, and clients send them again.
    pub(in crate::model::sequences) growth: Option<(Arc<LoadedModel>, RefusedGrowth)>,
    /// Replaced loads whose idle sequences can wait in the store for a step on the new loads.
    pub(in crate::model::sequences) replaced: Vec<Arc<LoadedModel>>,
    /// No sequence leaves before this time.
    pub(in crate::model::sequences) paused_until: Time,
}

impl Spilling {
    /// Bytes that may leave now, if states may have `limit` bytes.
    pub(in crate::model::sequences) fn may_leave(&self, limit: u64) -> u64 {
        let most = (limit / 8).clamp(1, UNWRITTEN);
        if self.writing == 0 {
            // Without a write in progress, the unwritten files are held by requests that wait here.
            return most;
        }
        most.saturating_sub(self.unwritten.load(Ordering::Acquire))
    }

    /// Bytes that may leave now, always less the files that the store does not have yet.
    pub(in crate::model::sequences) fn room(&self, limit: u64) -> u64 {
        (limit / 8).clamp(1, UNWRITTEN).saturating_sub(self.unwritten.load(Ordering::Acquire))
    }

    /// Whether memory is being freed, or can be freed once the store has written more.
    pub(in crate::model::sequences) fn is_coming(&self, limit: u64) -> bool {
        !self.leaving.is_empty() || (self.writing > 0 && self.may_leave(limit) == 0)
    }
}

/// Growth of states that was refused because there was no memory.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct RefusedGrowth {
    /// The first sequence that was refused. It does not leave to make room for itself.
    pub(in crate::model) seq: Seq,
    /// Bytes by which all refused states together were to grow.
    pub(in crate::model) bytes: u64,
}

#[derive(Debug)]
pub(in crate::model::sequences) struct MemoryWait {
    pub(in crate::model::sequences) req: Req,
    pub(in crate::model::sequences) seq: Option<Seq>,
    pub(in crate::model::sequences) load: Arc<LoadedModel>,
    pub(in crate::model::sequences) wanted: WantedMemory,
}
