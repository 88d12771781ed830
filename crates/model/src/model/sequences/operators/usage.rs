//! The use of a model and its statistics, by version. All loads of a version count as one.

use std::sync::Arc;

use sequor_core::Usage;

use crate::model::load::LoadedModel;
use crate::model::sequences::scheduler::ModelScheduler;
use crate::telemetry::{ModelMetrics, Statistics};

/// The statistics of a version since the server began.
#[derive(Debug, Clone)]
pub struct VersionStatistics {
    pub model: String,
    pub version: u64,
    pub counted: Statistics,
    /// Bytes of state of its sequences.
    pub state_bytes: u64,
}

/// Updates the gauges of every version.
pub(in crate::model) fn observe(model: &ModelScheduler) {
    let loads = model.loads();
    // Loads of one version share their gauges. The first load sets them for all.
    let first =
        |load: &&Arc<LoadedModel>| loads.iter().find(|l| l.version == load.version).map(|l| l.key) == Some(load.key);
    for load in loads.iter().filter(first) {
        let (usage, bytes) = usage_of(model, load.version);
        load.metrics.set_backlogged(usage.backlog as usize);
        load.metrics.set_slots(u64::from(usage.slots_used), u64::from(usage.slots.saturating_sub(usage.slots_used)));
        load.metrics.set_state_bytes(bytes);
    }
}

/// The use of a version, over all its loads, and the bytes of state of its sequences.
pub(in crate::model) fn usage_of(model: &ModelScheduler, version: u64) -> (Usage, u64) {
    let loads = model.loads();
    let usage = |load: &Arc<LoadedModel>| {
        let usage = model.usage(load.key);
        Usage { slots: load.ensemble.as_ref().map_or(usage.slots, |ensemble| ensemble.slots), ..usage }
    };
    let of = loads.iter().filter(|l| l.version == version).map(|l| (usage(l), l));
    of.fold((Usage::default(), 0), |(sum, bytes), (usage, load)| {
        let sum = Usage {
            live: sum.live + usage.live,
            backlog: sum.backlog + usage.backlog,
            slots_used: sum.slots_used + usage.slots_used,
            slots: sum.slots + usage.slots,
            ready: sum.ready + usage.ready,
        };
        let at_start = u64::from(usage.live).saturating_mul(load.state_bytes());
        (sum, bytes.saturating_add(at_start).saturating_add(load.grown.get()))
    })
}

/// The statistics of this version, or of all versions in service.
pub(in crate::model) fn statistics(model: &ModelScheduler, version: Option<u64>) -> Vec<VersionStatistics> {
    let loads = model.loads();
    let mut versions: Vec<_> = loads
        .iter()
        .filter(|l| version.map_or(!l.is_retired(), |v| v == l.version))
        .map(|l| (l.version, &l.metrics))
        .collect();
    versions.sort_unstable_by_key(|(version, _)| *version);
    versions.dedup_by_key(|(version, _)| *version);
    let of = |(version, metrics): (u64, &Arc<ModelMetrics>)| VersionStatistics {
        model: model.name.clone(),
        version,
        counted: metrics.statistics(),
        state_bytes: usage_of(model, version).1,
    };
    versions.into_iter().map(of).collect()
}
