//! `sequor status`: the status of a running server, for terminals and scripts. It is a short form of the status page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{ArgMatches, Command};
use serde::Deserialize;

use super::client::Client;
use super::model::{VersionRow, versions_table};
use super::sequence::OF_HASHES;
use super::{args, print};
use crate::api::audit::names_a_hash;
use crate::cli::Failed;
use crate::config::units::human;
use crate::text::numbers::uptime;

/// Maximum changes to print.
const CHANGES: usize = 5;

pub(in crate::cli) fn command() -> Command {
    Command::new("status")
        .about("How a running server is: whether it is ready, its warnings, load, models, ended sequences and last changes")
        .after_help("Exit: 0 the server is ready, 1 it is not, 4 no answer.")
        .args(args())
}

pub(in crate::cli) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let answer = Client::from_matches(matches)?.get("/admin/status.json")?;
    print(matches, &answer, |status: ServerStatus| status.render())?;
    match answer.pointer("/server/ready").and_then(serde_json::Value::as_bool) {
        Some(true) => Ok(()),
        _ => Err(Failed::Failed("the server is not ready".to_owned())),
    }
}

/// The printed part of the server's answer. A server of another version may omit some fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServerStatus {
    server: ServerFacts,
    warnings: Vec<String>,
    models: Vec<VersionRow>,
    ended: BTreeMap<String, u64>,
    plugins: Vec<PluginRow>,
    changes: Vec<ChangeRow>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServerFacts {
    version: String,
    node: String,
    runtime: String,
    phase: String,
    up_seconds: f64,
    in_flight: i64,
    live_sequences: i64,
    state_bytes: u64,
    state_limit: Option<u64>,
    memory_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PluginRow {
    name: String,
    version: String,
    world: String,
    attached: Vec<AttachedRow>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AttachedRow {
    model: String,
    state: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ChangeRow {
    at: String,
    by: String,
    what: String,
    on: String,
    refused: Option<String>,
}

impl ServerStatus {
    fn render(&self) -> String {
        let ServerFacts { version, node, runtime, phase, up_seconds, in_flight, live_sequences, .. } = &self.server;
        let ServerFacts { state_bytes, state_limit, memory_bytes, .. } = &self.server;
        let mut out = format!("{node}  {phase} for {}   sequor {version}   {runtime}\n", uptime(*up_seconds));
        let limit = state_limit.map_or_else(String::new, |limit| format!(" of {}", human(limit)));
        let memory = memory_bytes.map_or_else(String::new, |bytes| format!("   memory {}", human(bytes)));
        let state = human(*state_bytes);
        let _ = writeln!(
            out,
            "requests in flight {in_flight}   live sequences {live_sequences}   state {state}{limit}{memory}"
        );
        if version != env!("CARGO_PKG_VERSION") {
            let own = env!("CARGO_PKG_VERSION");
            let _ = writeln!(
                out,
                "! this command is sequor {own}: what only one of the two versions knows is left out, or 0"
            );
        }
        self.warnings.iter().for_each(|warning| out.push_str(&format!("! {warning}\n")));
        let _ = write!(out, "\n{}", versions_table(&self.models));
        if !self.ended.is_empty() {
            let ended: Vec<String> = self.ended.iter().map(|(why, count)| format!("{why} {count}")).collect();
            let _ = writeln!(out, "\nsequences ended: {}", ended.join("   "));
        }
        for PluginRow { name, version, world, attached } in &self.plugins {
            let at: Vec<String> = attached.iter().map(|at| format!("{} ({})", at.model, at.state)).collect();
            let at = if at.is_empty() { "attached nowhere".to_owned() } else { at.join(", ") };
            let _ = writeln!(out, "plug-in {name} {version}, {world}: {at}");
        }
        for ChangeRow { at, by, what, on, refused } in self.changes.iter().take(CHANGES) {
            let refused = refused.as_ref().map_or_else(String::new, |why| format!("   refused: {why}"));
            let _ = writeln!(out, "{at}  {what} {on} by {by}{refused}");
        }
        let has_hash = |change: &ChangeRow| names_a_hash(&change.what, &change.on);
        if self.changes.iter().take(CHANGES).any(has_hash) {
            out += OF_HASHES;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_lists_the_server_and_its_warnings_before_the_models() {
        let status = json!({
            "server": {
                "version": "0.1.0", "node": "asr-01", "runtime": "ONNX Runtime 1.23.2", "phase": "serving", "ready": true,
                "now": "2026-01-02T03:04:05Z", "up_seconds": 7384.0, "in_flight": 3, "live_sequences": 412,
                "state_bytes": 4_194_304, "state_limit": 8_589_934_592_u64, "memory_bytes": 209_715_200, "rates_over_seconds": 2.0
            },
            "warnings": ["encoder: all 64 slots are in use, and 3 sequences wait"],
            "models": [{
                "model": "encoder", "version": 2, "state": "READY", "strategy": "oldest", "instances": 2, "slots": 64,
                "slots_used": 64, "live": 67, "backlog": 3, "sequence_bytes": 65_536, "state_bytes": 4_194_304,
                "requests": 90, "failures": 0, "batches": 30, "rows": 90, "requests_per_second": 12.5
            }],
            "ended": { "ended": 900, "expired": 12 },
            "plugins": [{
                "name": "fair-share", "version": "1.2.0", "sha256": "ab", "world": "scheduler",
                "attached": [{ "model": "encoder", "version": 2, "state": "active" }]
            }],
            "changes": [
                { "at": "2026-01-02T03:00:00Z", "by": "anna", "what": "plugin replace", "on": "fair-share", "refused": "too old" }
            ]
        });
        insta::assert_snapshot!(ServerStatus::deserialize(&status).unwrap().render());
    }

    #[test]
    fn the_status_of_another_version_may_lack_fields_or_have_more() {
        let rendered = |status: &serde_json::Value| ServerStatus::deserialize(status).unwrap().render();
        let newer = json!({
            "server": { "version": "9.0.0", "node": "asr-01", "phase": "serving", "ready": true, "shards": [1, 2] },
            "models": [{ "model": "encoder", "state": "READY", "shard": 2 }],
            "plugins": [{ "name": "fair-share", "attached": [{ "model": "encoder", "cell": 1 }] }],
            "changes": [{ "what": "model load", "on": "encoder", "took": 2.5 }],
            "tenants": { "gold": 3 }
        });
        let rendered_newer = rendered(&newer);
        for part in [
            "asr-01  serving",
            "sequor 9.0.0",
            "! this command is sequor",
            "encoder",
            "fair-share",
            "model load encoder",
        ] {
            assert!(rendered_newer.contains(part), "{part:?} is not in {rendered_newer}");
        }
        let hashed = json!({ "changes": [{ "what": "sequence drop", "on": "encoder #00ff" }] });
        assert!(rendered(&hashed).ends_with(OF_HASHES) && !rendered_newer.contains(OF_HASHES));
        let same = json!({ "server": { "version": env!("CARGO_PKG_VERSION") } });
        assert!(!rendered(&same).contains("this command"));
        rendered(&json!({}));
    }
}
