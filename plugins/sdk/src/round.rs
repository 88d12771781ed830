//! What is so at the time of a question.

/// One question of the server. It lies in memory as the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Round {
    /// Of the clock that all columns are of, in microseconds.
    pub now_us: u64,
    /// The instance that asks.
    pub instance: u32,
    /// Rows the batch may have. [`Round::max_batch`] is the same for lengths.
    pub max_rows: u32,
    /// Instances with nothing to do, the one that asks among them.
    pub free_instances: u32,
    /// Sequences that live.
    pub live: u32,
    /// Sequences that wait for a slot.
    pub backlog: u32,
    /// Candidates beyond those that are shown.
    pub not_shown: u32,
}

impl Round {
    /// Rows the batch may have, as a length: `order.truncate(round.max_batch())`.
    #[must_use]
    pub fn max_batch(&self) -> usize {
        self.max_rows as usize
    }
}

impl Default for Round {
    /// For tests: eight rows, one instance.
    fn default() -> Round {
        Round { now_us: 0, instance: 0, max_rows: 8, free_instances: 1, live: 0, backlog: 0, not_shown: 0 }
    }
}
