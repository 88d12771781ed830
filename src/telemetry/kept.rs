//! Counters of states that initializers keep. No metric is named here.

use super::kinds::{Counter, Gauge};

/// Counters of the kept states of one model version.
#[derive(Debug, Clone, Default)]
pub struct KeptMetrics {
    pub(super) hits: Counter,
    pub(super) misses: Counter,
    pub(super) evictions: Counter,
    pub(super) bytes: Gauge,
}

impl KeptMetrics {
    /// A START began with kept states.
    pub fn hit(&self) {
        self.hits.add(1);
    }

    /// A START had to run the steps.
    pub fn missed(&self) {
        self.misses.add(1);
    }

    /// States made room for others.
    pub fn evicted(&self) {
        self.evictions.add(1);
    }

    /// So many bytes more are kept, or fewer.
    pub fn add_bytes(&self, bytes: i64) {
        self.bytes.add(bytes);
    }

    /// STARTs that began with kept states, and those that had to run the steps.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }
}
