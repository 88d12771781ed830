//! The state of the load at the time of a question.

/// One question of the server. Has the contract's memory layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Round {
    /// Microseconds on the clock of all columns of times.
    pub now_us: u64,
    /// Microseconds that a full batch takes; 0 until a batch has run.
    pub run_us: u64,
    /// The instance that is free for a batch.
    pub instance: u32,
    /// Maximum number of rows of the batch.
    pub max_batch: u32,
    /// Number of instances that run nothing, this one included.
    pub free_instances: u32,
    /// Number of live sequences.
    pub live: u32,
    /// Number of sequences that wait for a slot.
    pub backlog: u32,
    /// Number of candidates that the columns leave out.
    pub not_shown: u32,
}

impl Default for Round {
    /// For tests: eight rows, one instance.
    fn default() -> Round {
        Round { now_us: 0, run_us: 0, instance: 0, max_batch: 8, free_instances: 1, live: 0, backlog: 0, not_shown: 0 }
    }
}
