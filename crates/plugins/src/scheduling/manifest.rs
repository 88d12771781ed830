//! The fields of a scheduler's `plugin.toml` beyond those that all worlds share: hooks, columns, features. A plug-in that names none gets
//! every hook and column.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sequor_core::Hooks;
use sequor_core::policy::columns;
use sequor_wasm::manifest::{self, Declared, Fields, wrong};
use sequor_wasm::settings::PluginSettings;
use serde::Deserialize;

use super::columns::COLUMNS;
use super::contract::WORLD;
use super::guest::Manifest;
use crate::config::fault::{Fault, did_you_mean};
use crate::config::units::Span;
use crate::error::{RejectionReason, RejectionStatus};

/// Maximum bytes of the text of a code.
const SENTENCE: usize = 1024;
/// `on-event` is the SDKs' name of `observe`.
const WANTS: [&str; 4] = ["plan", "admit", "observe", "on-event"];

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SchedulerFields {
    name: String,
    version: String,
    world: String,
    contract: String,
    wants: Option<Vec<String>>,
    columns: Option<Vec<String>>,
    #[serde(default)]
    features: Vec<String>,
    #[serde(default)]
    window: u32,
    #[serde(default)]
    config: PluginSettings,
    /// By the plug-in's number of the code.
    #[serde(default)]
    codes: BTreeMap<String, CodeFields>,
}

/// The text and status of a code, for clients.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeFields {
    text: String,
    #[serde(default)]
    status: StatusName,
    retry_after: Option<Span>,
}

/// gRPC's name of a status. HTTP's status follows from it.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum StatusName {
    InvalidArgument,
    #[default]
    Unavailable,
    PermissionDenied,
    NotFound,
    ResourceExhausted,
    FailedPrecondition,
    DeadlineExceeded,
}

/// Parses a `plugin.toml`. `path` names it in faults.
pub fn parse(path: &Path, text: &str) -> Result<Declared<Manifest>, Fault> {
    let SchedulerFields { name, version, world, contract, wants, columns, features, window, config, codes } =
        manifest::parse(path, text)?;
    let fields = Fields { name, version, world, contract, config };
    fields.check(path, text, WORLD)?;
    let hooks = hooks(path, text, wants.as_deref(), columns.as_deref())?;
    let codes = Arc::new(parse_codes(path, text, codes)?);
    let (name, version) = (fields.name.clone(), fields.version.clone());
    Ok(fields.declare(Manifest { name, version, hooks: Hooks { window, ..hooks }, features, codes }))
}

/// The codes with which the plug-in rejects requests.
fn parse_codes(
    path: &Path,
    text: &str,
    codes: BTreeMap<String, CodeFields>,
) -> Result<BTreeMap<u32, RejectionReason>, Fault> {
    let mut parsed = BTreeMap::new();
    for (code, fields) in codes {
        let at = |key: &str, what: &str| wrong(path, text, &["codes", &code, key], what.to_owned());
        let Ok(number) = code.parse() else {
            let what = format!("codes.{code}: a code is a number from 0 to {}", u32::MAX);
            return Err(wrong(path, text, &["codes", &code], what));
        };
        let CodeFields { text: sentence, status, retry_after } = fields;
        if sentence.is_empty() || sentence.len() > SENTENCE {
            return Err(at("text", "text must have 1 to 1024 bytes"));
        }
        let retry_after = retry_after.map(|span| span.0);
        parsed.insert(number, RejectionReason { text: sentence, status: status.into(), retry_after });
    }
    Ok(parsed)
}

impl From<StatusName> for RejectionStatus {
    fn from(name: StatusName) -> Self {
        match name {
            StatusName::InvalidArgument => RejectionStatus::InvalidArgument,
            StatusName::Unavailable => RejectionStatus::Unavailable,
            StatusName::PermissionDenied => RejectionStatus::PermissionDenied,
            StatusName::NotFound => RejectionStatus::NotFound,
            StatusName::ResourceExhausted => RejectionStatus::ResourceExhausted,
            StatusName::FailedPrecondition => RejectionStatus::FailedPrecondition,
            StatusName::DeadlineExceeded => RejectionStatus::DeadlineExceeded,
        }
    }
}

/// The wanted hooks and columns. If the file names none, all of them.
fn hooks(path: &Path, text: &str, wants: Option<&[String]>, columns: Option<&[String]>) -> Result<Hooks, Fault> {
    let mut hooks = everything();
    if let Some(wants) = wants {
        (hooks.plan, hooks.admit, hooks.observe) = (false, false, false);
        for (n, hook) in wants.iter().enumerate() {
            match hook.as_str() {
                "plan" => hooks.plan = true,
                "admit" => hooks.admit = true,
                "observe" | "on-event" => hooks.observe = true,
                _ => return Err(wrong(path, text, &["wants", &n.to_string()], no_such("hook", hook, &WANTS))),
            }
        }
    }
    if let Some(wanted) = columns {
        hooks.columns = 0;
        for (n, column) in wanted.iter().enumerate() {
            let names = COLUMNS.map(|column| column.name);
            let known = COLUMNS.iter().find(|known| known.name == column);
            let unknown = || wrong(path, text, &["columns", &n.to_string()], no_such("column", column, &names));
            hooks.columns |= known.ok_or_else(unknown)?.bit;
        }
    }
    Ok(hooks)
}

/// The manifest of a component without a `plugin.toml`.
pub(super) fn undeclared(name: &str) -> Manifest {
    let (name, version) = (name.to_owned(), "0.0.0".to_owned());
    Manifest { name, version, hooks: everything(), features: Vec::new(), codes: Arc::default() }
}

fn everything() -> Hooks {
    Hooks { plan: true, admit: true, observe: true, columns: columns::ALL, ..Hooks::default() }
}

fn no_such(kind: &str, name: &str, names: &[&str]) -> String {
    let near = did_you_mean(name, names.iter().copied());
    let all = if near.is_empty() { format!(" (there are {})", names.join(", ")) } else { near };
    format!("there is no {kind} \"{name}\"{all}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAIR: &str = r#"name = "fair-share"
version = "0.1.0"
world = "scheduler"
contract = "0.1.0"
wants = ["plan", "on-event"]
columns = ["arrival-us", "keys"]
features = ["tenant"]
[config.burst]
type = "integer"
default = 4
"#;

    fn read(text: &str) -> Result<Declared<Manifest>, String> {
        parse(Path::new("plugin.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn the_fields_of_a_manifest_are_parsed() {
        let declared = read(FAIR).unwrap();
        let hooks = Hooks { plan: true, observe: true, columns: columns::ARRIVAL | columns::KEYS, ..Hooks::default() };
        let manifest = Manifest {
            name: "fair-share".to_owned(),
            version: "0.1.0".to_owned(),
            hooks,
            features: vec!["tenant".to_owned()],
            codes: Arc::default(),
        };
        assert_eq!(declared.manifest, manifest);
        assert_eq!(declared.settings.resolve("{}").unwrap(), "{\"burst\":4}");
        let all = read(&FAIR.replace("wants", "# wants").replace("columns", "window = 64 #")).unwrap().manifest.hooks;
        assert_eq!(all, Hooks { window: 64, ..everything() });
    }

    #[test]
    fn codes_have_a_text_a_status_and_a_time_to_retry_after() {
        let codes = "[codes.1]\ntext = \"over its quota\"\nstatus = \"RESOURCE_EXHAUSTED\"\nretry_after = \"2s\"\n[codes.7]\ntext = \"late\"\n";
        let read_codes = read(&format!("{FAIR}{codes}")).unwrap().manifest.codes;
        let reason = |text: &str, status, retry_after| RejectionReason { text: text.to_owned(), status, retry_after };
        let after = Some(std::time::Duration::from_secs(2));
        let quota = reason("over its quota", RejectionStatus::ResourceExhausted, after);
        let late = reason("late", RejectionStatus::Unavailable, None);
        assert_eq!(*read_codes, BTreeMap::from([(1, quota), (7, late)]));
        for (from, to, fault) in [
            ("codes.1", "codes.one", "codes.one: a code is a number from 0 to 4294967295"),
            ("\"late\"", "\"\"", "text must have 1 to 1024 bytes"),
            ("RESOURCE_EXHAUSTED", "TEAPOT", "unknown variant `TEAPOT`"),
        ] {
            let faults = read(&format!("{FAIR}{}", codes.replace(from, to))).unwrap_err();
            assert!(faults.contains(fault), "{faults}");
        }
    }

    #[test]
    fn every_column_of_the_contract_has_its_name() {
        let all = COLUMNS.iter().fold(0, |bits, column| bits | column.bit);
        assert_eq!(all, columns::ALL);
        let wit = include_str!("../../../../wit/0.1.0/scheduler.wit");
        let (_, record) = wit.split_once("record columns {").unwrap();
        let (record, _) = record.split_once('}').unwrap();
        let fields: Vec<&str> = record
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("///"))
            .filter_map(|line| line.split_once(": "))
            .map(|(name, _)| name)
            .filter(|name| *name != "len")
            .collect();
        assert_eq!(fields, COLUMNS.map(|column| column.name));
    }

    #[test]
    fn scheduler_manifest_faults_are_reported_at_their_line() {
        for (from, to, message) in [
            ("on-event", "on-events", "plugin.toml:5:18: there is no hook \"on-events\"; did you mean \"on-event\"?"),
            ("\"keys\"", "\"key\"", "plugin.toml:6:26: there is no column \"key\"; did you mean \"keys\"?"),
            ("scheduler", "processor", "plugin.toml:3:1: world \"processor\" is not served here; scheduler is"),
            ("default = 4", "default = \"4\"", "plugin.toml:10:1: default must be an integer, not \"4\""),
            ("\"fair-share\"", "\"fair share\"", "plugin.toml:1:1: name must be letters"),
            ("features", "feature", "did you mean \"features\"?"),
            ("type = \"integer\"", "type = \"int\"", "unknown variant `int`"),
        ] {
            let fault = read(&FAIR.replace(from, to)).unwrap_err();
            assert!(fault.contains(message), "{fault}");
            assert!(fault.matches("did you mean").count() < 2, "{fault}");
        }
        assert!(read(&FAIR.replace("arrival-us", "weather")).unwrap_err().contains("(there are sequence, step,"));
        assert!(read("name = \"x\"").unwrap_err().contains("missing field"));
    }
}
