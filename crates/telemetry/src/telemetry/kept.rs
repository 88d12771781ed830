//! Counters of kept states. `names` names the metrics.

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
    /// Counts a START that began with kept states.
    pub fn hit(&self) {
        self.hits.add(1);
    }

    /// Counts a START that had to run the steps.
    pub fn missed(&self) {
        self.misses.add(1);
    }

    /// Counts states that were dropped to make room for others.
    pub fn evicted(&self) {
        self.evictions.add(1);
    }

    /// Adds to the bytes of kept states; negative if fewer are kept.
    pub fn add_bytes(&self, bytes: i64) {
        self.bytes.add(bytes);
    }

    /// STARTs that began with kept states, and those that had to run the steps.
    pub fn counts(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }
}
