//! Rates between two readings of a server's status. The time between them is taken from the server's own clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scheduling::report::fault_text;

/// A share of the time below which a phase is left out.
const LEAST_SHARE: f64 = 0.005;

/// The part of a status that is read. A server of another version may omit some fields.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct StatusReading {
    server: ServerReading,
    warnings: Vec<String>,
    models: Vec<VersionReading>,
    refused: BTreeMap<String, BTreeMap<String, u64>>,
    plugins: Vec<PluginReading>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ServerReading {
    pub(super) version: String,
    pub(super) node: String,
    pub(super) phase: String,
    pub(super) up_seconds: f64,
    pub(super) in_flight: i64,
    pub(super) live_sequences: i64,
    pub(super) state_bytes: u64,
    pub(super) state_limit: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct VersionReading {
    model: String,
    version: Option<u64>,
    state: String,
    slots: u32,
    slots_used: u32,
    live: u32,
    backlog: u32,
    queued: u64,
    state_bytes: u64,
    requests: u64,
    failures: u64,
    batches: u64,
    rows: u64,
    ended: BTreeMap<String, u64>,
    phase_seconds: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PluginReading {
    name: String,
    attached: Vec<AttachedReading>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AttachedReading {
    model: String,
    version: u64,
    state: String,
    calls: u64,
    fallbacks: u64,
    strikes: u64,
    last_fault: Option<FaultReading>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct FaultReading {
    kind: String,
    what: String,
}

/// What a server did between two readings.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct ServerActivity {
    /// The time that the rates cover.
    pub(super) seconds: f64,
    pub(super) server: ServerReading,
    pub(super) warnings: Vec<String>,
    /// The busiest first.
    pub(super) models: Vec<VersionActivity>,
    pub(super) ended: Vec<ReasonActivity>,
    pub(super) refused: Vec<ReasonActivity>,
    /// Plug-ins that need attention, each at one model.
    pub(super) plugins: Vec<PluginTrouble>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct VersionActivity {
    pub(super) model: String,
    pub(super) version: u64,
    pub(super) state: String,
    pub(super) live: u32,
    pub(super) slots: u32,
    pub(super) slots_used: u32,
    /// Sequences that wait for a slot.
    pub(super) waiting: u32,
    /// Requests that wait in the queue.
    pub(super) queued: u64,
    pub(super) state_bytes: u64,
    pub(super) requests_per_second: f64,
    pub(super) failures_per_second: f64,
    pub(super) executions_per_second: f64,
    /// Mean number of rows of the executions. `None` if there was none.
    pub(super) batch_mean: Option<f64>,
    /// Shares of the requests' time, the largest first.
    pub(super) phases: Vec<PhaseShare>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct PhaseShare {
    pub(super) phase: String,
    pub(super) share: f64,
}

/// How often something happened for one reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct ReasonActivity {
    /// Empty for models that are not served.
    pub(super) model: String,
    pub(super) version: Option<u64>,
    pub(super) reason: String,
    pub(super) per_second: f64,
    /// Since the server started.
    pub(super) count: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct PluginTrouble {
    pub(super) plugin: String,
    pub(super) model: String,
    pub(super) version: u64,
    pub(super) state: String,
    pub(super) calls_per_second: f64,
    pub(super) fallbacks_per_second: f64,
    pub(super) strikes: u64,
    pub(super) last_fault: Option<String>,
}

/// Turns two counts into a rate.
#[derive(Debug, Clone, Copy)]
struct PerSecond(f64);

impl PerSecond {
    fn of(self, before: u64, after: u64) -> f64 {
        if self.0 > 0.0 { after.saturating_sub(before) as f64 / self.0 } else { 0.0 }
    }
}

impl ServerActivity {
    /// Compares two readings. After a restart of the server, the rates are since its start.
    pub(super) fn between(before: &StatusReading, after: &StatusReading) -> ServerActivity {
        let blank = StatusReading::default();
        let before = if before.server.up_seconds > after.server.up_seconds { &blank } else { before };
        let seconds = after.server.up_seconds - before.server.up_seconds;
        let per_second = PerSecond(seconds);
        let mut models: Vec<VersionActivity> =
            after.models.iter().filter_map(|of| VersionActivity::between(before, of, per_second)).collect();
        models.sort_by(|a, b| {
            b.requests_per_second.total_cmp(&a.requests_per_second).then_with(|| a.model.cmp(&b.model))
        });
        ServerActivity {
            seconds,
            server: after.server.clone(),
            warnings: after.warnings.clone(),
            models,
            ended: ended(before, after, per_second),
            refused: refused(before, after, per_second),
            plugins: after.plugins.iter().flat_map(|plugin| troubles(before, plugin, per_second)).collect(),
        }
    }
}

impl StatusReading {
    fn version(&self, model: &str, version: Option<u64>) -> Option<&VersionReading> {
        self.models.iter().find(|of| of.model == model && of.version == version)
    }

    fn attached(&self, plugin: &str, model: &str, version: u64) -> Option<&AttachedReading> {
        let plugin = self.plugins.iter().find(|of| of.name == plugin)?;
        plugin.attached.iter().find(|at| at.model == model && at.version == version)
    }
}

impl VersionActivity {
    /// `None` for a version that does not serve.
    fn between(before: &StatusReading, after: &VersionReading, per_second: PerSecond) -> Option<VersionActivity> {
        let version = after.version.filter(|_| after.state != "UNAVAILABLE" || after.live > 0)?;
        let blank = VersionReading::default();
        let before = before.version(&after.model, after.version).unwrap_or(&blank);
        let (batches, rows) = (after.batches.saturating_sub(before.batches), after.rows.saturating_sub(before.rows));
        Some(VersionActivity {
            model: after.model.clone(),
            version,
            state: after.state.to_lowercase(),
            live: after.live,
            slots: after.slots,
            slots_used: after.slots_used,
            waiting: after.backlog,
            queued: after.queued,
            state_bytes: after.state_bytes,
            requests_per_second: per_second.of(before.requests, after.requests),
            failures_per_second: per_second.of(before.failures, after.failures),
            executions_per_second: per_second.of(before.batches, after.batches),
            batch_mean: (batches > 0).then(|| rows as f64 / batches as f64),
            phases: phases(&before.phase_seconds, &after.phase_seconds),
        })
    }
}

/// The shares of the phases in the time of the requests between two readings.
fn phases(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Vec<PhaseShare> {
    let spent = |(phase, seconds): (&String, &f64)| {
        let spent = seconds - before.get(phase).copied().unwrap_or_default();
        (phase != "total").then(|| (phase.clone(), spent.max(0.0)))
    };
    let spent: Vec<(String, f64)> = after.iter().filter_map(spent).collect();
    let all: f64 = spent.iter().map(|(_, seconds)| seconds).sum();
    let shares = spent.into_iter().map(|(phase, seconds)| PhaseShare { phase, share: seconds / all });
    let mut shares: Vec<PhaseShare> = shares.filter(|of| of.share >= LEAST_SHARE).collect();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    shares
}

fn ended(before: &StatusReading, after: &StatusReading, per_second: PerSecond) -> Vec<ReasonActivity> {
    let of_version = |of: &VersionReading| {
        let earlier = before.version(&of.model, of.version).map(|of| of.ended.clone()).unwrap_or_default();
        reasons((&of.model, of.version), &earlier, &of.ended, per_second)
    };
    sorted(after.models.iter().flat_map(of_version).collect())
}

fn refused(before: &StatusReading, after: &StatusReading, per_second: PerSecond) -> Vec<ReasonActivity> {
    let of_model = |(model, counts): (&String, &BTreeMap<String, u64>)| {
        let earlier = before.refused.get(model).cloned().unwrap_or_default();
        reasons((model, None), &earlier, counts, per_second)
    };
    sorted(after.refused.iter().flat_map(of_model).collect())
}

fn reasons(
    (model, version): (&str, Option<u64>),
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
    per_second: PerSecond,
) -> Vec<ReasonActivity> {
    let row = |(reason, count): (&String, &u64)| {
        let earlier = before.get(reason).copied().unwrap_or_default();
        let (model, reason, count) = (model.to_owned(), reason.clone(), *count);
        ReasonActivity { model, version, reason, per_second: per_second.of(earlier, count), count }
    };
    after.iter().map(row).collect()
}

/// The most frequent now first, then the most frequent since the start.
fn sorted(mut rows: Vec<ReasonActivity>) -> Vec<ReasonActivity> {
    rows.sort_by(|a, b| b.per_second.total_cmp(&a.per_second).then_with(|| b.count.cmp(&a.count)));
    rows
}

/// A plug-in's places where it is parked, was struck, or lets the built-in policy decide.
fn troubles(before: &StatusReading, plugin: &PluginReading, per_second: PerSecond) -> Vec<PluginTrouble> {
    let trouble = |at: &AttachedReading| {
        let earlier = before.attached(&plugin.name, &at.model, at.version).cloned().unwrap_or_default();
        let fallbacks_per_second = per_second.of(earlier.fallbacks, at.fallbacks);
        let is_well =
            matches!(at.state.as_str(), "active" | "shadow") && at.strikes == 0 && fallbacks_per_second == 0.0;
        let fault = at.last_fault.as_ref().map(|FaultReading { kind, what }| fault_text(kind, what));
        (!is_well).then(|| PluginTrouble {
            plugin: plugin.name.clone(),
            model: at.model.clone(),
            version: at.version,
            state: at.state.clone(),
            calls_per_second: per_second.of(earlier.calls, at.calls),
            fallbacks_per_second,
            strikes: at.strikes,
            last_fault: fault,
        })
    };
    plugin.attached.iter().filter_map(trouble).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reading(status: &Value) -> StatusReading {
        StatusReading::deserialize(status).unwrap()
    }

    /// A status after `up` seconds of a server that does the same in each second.
    pub(in crate::cli::remote) fn steady(up: u64) -> StatusReading {
        let encoder = json!({
            "model": "encoder", "version": 2, "state": "READY", "slots": 1024, "slots_used": 1024, "live": 1180, "backlog": 156,
            "queued": 12, "state_bytes": 4_194_304, "requests": 3412 * up, "failures": up / 2, "batches": 90 * up, "rows": 3411 * up,
            "ended": { "ended": 12 * up, "expired": up / 2 },
            "phase_seconds": { "queue": 6.2 * up as f64, "run": 3.1 * up as f64, "state_in": 0.7 * up as f64, "total": 10.0 * up as f64 }
        });
        let vad = json!({ "model": "vad", "version": 1, "state": "READY", "slots": 512, "live": 0 });
        let gone = json!({ "model": "old", "version": 1, "state": "UNAVAILABLE", "reason": "unloaded" });
        let attached = |state: &str, strikes: u64| {
            let fault =
                (strikes > 0).then(|| json!({ "kind": "trap", "what": "index 83", "at": "2026-01-02T03:04:05Z" }));
            json!({
                "model": "encoder", "version": 2, "state": state, "calls": 90 * up, "fallbacks": strikes, "strikes": strikes,
                "last_fault": fault
            })
        };
        reading(&json!({
            "server": {
                "version": env!("CARGO_PKG_VERSION"), "node": "asr-01", "phase": "serving", "up_seconds": up, "in_flight": 30,
                "live_sequences": 1180, "state_bytes": 4_194_304, "state_limit": 8_589_934_592_u64, "memory_bytes": 209_715_200
            },
            "warnings": ["encoder: 156 sequences wait for a slot (1024/1024 slots used)"],
            "models": [vad, encoder, gone],
            "refused": { "encoder": { "queue_full": 7, "backlog_timeout": 3 * up }, "": { "not_served": 2 } },
            "plugins": [
                { "name": "fair-share", "attached": [attached("parked", 3)] },
                { "name": "edf", "attached": [attached("shadow", 0)] }
            ]
        }))
    }

    fn of(activity: &ServerActivity, model: &str) -> VersionActivity {
        activity.models.iter().find(|of| of.model == model).cloned().unwrap()
    }

    #[test]
    fn rates_are_those_between_two_readings() {
        let activity = ServerActivity::between(&steady(100), &steady(102));
        let encoder = of(&activity, "encoder");
        assert_eq!((activity.seconds, encoder.requests_per_second, encoder.executions_per_second), (2.0, 3412.0, 90.0));
        assert_eq!((encoder.batch_mean, encoder.failures_per_second), (Some(37.9), 0.5));
        let shares: Vec<_> = encoder.phases.iter().map(|of| (of.phase.as_str(), (of.share * 100.0).round())).collect();
        assert_eq!(shares, [("queue", 62.0), ("run", 31.0), ("state_in", 7.0)]);
        let names: Vec<_> = activity.models.iter().map(|of| of.model.as_str()).collect();
        assert_eq!(names, ["encoder", "vad"], "the busiest first, without versions that do not serve");
        let reasons = |rows: &[ReasonActivity]| {
            rows.iter().map(|row| (row.reason.clone(), row.per_second, row.count)).collect::<Vec<_>>()
        };
        let reason = |name: &str, per_second: f64, count: u64| (name.to_owned(), per_second, count);
        assert_eq!(reasons(&activity.ended), [reason("ended", 12.0, 1224), reason("expired", 0.5, 51)]);
        assert_eq!(
            reasons(&activity.refused),
            [reason("backlog_timeout", 3.0, 306), reason("queue_full", 0.0, 7), reason("not_served", 0.0, 2)]
        );
    }

    #[test]
    fn only_plugins_that_need_attention_are_shown() {
        let activity = ServerActivity::between(&steady(100), &steady(102));
        let trouble = PluginTrouble {
            plugin: "fair-share".to_owned(),
            model: "encoder".to_owned(),
            version: 2,
            state: "parked".to_owned(),
            calls_per_second: 90.0,
            fallbacks_per_second: 0.0,
            strikes: 3,
            last_fault: Some("trap: index 83".to_owned()),
        };
        assert_eq!(activity.plugins, [trouble]);
    }

    #[test]
    fn after_a_restart_rates_are_since_the_start() {
        let activity = ServerActivity::between(&steady(100), &steady(4));
        assert_eq!((activity.seconds, of(&activity, "encoder").requests_per_second), (4.0, 3412.0));
    }

    #[test]
    fn a_reading_without_time_or_without_counts_has_no_rates() {
        let activity = ServerActivity::between(&steady(100), &steady(100));
        let encoder = of(&activity, "encoder");
        assert_eq!((encoder.requests_per_second, encoder.batch_mean, encoder.phases), (0.0, None, vec![]));
        let bare = reading(&json!({ "server": { "up_seconds": 3.0 }, "models": [{ "model": "m", "version": 1 }] }));
        assert_eq!(of(&ServerActivity::between(&StatusReading::default(), &bare), "m").requests_per_second, 0.0);
    }
}
