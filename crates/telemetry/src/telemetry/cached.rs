//! Counters of the response cache. `names` names the metrics.

use std::time::Duration;

use super::kinds::{Counter, Gauge, Micros, nanos};

/// Counters of the lookups of one model version.
#[derive(Debug, Clone, Default)]
pub(super) struct CacheLookups {
    pub(super) hits: Counter,
    pub(super) misses: Counter,
    pub(super) hit_time: Micros,
    pub(super) miss_time: Micros,
    /// The same two counters under Sequor's own name: hits, misses.
    pub(super) results: [Counter; 2],
}

impl CacheLookups {
    pub(super) fn hit(&self, took: Duration) {
        self.hits.add(1);
        self.hit_time.add(nanos(took));
        let [hits, _] = &self.results;
        hits.add(1);
    }

    pub(super) fn missed(&self, took: Duration) {
        self.misses.add(1);
        self.miss_time.add(nanos(took));
        let [_, misses] = &self.results;
        misses.add(1);
    }
}

/// Usage of the server's response cache.
#[derive(Debug, Clone, Default)]
pub struct CacheUsage {
    pub(super) bytes: Gauge,
    pub(super) evictions: Counter,
}

impl CacheUsage {
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts an answer that was evicted.
    pub fn evicted(&self) {
        self.evictions.add(1);
    }

    /// Number of evicted answers.
    pub fn evictions(&self) -> u64 {
        self.evictions.get()
    }
}
