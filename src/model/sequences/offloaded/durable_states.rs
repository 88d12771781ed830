//! What the store has of live sequences, and the rows of a batch whose states it is to get.

use sequor_core::{Id, Req};

use crate::model::load::LoadDurability;
use crate::state::StateCopy;

/// A row whose state is to be made durable before its answer leaves.
#[derive(Debug)]
pub(in crate::model) struct RowToSeal {
    pub(in crate::model) req: Req,
    pub(in crate::model) end: bool,
    /// A row that ran nothing has none: its state is as it was.
    pub(in crate::model) copy: Option<StateCopy>,
}

/// What the store has of a live sequence whose states are written while it lives.
#[derive(Debug)]
pub(in crate::model::sequences) struct WrittenSequence {
    pub(in crate::model::sequences) id: Id,
    /// Which sequence of its id it is.
    pub(in crate::model::sequences) incarnation: u64,
    /// Steps between two writes that answers do not wait for.
    pub(in crate::model::sequences) interval: Option<u64>,
    /// The last step whose state is durable; 0 if none is.
    pub(in crate::model::sequences) durable: u64,
    /// Whether a state of this life was handed to the store.
    pub(in crate::model::sequences) has_state: bool,
    /// Whether the store may have a state of the life before, which the next write has to replace before it is answered.
    pub(in crate::model::sequences) is_stale: bool,
    /// Answers without a run that leave once the store has what their requests left.
    pub(in crate::model::sequences) replies: u32,
}

impl WrittenSequence {
    /// A sequence that begins, or goes on from a state of this number and step.
    pub(in crate::model::sequences) fn new(
        durable: &LoadDurability,
        id: Id,
        resumed: Option<(u64, u64)>,
    ) -> WrittenSequence {
        let (incarnation, step) = resumed.unwrap_or_else(|| (durable.store.next_incarnation(), 0));
        let (interval, has_state) = (durable.interval(), resumed.is_some());
        WrittenSequence { id, incarnation, interval, durable: step, has_state, is_stale: false, replies: 0 }
    }

    /// A START came on the live id.
    pub(in crate::model::sequences) fn begin_anew(&mut self) {
        self.is_stale |= self.has_state;
        (self.durable, self.has_state) = (0, false);
    }

    /// The last step that is durable, where answers do not wait for theirs.
    pub(in crate::model::sequences) fn behind(&self) -> Option<u64> {
        self.interval.map(|_| self.durable)
    }
}
