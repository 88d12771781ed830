//! Counters of exported and lost spans. `names` names the metrics.

use super::kinds::Counter;

/// Why spans were not exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanLoss {
    /// The exporter could not keep up.
    QueueFull,
    /// The collector did not answer, or refused the export.
    Collector,
}

impl SpanLoss {
    pub const ALL: [SpanLoss; 2] = [SpanLoss::QueueFull, SpanLoss::Collector];

    pub const fn name(self) -> &'static str {
        match self {
            SpanLoss::QueueFull => "queue_full",
            SpanLoss::Collector => "collector",
        }
    }
}

/// Counts spans. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct SpanCounters {
    pub(super) exported: Counter,
    pub(super) dropped: [Counter; SpanLoss::ALL.len()],
}

impl SpanCounters {
    pub fn exported(&self, spans: u64) {
        self.exported.add(spans);
    }

    pub fn dropped(&self, why: SpanLoss, spans: u64) {
        if let Some(counter) = self.dropped.get(why as usize) {
            counter.add(spans);
        }
    }
}
