//! Upper limits on the size of one model, above any configuration.

/// Each instance is a thread, and each slot is memory that one sequence may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum instances (`limits.instances`).
    pub instances: u32,
    /// Maximum slots of all instances together (`limits.slots`).
    pub slots: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { instances: 256, slots: 1 << 18 }
    }
}
