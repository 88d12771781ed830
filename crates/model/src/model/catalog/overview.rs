//! The overview of a version for operators: status, usage and statistics.

use std::path::PathBuf;

use sequor_core::Usage;

use crate::model::sequences::usage;
use crate::telemetry::{BatchCost, RequestPhase, Statistics, ended_reason};

use super::entry::{Availability, CatalogEntry, ReadyVersion};
use super::index::{IndexRow, index};
use super::names::Catalog;

/// A version of a model, or a model whose versions are unknown.
#[derive(Debug, Clone)]
pub struct VersionOverview {
    pub index: IndexRow,
    /// The version's scheduling, if it is ready.
    pub ready: Option<ReadyVersion>,
    pub usage: Usage,
    /// Bytes of state that its sequences hold.
    pub state_bytes: u64,
    pub counted: Option<Counted>,
}

/// Statistics of a version since the server started.
#[derive(Debug, Clone)]
pub struct Counted {
    pub statistics: Statistics,
    /// The 99th percentile of the time in the queue, in seconds.
    pub queue_p99: Option<f64>,
    /// The median and the 99th percentile of the time from request to answer, in seconds.
    pub total: Option<(f64, f64)>,
    /// The number of ended sequences by reason. Reasons without a sequence are left out.
    pub ended: Vec<(&'static str, u64)>,
    /// Requests that wait in the queue now.
    pub queued: u64,
    /// The total time of each phase, in seconds.
    pub phase_seconds: Vec<(&'static str, f64)>,
}

impl Counted {
    /// The median and the maximum size of the batches that ran, padding included.
    pub fn batches(&self) -> Option<(u32, u32)> {
        let batches = &self.statistics.batches;
        let half = batches.values().map(|cost: &BatchCost| cost.count).sum::<u64>().div_ceil(2);
        let mut seen = 0;
        let median = batches.iter().find(|(_, cost)| {
            seen += cost.count;
            seen >= half
        });
        Some((*median?.0, *batches.keys().next_back()?))
    }
}

/// Every version of every model in these folders and in the catalog.
pub(in crate::model) fn overview(catalog: &Catalog, directories: &[PathBuf]) -> Vec<VersionOverview> {
    let rows = index(catalog, directories);
    let entries = catalog.entries.read();
    rows.into_iter().map(|row| version(entries.get(&row.model), row)).collect()
}

fn version(entry: Option<&CatalogEntry>, index: IndexRow) -> VersionOverview {
    let blank = VersionOverview { index, ready: None, usage: Usage::default(), state_bytes: 0, counted: None };
    let (Some(entry), Some(number)) = (entry, blank.index.version) else { return blank };
    let ready = match entry.status.as_ref().map(|status| &status.availability) {
        Some(Availability::Ready(versions)) => versions.iter().find(|ready| ready.version == number).cloned(),
        _ => None,
    };
    let Some(model) = &entry.model else { return VersionOverview { ready, ..blank } };
    let (usage, state_bytes) = usage::usage_of(model, number);
    let loads = model.loads();
    let counted = loads.iter().find(|load| load.version == number).map(|load| {
        let metrics = &load.metrics;
        let ended = metrics.sequences_ended().filter(|(_, n)| *n > 0).map(|(why, n)| (ended_reason(why), n));
        Counted {
            statistics: metrics.statistics(),
            queue_p99: metrics.quantile(RequestPhase::Queue, 0.99),
            total: metrics.quantile(RequestPhase::Total, 0.5).zip(metrics.quantile(RequestPhase::Total, 0.99)),
            ended: ended.collect(),
            queued: u64::try_from(metrics.pending()).unwrap_or(0),
            phase_seconds: metrics.phase_seconds().map(|(phase, seconds)| (phase.name(), seconds)).collect(),
        }
    });
    VersionOverview { ready, usage, state_bytes, counted, ..blank }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_median_batch_size_counts_every_batch() {
        let of = |batches: &[(u32, u64)]| {
            let cost = |(rows, count): &(u32, u64)| (*rows, BatchCost { count: *count, ..BatchCost::default() });
            let batches: BTreeMap<u32, BatchCost> = batches.iter().map(cost).collect();
            let statistics = Statistics { batches, ..Statistics::default() };
            let (ended, phase_seconds) = (Vec::new(), Vec::new());
            Counted { statistics, queue_p99: None, total: None, ended, queued: 0, phase_seconds }.batches()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(4, 1)]), Some((4, 4)));
        assert_eq!(of(&[(1, 5), (2, 4), (32, 1)]), Some((1, 32)));
        assert_eq!(of(&[(1, 4), (2, 5), (32, 1)]), Some((2, 32)));
    }
}
