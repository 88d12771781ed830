//! The metrics of the store of durable sequences. `names` names them.

use super::kinds::{Counter, Gauge};

/// Usage of the store.
#[derive(Debug)]
pub(super) struct StoreGauges {
    pub(super) sequences: Gauge,
    pub(super) bytes: Gauge,
    pub(super) limit: Gauge,
    pub(super) free: Gauge,
}

impl StoreGauges {
    pub(super) fn set(&self, sequences: usize, bytes: u64, limit: u64, free: Option<u64>) {
        self.sequences.set(i64::try_from(sequences).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
        self.free.set(free.and_then(|free| i64::try_from(free).ok()).unwrap_or(i64::MAX));
    }
}

/// The figures of a server that shares the store with others.
#[derive(Debug, Clone, Copy, Default)]
pub struct SharedFigures {
    /// Sequences that it owns.
    pub sequences: usize,
    pub has_lease: bool,
    /// Sequences that it has taken over or begun, those of them that another server had, and those that it has given up.
    pub claimed: u64,
    pub taken_over: u64,
    pub given_up: u64,
    /// Writes that came after another server had taken the sequence over.
    pub fenced: u64,
    /// How often its lease ended.
    pub lapsed: u64,
}

#[derive(Debug)]
pub(super) struct SharedMetrics {
    pub(super) sequences: Gauge,
    pub(super) lease: Gauge,
    pub(super) claimed: Counter,
    pub(super) taken_over: Counter,
    pub(super) given_up: Counter,
    pub(super) fenced: Counter,
    pub(super) lapsed: Counter,
}

impl SharedMetrics {
    pub(super) fn set(&self, figures: SharedFigures) {
        self.sequences.set(i64::try_from(figures.sequences).unwrap_or(i64::MAX));
        self.lease.set(i64::from(figures.has_lease));
        self.claimed.raise_to(figures.claimed);
        self.taken_over.raise_to(figures.taken_over);
        self.given_up.raise_to(figures.given_up);
        self.fenced.raise_to(figures.fenced);
        self.lapsed.raise_to(figures.lapsed);
    }
}
