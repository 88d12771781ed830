//! Gauges of the store of durable sequences. `names` names the metrics.

use super::kinds::Gauge;

/// Usage of the store.
#[derive(Debug)]
pub(super) struct StoreGauges {
    pub(super) sequences: Gauge,
    pub(super) bytes: Gauge,
    pub(super) limit: Gauge,
}

impl StoreGauges {
    pub(super) fn set(&self, sequences: usize, bytes: u64, limit: u64) {
        self.sequences.set(i64::try_from(sequences).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
    }
}
