//! The present status as data, for the status page and `/admin/status.json`.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

use serde::Serialize;

use super::Admin;
use super::rates::Since;
use crate::api::audit::Change;
use crate::api::{ServerPhase, Status};
use crate::model::{Counted, SequenceStore, VersionOverview};
use crate::scheduling::report::{BindingState, Summary, fault_text};
use crate::telemetry::RefusedByModel;

#[derive(Debug, Clone, Serialize)]
pub struct StatusReport {
    pub server: Server,
    /// Sentences about what an operator should check.
    pub warnings: Vec<String>,
    pub models: Vec<VersionStatus>,
    /// Number of sequences that ended since the server started, by reason.
    pub ended: BTreeMap<&'static str, u64>,
    /// Number of requests that were answered with an error since the server started, by model and reason. The empty name stands for
    /// models that are not served.
    pub refused: RefusedByModel,
    pub plugins: Vec<Summary>,
    /// The latest changes by operators, newest first.
    pub changes: Vec<Change>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Server {
    pub version: &'static str,
    pub node: String,
    pub runtime: String,
    /// serving, loading, not ready, announcing, finishing, closing
    pub phase: &'static str,
    pub ready: bool,
    /// Time in RFC 3339 format.
    pub now: String,
    pub up_seconds: f64,
    pub in_flight: i64,
    pub live_sequences: i64,
    pub state_bytes: u64,
    /// `null` means no limit.
    pub state_limit: Option<u64>,
    /// Memory of this process, as the system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The time that the rates cover.
    pub rates_over_seconds: f64,
}

/// The status of a model version. Counts begin at the start of the server.
#[derive(Debug, Clone, Serialize)]
pub struct VersionStatus {
    pub model: String,
    /// `null` if no version of the model is known.
    pub version: Option<u64>,
    /// READY, LOADING, UNLOADING, UNAVAILABLE, or empty.
    pub state: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<&'static str>,
    pub instances: u16,
    pub slots: u32,
    pub slots_used: u32,
    pub live: u32,
    pub backlog: u32,
    pub sequence_bytes: u64,
    pub state_bytes: u64,
    pub requests: u64,
    pub failures: u64,
    pub batches: u64,
    pub rows: u64,
    pub requests_per_second: f64,
    /// Requests that wait in the queue now.
    pub queued: u64,
    /// Number of its sequences that ended, by reason.
    pub ended: BTreeMap<&'static str, u64>,
    /// The total time of its requests, by phase.
    pub phase_seconds: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_p50: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_max: Option<u32>,
    /// An upper bound: bucket bounds double.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_p99_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_p50_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_p99_seconds: Option<f64>,
}

impl Admin {
    /// The whole status.
    pub(super) async fn report(&self) -> Result<StatusReport, Status> {
        let overview = self.models().await?;
        let since = self.rates(&overview);
        let mut ended = BTreeMap::new();
        for (reason, count) in overview.iter().filter_map(|v| v.counted.as_ref()).flat_map(|c| &c.ended) {
            *ended.entry(*reason).or_default() += count;
        }
        let models: Vec<VersionStatus> = overview.into_iter().map(|v| version(v, &since)).collect();
        // Without plug-ins the list is empty.
        let plugins = self.list().await.unwrap_or_default();
        let store = self.api().repository().store().and_then(SequenceStore::warning);
        let of_models =
            models.iter().flat_map(|version| of_version(version, &models)).chain(plugins.iter().flat_map(of_plugin));
        let warnings = store.into_iter().chain(of_models).collect();
        let changes = self.changes().last();
        let refused = self.api().metrics().refused();
        Ok(StatusReport { server: self.server(since.seconds), warnings, models, ended, refused, plugins, changes })
    }

    /// The model versions, with their rates.
    pub(super) async fn versions(&self) -> Result<Vec<VersionStatus>, Status> {
        let overview = self.models().await?;
        let since = self.rates(&overview);
        Ok(overview.into_iter().map(|v| version(v, &since)).collect())
    }

    fn rates(&self, overview: &[VersionOverview]) -> Since {
        let counted = overview.iter().filter_map(|v| {
            let of = (v.index.model.clone(), v.index.version?);
            Some((of, v.counted.as_ref()?.statistics.success.count))
        });
        self.0.rates.look(self.0.began, Instant::now(), counted.collect())
    }

    fn server(&self, rates_over_seconds: f64) -> Server {
        let (api, options) = (self.api(), self.options());
        let (state_bytes, limit) = api.repository().state_bytes();
        let ready = api.ready();
        Server {
            version: env!("CARGO_PKG_VERSION"),
            node: options.node.clone(),
            runtime: options.runtime.clone(),
            phase: match *api.phases().borrow() {
                ServerPhase::Serving if ready => "serving",
                ServerPhase::Serving => "not ready",
                ServerPhase::Announcing => "announcing",
                ServerPhase::Finishing => "finishing",
                ServerPhase::Closing => "closing",
            },
            ready,
            now: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            up_seconds: self.0.began.elapsed().as_secs_f64(),
            in_flight: api.metrics().in_flight().get(),
            live_sequences: api.metrics().live_sequences(),
            state_bytes,
            state_limit: (limit != u64::MAX).then_some(limit),
            memory_bytes: resident(),
            rates_over_seconds,
        }
    }
}

fn version(of: VersionOverview, since: &Since) -> VersionStatus {
    let VersionOverview { index, ready, usage, state_bytes, counted } = of;
    let rate = since.rate_of(&index.model, index.version.unwrap_or_default());
    let statistics = counted.as_ref().map(|c| c.statistics.clone()).unwrap_or_default();
    let batches = counted.as_ref().and_then(Counted::batches);
    let total = counted.as_ref().and_then(|c| c.total);
    VersionStatus {
        model: index.model,
        version: index.version,
        state: index.state,
        reason: index.reason,
        strategy: ready.as_ref().map(|r| r.strategy),
        instances: ready.as_ref().map_or(0, |r| r.instances),
        slots: usage.slots,
        slots_used: usage.slots_used,
        live: usage.live,
        backlog: usage.backlog,
        sequence_bytes: ready.as_ref().map_or(0, |r| r.state_bytes),
        state_bytes,
        requests: statistics.success.count,
        failures: statistics.fail.count,
        batches: statistics.execution_count,
        rows: statistics.inference_count,
        requests_per_second: rate,
        queued: counted.as_ref().map_or(0, |c| c.queued),
        ended: counted.iter().flat_map(|c| c.ended.iter().copied()).collect(),
        phase_seconds: counted.iter().flat_map(|c| c.phase_seconds.iter().copied()).collect(),
        batch_p50: batches.map(|(median, _)| median),
        batch_max: batches.map(|(_, most)| most),
        // The last bucket has no bound, and JSON has no infinity.
        queue_p99_seconds: counted.as_ref().and_then(|c| c.queue_p99).filter(|s| s.is_finite()),
        request_p50_seconds: total.map(|(half, _)| half).filter(|s| s.is_finite()),
        request_p99_seconds: total.map(|(_, most)| most).filter(|s| s.is_finite()),
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    let status = fs_err::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

// === warnings ===

fn of_version(of: &VersionStatus, all: &[VersionStatus]) -> Vec<String> {
    let VersionStatus { model, version, state, reason, slots, slots_used, backlog, .. } = of;
    if *state == "UNAVAILABLE" && reason != "unloaded" {
        let serves = all.iter().find(|other| other.model == *model && other.state == "READY").and_then(|of| of.version);
        return vec![match version.zip(serves) {
            Some((failed, serves)) => format!("{model}: version {failed} is not served, version {serves} is: {reason}"),
            None => format!("{model}: not served: {reason}"),
        }];
    }
    let before = version.map(|version| format!("version {version} of before")).unwrap_or_default();
    let failed = reason.strip_prefix("reload failed: ").filter(|_| *state == "READY");
    let failed = failed.map(|why| format!("{model}: reload failed, {before} serves: {why}"));
    let waits = format!("{model}: {backlog} sequences wait for a slot ({slots_used}/{slots} slots used)");
    failed.into_iter().chain((*backlog > 0).then_some(waits)).collect()
}

fn of_plugin(plugin: &Summary) -> Vec<String> {
    let name = &plugin.name;
    let of = |attached: &crate::scheduling::report::Attached| {
        let state = match attached.state {
            BindingState::Parked => "parked",
            BindingState::Recovering => "being started anew",
            BindingState::Active | BindingState::Shadow if attached.strikes > 0 => "struck",
            BindingState::Active | BindingState::Shadow => return None,
        };
        let (model, strikes) = (&attached.model, attached.strikes);
        let last = attached
            .last_fault
            .as_ref()
            .map(|f| format!(", last: {}", fault_text(&f.kind, &f.what)))
            .unwrap_or_default();
        let s = if strikes == 1 { "" } else { "s" };
        Some(format!("{name}: {state} on {model} after {strikes} strike{s}{last} -> sequor plugin logs {name}"))
    };
    plugin.attached.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use sequor_core::Usage;

    use super::*;
    use crate::model::IndexRow;

    #[test]
    fn a_failed_reload_and_a_refused_model_are_warnings() {
        let status = |number: u64, state: &'static str, reason: &str| {
            let (model, reason) = ("gru".to_owned(), reason.to_owned());
            let index = IndexRow { model, version: Some(number), state, reason };
            let (ready, usage, state_bytes, counted) = (None, Usage::default(), 0, None);
            version(VersionOverview { index, ready, usage, state_bytes, counted }, &Since::default())
        };
        let of = |state: &'static str, reason: &str| of_version(&status(1, state, reason), &[]);
        let failed = ["gru: reload failed, version 1 of before serves: no file".to_owned()];
        assert_eq!(of("READY", "reload failed: no file"), failed);
        assert_eq!(of("UNAVAILABLE", "no file"), ["gru: not served: no file".to_owned()]);
        assert!(of("UNAVAILABLE", "unloaded").is_empty() && of("READY", "").is_empty());
        let both = [status(2, "READY", ""), status(3, "UNAVAILABLE", "no file")];
        assert_eq!(of_version(&both[1], &both), ["gru: version 3 is not served, version 2 is: no file".to_owned()]);
    }
}
