//! The stored states of live sequences, and the rows of a batch whose states will be stored.

use sequor_core::{Id, Req};

use crate::model::load::LoadDurability;
use crate::state::StateCopy;

/// A row whose state must be made durable before its answer leaves.
#[derive(Debug)]
pub(in crate::model) struct RowToSeal {
    pub(in crate::model) req: Req,
    pub(in crate::model) end: bool,
    /// `None` if the row ran nothing, so that its state is unchanged.
    pub(in crate::model) copy: Option<StateCopy>,
}

/// The stored state of a live sequence whose states are written while it is live.
#[derive(Debug)]
pub(in crate::model::sequences) struct WrittenSequence {
    pub(in crate::model::sequences) id: Id,
    /// The incarnation: which sequence of its id it is.
    pub(in crate::model::sequences) incarnation: u64,
    /// Number of steps between two writes that answers do not wait for.
    pub(in crate::model::sequences) interval: Option<u64>,
    /// The last step whose state is durable; 0 if none is.
    pub(in crate::model::sequences) durable: u64,
    /// Whether a state of this incarnation was handed to the store.
    pub(in crate::model::sequences) has_state: bool,
    /// Whether the store may have a state of the previous incarnation. The next write must replace it before it is answered.
    pub(in crate::model::sequences) is_stale: bool,
    /// Number of answers without a run that leave once the store has the state as of their requests.
    pub(in crate::model::sequences) replies: u32,
    /// Number of states that were handed to the store.
    pub(in crate::model::sequences) writes: u64,
    /// Number of these that were of the sequence before, which a START on the live id has ended.
    pub(in crate::model::sequences) earlier_writes: u64,
}

impl WrittenSequence {
    /// A sequence that begins, or continues from a stored state of this incarnation and step.
    pub(in crate::model::sequences) fn new(
        durable: &LoadDurability,
        id: Id,
        resumed: Option<(u64, u64)>,
    ) -> WrittenSequence {
        let (incarnation, step) = resumed.unwrap_or_else(|| (durable.store.next_incarnation(), 0));
        let (interval, has_state) = (durable.interval(), resumed.is_some());
        let (replies, writes, earlier_writes) = (0, 0, 0);
        let (durable, is_stale) = (step, false);
        WrittenSequence { id, incarnation, interval, durable, has_state, is_stale, replies, writes, earlier_writes }
    }

    /// Records a START on the live id.
    pub(in crate::model::sequences) fn begin_anew(&mut self) {
        self.is_stale |= self.has_state;
        (self.durable, self.has_state) = (0, false);
        self.earlier_writes = self.writes;
    }

    /// Records that a write of this number and step is durable. Does nothing if the sequence has begun anew since.
    pub(in crate::model::sequences) fn confirm(&mut self, write: u64, step: u64) {
        if write > self.earlier_writes {
            // If the state from before a START was removed, no step is durable.
            self.durable = if self.has_state { step } else { 0 };
        }
    }

    /// The last durable step, if answers do not wait for writes.
    pub(in crate::model::sequences) fn behind(&self) -> Option<u64> {
        self.interval.map(|_| self.durable)
    }
}
