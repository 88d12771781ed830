//! Gauges of the store that keeps sequences beyond the process. No metric is named here.

use super::kinds::Gauge;

/// How full the store is.
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
