//! The lists of the idle sequences of a load. `idle` keeps them.

use crate::list::List;

/// Sequences with a slot and no request, longest idle first.
#[derive(Debug, Default)]
pub(crate) struct IdleSequences {
    pub(crate) free: List,
    pub(crate) held: List,
    /// Number of entries so far. Each sequence has the number of its last one.
    pub(crate) entries: u64,
}

impl IdleSequences {
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty() && self.held.is_empty()
    }
}
