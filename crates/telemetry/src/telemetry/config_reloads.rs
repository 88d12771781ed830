//! Counters of reloads of the configuration. `names` names the metrics.

use super::kinds::{Counter, Gauge};

/// The outcome of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The settings in force are those of the file, except those that wait for a restart.
    Applied,
    /// Nothing has changed.
    Refused,
}

impl ReloadOutcome {
    pub const ALL: [ReloadOutcome; 2] = [ReloadOutcome::Applied, ReloadOutcome::Refused];

    pub const fn name(self) -> &'static str {
        match self {
            ReloadOutcome::Applied => "applied",
            ReloadOutcome::Refused => "refused",
        }
    }
}

/// Counts reloads. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct ReloadMetrics {
    pub(super) reloads: [Counter; ReloadOutcome::ALL.len()],
    pub(super) last_successful: Gauge,
    pub(super) pending: Gauge,
}

impl ReloadMetrics {
    /// Counts a reload that was applied, after which so many settings wait for a restart.
    pub fn applied(&self, pending: usize) {
        self.count(ReloadOutcome::Applied);
        self.pending.set(i64::try_from(pending).unwrap_or(i64::MAX));
    }

    pub fn refused(&self) {
        self.count(ReloadOutcome::Refused);
    }

    fn count(&self, outcome: ReloadOutcome) {
        if let Some(counter) = self.reloads.get(outcome as usize) {
            counter.add(1);
        }
        self.last_successful.set(i64::from(outcome == ReloadOutcome::Applied));
    }
}
