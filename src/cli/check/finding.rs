//! Findings of a check, and their output: a table for people, JSON for programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::dry_run::{Compared, Ran};
use super::rows::RowCosts;
use crate::cli::plugin::scheduler::check::CheckedComponent;
use crate::config::fault::code;
use crate::config::units::human;
use crate::error::{LoadError, LoadWarning};
use crate::model::repository::ReadyVersion;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// `serve` would not serve this model.
    Error,
    Note,
    Ok,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    /// The file with line and column, or the model.
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    line: u32,
    #[serde(skip_serializing_if = "is_zero")]
    column: u32,
    severity: Severity,
    #[serde(skip_serializing_if = "str::is_empty")]
    code: &'static str,
    /// The place in the documentation that explains the code.
    #[serde(skip_serializing_if = "String::is_empty")]
    help: String,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<Value>,
}

/// A version that `serve` would serve.
#[derive(Debug)]
pub(super) struct ServableVersion {
    pub(super) version: ReadyVersion,
    pub(super) ran: Ran,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Finding {
    fn new(place: String, severity: Severity, code: &'static str, text: String) -> Finding {
        let help = if code.is_empty() { String::new() } else { code::help(code) };
        Finding { place, file: None, line: 0, column: 0, severity, code, help, text, facts: None }
    }

    pub(super) fn note(place: String, code: &'static str, text: String) -> Finding {
        Finding::new(place, Severity::Note, code, text)
    }

    /// A file that is not used as its author intended. Its path is relative to `base`.
    pub(super) fn warning(base: &Path, warning: &LoadWarning) -> Finding {
        let LoadWarning { at, code, what } = warning;
        let file = at.path.strip_prefix(base).unwrap_or(&at.path).display().to_string();
        let numbers = [at.line, at.column].into_iter().filter(|n| *n > 0).map(|n| format!(":{n}"));
        let note = Finding::note(file.clone() + &numbers.collect::<String>(), code, what.clone());
        Finding { file: Some(file), line: at.line, column: at.column, ..note }
    }

    /// A sample that failed.
    pub(super) fn run(place: String, what: &str) -> Finding {
        Finding::new(place, Severity::Error, code::RUN, format!("dry run: {what}"))
    }

    /// A scheduler that some model uses.
    pub(super) fn plugin(place: String, tried: Result<&CheckedComponent, String>) -> Finding {
        match tried {
            Ok(good) => Finding { facts: Some(json!(good)), ..Finding::new(place, Severity::Ok, "", good.summary()) },
            // Only trial questions failed: the model itself loads with the plug-in.
            Err(what) => Finding::note(place, code::PLUGIN, what),
        }
    }

    /// The reason why a model was not loaded. File paths are relative to `base`.
    pub(super) fn error(model: &str, base: &Path, error: LoadError) -> Finding {
        let error_at = |path: &Path, line, column, code, text| {
            let file = path.strip_prefix(base).unwrap_or(path).display().to_string();
            let numbers = [line, column].into_iter().filter(|n| *n > 0).map(|n: u32| format!(":{n}"));
            let place = file.clone() + &numbers.collect::<String>();
            Finding { file: Some(file), line, column, ..Finding::new(place, Severity::Error, code, text) }
        };
        match error {
            LoadError::Config { at, code, what } if !at.path.as_os_str().is_empty() => {
                let what = if code == code::PLUGIN { without_server(what) } else { what };
                error_at(&at.path, at.line, at.column, code, what)
            }
            LoadError::Config { code, what, .. } => Finding::new(model.to_owned(), Severity::Error, code, what),
            LoadError::File { path, what } => error_at(&path, 0, 0, code::FILE, what),
            not_unique @ LoadError::NotUnique { .. } => {
                Finding::new(model.to_owned(), Severity::Error, code::NAME, not_unique.to_string())
            }
            LoadError::Runtime(what) => Finding::new(model.to_owned(), Severity::Error, code::RUNTIME, what),
            lost @ LoadError::MemberUnloaded { .. } => {
                Finding::new(model.to_owned(), Severity::Error, code::RUNTIME, lost.to_string())
            }
        }
    }

    pub(super) fn good(place: String, good: ServableVersion) -> Finding {
        let ServableVersion { version: v, ran } = good;
        let text = format!("{}; {}", memory(&v), sentence(&ran));
        let facts = json!({
            "version": v.version, "strategy": v.strategy, "instances": v.instances, "slots": v.slots,
            "state_bytes": v.state_bytes, "dry_run": ran,
        });
        Finding { facts: Some(facts), ..Finding::new(place, Severity::Ok, "", text) }
    }
}

/// Rewords a fault of a model's plug-in, because no server runs here.
fn without_server(what: String) -> String {
    if let Some((absent, _)) = what.split_once(". To hand it over: ") {
        return format!(
            "{absent}: name its folder with --plugins-dir DIR, or with [plugins] dir in the settings of --config FILE"
        );
    }
    if let Some((absent, _)) = what.split_once(", or hand it over: ") {
        return absent.to_owned();
    }
    if what.ends_with("\" is wanted") {
        return format!("{what}: put that file back, or write the hash it has into sequor.toml");
    }
    what
}

/// The strategy, and the bytes of state per sequence, with the slots and instances.
fn memory(v: &ReadyVersion) -> String {
    let s = if v.instances == 1 { "" } else { "s" };
    if v.slots == 0 {
        return format!("{}, {} instance{s}, stateless", v.strategy, v.instances);
    }
    let of_each = v.slots / u32::from(v.instances.max(1));
    let slots = if v.instances == 1 { of_each.to_string() } else { format!("{} x {of_each}", v.instances) };
    let full = u64::from(v.slots).saturating_mul(v.state_bytes);
    format!("{}, {slots} slots, {} a sequence, {} when full", v.strategy, human(v.state_bytes), human(full))
}

fn sentence(ran: &Ran) -> String {
    let met = if ran.samples == 2 { "batch 1 = batch 2" } else { "alone = in batches" };
    let how = match &ran.compared {
        Compared::NoBatches => "one at a time".to_owned(),
        Compared::NeverMet => "never in one batch, so not compared".to_owned(),
        Compared::NotDeterministic => "not deterministic, so not compared".to_owned(),
        Compared::Fails => "a batch fails".to_owned(),
        Compared::Same => format!("{met}, bit for bit"),
        Compared::Near(by) => format!("{met} but for rounding ({by:.0e})"),
        Compared::Different { .. } => "a batch changes the answer".to_owned(),
    };
    let s = if ran.samples == 1 { "" } else { "s" };
    let rows = ran.rows.as_ref().and_then(RowCosts::sentence).map(|text| format!("; {text}")).unwrap_or_default();
    format!("dry run: {} sample{s}, {how}{rows}", ran.samples)
}

/// All findings.
#[derive(Debug, Default)]
pub(super) struct CheckReport {
    pub(super) models: usize,
    /// Whether a server's settings were given. Then their directories count.
    pub(super) has_settings: bool,
    /// Plug-ins that were already reported.
    pub(super) plugins: BTreeSet<String>,
    findings: Vec<Finding>,
}

/// Maximum length of a sentence that widens its column. Longer sentences do not push the codes to the right.
const WIDEST: usize = 100;

impl CheckReport {
    pub(super) fn new(has_settings: bool) -> CheckReport {
        CheckReport { has_settings, ..CheckReport::default() }
    }

    pub(super) fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Adds a finding, unless the report already has it.
    pub(super) fn push_once(&mut self, finding: Finding) {
        if !self.findings.iter().any(|known| (&known.place, &known.text) == (&finding.place, &finding.text)) {
            self.findings.push(finding);
        }
    }

    pub(super) fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|f| f.severity == severity).count()
    }

    pub(super) fn table(&self) -> String {
        let length = |text: &str| text.chars().count();
        let place = self.findings.iter().map(|f| length(&f.place)).max().unwrap_or(0);
        let coded = self.findings.iter().filter(|f| !f.code.is_empty());
        let text = coded.map(|f| length(&f.text)).filter(|n| *n <= WIDEST).max().unwrap_or(0);
        let mut out = String::new();
        for f in &self.findings {
            let severity = match f.severity {
                Severity::Error => "error",
                Severity::Note => "note",
                Severity::Ok => "ok",
            };
            let line = format!("{:<place$}  {severity:<5}  {:<text$}  {}", f.place, f.text, f.code);
            let _ = writeln!(out, "{}", line.trim_end());
        }
        let s = |n: usize| if n == 1 { "" } else { "s" };
        let (errors, notes, models) = (self.errors(), self.count(Severity::Note), self.models);
        let _ = writeln!(out, "{errors} error{}, {notes} note{} in {models} model{}", s(errors), s(notes), s(models));
        let helps: BTreeSet<&str> = self.findings.iter().map(|f| f.help.as_str()).filter(|h| !h.is_empty()).collect();
        for help in helps {
            let _ = writeln!(out, "help: {help}");
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "findings": self.findings, "models": self.models, "errors": self.errors(),
            "notes": self.count(Severity::Note),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::At;

    fn report() -> CheckReport {
        let base = Path::new("/srv/models");
        let at = At { path: base.join("encoder/config.pbtxt"), line: 24, column: 5 };
        let what = "state \"h\": model gives [N,30], config says dims [31]".to_owned();
        let config = LoadError::Config { at, code: code::STATE_DIMS, what };
        let file = LoadError::File { path: base.join("gone/1/model.onnx"), what: "absent".to_owned() };
        let version = ReadyVersion {
            version: 1,
            strategy: "oldest",
            instances: 2,
            slots: 2048,
            state_bytes: 3 << 20,
            stored_bytes: 0,
            rows: None,
            wants_store: false,
            warnings: Vec::new(),
            on: None,
        };
        let ran = Ran { samples: 4, compared: Compared::Same, padding: None, state_padding: None, rows: None };
        let mut report = CheckReport { models: 4, ..CheckReport::default() };
        report.push(Finding::error("encoder", base, config));
        report.push(Finding::error("gone", base, file));
        report.push(Finding::error("gone", base, LoadError::Runtime("no threads".to_owned())));
        report.push(Finding::good("vad".to_owned(), ServableVersion { version, ran }));
        report.push(Finding::note("notes".to_owned(), code::NOTE_NO_MODEL, "no model".to_owned()));
        report.push(Finding::run("bad".to_owned(), "onnx runtime error 1: x"));
        report
    }

    #[test]
    fn the_check_report_renders_as_a_table() {
        insta::assert_snapshot!(report().table());
    }

    #[test]
    fn the_check_report_renders_as_json() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&report().json()).unwrap());
    }

    #[test]
    fn plug_in_faults_suggest_a_fix_that_needs_no_server() {
        let message = |what: &str| without_server(what.to_owned());
        assert_eq!(
            message("there is no plug-in \"z\". To hand it over: sequor plugin load z --from z.wasm"),
            "there is no plug-in \"z\": name its folder with --plugins-dir DIR, or with [plugins] dir in the settings of --config FILE"
        );
        assert_eq!(
            message(
                "there is no plug-in \"z\": /p/z.wasm does not exist. Put it there, or hand it over: sequor plugin load z"
            ),
            "there is no plug-in \"z\": /p/z.wasm does not exist. Put it there"
        );
        assert_eq!(
            message("z has the hash 3f, and sha256 = \"4a\" is wanted"),
            "z has the hash 3f, and sha256 = \"4a\" is wanted: put that file back, or write the hash it has into sequor.toml"
        );
        assert_eq!(message("z cannot decide for m: x"), "z cannot decide for m: x");
    }

    #[test]
    fn each_way_a_dry_run_ends_has_its_sentence() {
        let message = [
            Compared::NoBatches,
            Compared::NeverMet,
            Compared::NotDeterministic,
            Compared::Fails,
            Compared::Same,
            Compared::Near(3e-7),
            Compared::Different { output: "y".to_owned(), by: None },
        ]
        .map(|compared| sentence(&Ran { samples: 2, compared, padding: None, state_padding: None, rows: None }));
        insta::assert_snapshot!(message.join("\n"));
    }
}
