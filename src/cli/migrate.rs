//! `sequor migrate`: reports for each model of a Triton repository, or of an OVMS `config.json`, whether Sequor can serve it. It runs no
//! graph and needs no library.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::migrate_write::{self, MissingKeys};
use super::{Failed, stdout};
use crate::config::Fault;
use crate::config::fault::code;
use crate::config::model::{Options, read, versions};
use crate::config::ovms::layout::{self, VersionFiles};
use crate::config::ovms::{DEFAULT_SCAN_MINUTES, OvmsFile, OvmsModel, parse_ovms};

pub(super) fn command() -> Command {
    let repository = Arg::new("repository")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .help("Triton model repository, the directory of one model, or a config.json of OVMS");
    let write = Arg::new("write").long("write").value_name("DIR").value_parser(value_parser!(PathBuf)).help(
        "Write what has to change. Of a config.json: its models as a Triton repository with a sequor.toml for each, into this new directory. \
         Of a Triton repository: MODEL/sequor.toml in this directory, for each model that needs one; it may be the repository itself",
    );
    let output = Arg::new("output")
        .long("output")
        .value_name("FORM")
        .default_value("table")
        .value_parser(PossibleValuesParser::new(["table", "json"]))
        .help("Output format");
    Command::new("migrate")
        .about("Report which models of a Triton repository or of OVMS Sequor can serve: unchanged, with changes or not, and what to do instead")
        .after_help("Exit: 0 every model can be served, 3 some cannot.")
        .args([repository, output, write])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let Some(directory) = matches.get_one::<PathBuf>("repository") else { return Ok(()) };
    let failed = |e: std::io::Error| Failed::Configuration(format!("{}: {e}", directory.display()));
    let directory = fs_err::canonicalize(directory).map_err(failed)?;
    let write = matches.get_one::<PathBuf>("write").map(PathBuf::as_path);
    let migration = match directory.is_file() {
        true => of_ovms(&directory, write)?,
        false => {
            let models = models(&directory).map_err(failed)?;
            let written = write.map(|folder| write_missing(folder, &models)).transpose()?;
            Migration { models, notices: Vec::new(), written }
        }
    };
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => stdout::line(format_args!("{:#}", migration.as_json()))?,
        _ => stdout::text(format_args!("{}", migration.as_table()))?,
    }
    match migration.count(MigrationVerdict::Cannot) {
        0 => Ok(()),
        n => Err(Failed::Configuration(format!("{n} of {} models cannot be served", migration.models.len()))),
    }
}

/// Reports on the models of a `config.json`. If a folder is given, writes the models that can be served.
fn of_ovms(file: &Path, write: Option<&Path>) -> Result<Migration, Failed> {
    let failed = |what: String| Failed::Configuration(what);
    let text = fs_err::read_to_string(file).map_err(|e| failed(e.to_string()))?;
    let lines = |faults: Vec<Fault>| failed(faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\nsequor: "));
    let OvmsFile { models, notices } = parse_ovms(file, &text).map_err(lines)?;
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let line = |code: &'static str, text: String| MigrationLine {
        file: name.clone(),
        line: 0,
        column: 0,
        code,
        text,
        instead: None,
    };
    let migrated = |model: &OvmsModel| {
        let notes = notices.iter().filter(|notice| notice.model.as_deref() == Some(&model.name));
        let (more, reason) = match layout::check(model) {
            Ok(notices) => (notices, None),
            Err(what) => (Vec::new(), Some(what)),
        };
        let notes = notes.map(|note| note.text.clone()).chain(more);
        MigratedModel {
            name: model.name.clone(),
            changes: notes.map(|text| line(code::NOTE_NO_EFFECT, text)).collect(),
            reasons: reason.into_iter().map(|what| line(code::NOT_SERVED, what)).collect(),
            missing: None,
        }
    };
    let verdicts: Vec<MigratedModel> = models.iter().map(migrated).collect();
    // Notices about one model are in its own entry.
    let of_the_file = notices.iter().filter(|notice| notice.model.is_none());
    let notices = of_the_file.map(|notice| format!("{name}: {notice}")).collect();
    let Some(folder) = write else { return Ok(Migration { models: verdicts, notices, written: None }) };
    if fs_err::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(failed(format!("{} is not empty", folder.display())));
    }
    let served = models.iter().zip(&verdicts).filter(|(_, of)| of.reasons.is_empty()).map(|(model, _)| model.clone());
    let served: Vec<OvmsModel> = served.collect();
    layout::write(folder, &served, DEFAULT_SCAN_MINUTES, VersionFiles::Copy)
        .map_err(|wrong| failed(wrong.join("\nsequor: ")))?;
    Ok(Migration { models: verdicts, notices, written: None })
}

/// Writes the files that the models of a Triton repository lack. Returns their paths.
fn write_missing(folder: &Path, models: &[MigratedModel]) -> Result<Vec<PathBuf>, Failed> {
    let missing = models.iter().filter_map(|model| Some((model.name.as_str(), model.missing.as_ref()?)));
    let (mut written, mut failed) = (Vec::new(), Vec::new());
    for (model, missing) in missing {
        match migrate_write::write(folder, model, missing) {
            Ok(path) => written.push(path),
            Err(what) => failed.push(what),
        }
    }
    if failed.is_empty() { Ok(written) } else { Err(Failed::Configuration(failed.join("\nsequor: "))) }
}

/// The result for all models.
#[derive(Debug)]
struct Migration {
    models: Vec<MigratedModel>,
    /// Settings without effect that belong to no model.
    notices: Vec<String>,
    /// The paths of the written files. `None` if the command does not write missing files.
    written: Option<Vec<PathBuf>>,
}

/// The result for one model.
#[derive(Debug)]
struct MigratedModel {
    name: String,
    /// Fields without effect, and keys that its `sequor.toml` lacks.
    changes: Vec<MigrationLine>,
    /// The reasons why it cannot be served.
    reasons: Vec<MigrationLine>,
    missing: Option<MissingKeys>,
}

/// One fact about a model's files.
#[derive(Debug)]
struct MigrationLine {
    /// The file, relative to the repository.
    file: String,
    line: u32,
    column: u32,
    code: &'static str,
    text: String,
    /// What to do, if the text does not contain it.
    instead: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MigrationVerdict {
    Unchanged,
    Changes,
    Cannot,
}

impl MigrationVerdict {
    const fn name(self) -> &'static str {
        match self {
            MigrationVerdict::Unchanged => "unchanged",
            MigrationVerdict::Changes => "changes",
            MigrationVerdict::Cannot => "cannot",
        }
    }
}

impl MigratedModel {
    fn verdict(&self) -> MigrationVerdict {
        match (self.reasons.is_empty(), self.changes.is_empty()) {
            (false, _) => MigrationVerdict::Cannot,
            (true, false) => MigrationVerdict::Changes,
            (true, true) => MigrationVerdict::Unchanged,
        }
    }
}

/// Every model of the repository, in order of name. If the directory is a model, only that one.
fn models(directory: &Path) -> std::io::Result<Vec<MigratedModel>> {
    if versions::is_model_directory(directory) {
        let base = directory.parent().unwrap_or(directory);
        return Ok(vec![migrated(directory, base)]);
    }
    let mut folders = Vec::new();
    for entry in fs_err::read_dir(directory)? {
        folders.push(entry?.path());
    }
    folders.sort();
    Ok(folders
        .iter()
        .filter(|folder| versions::may_be_model(folder))
        .map(|folder| migrated(folder, directory))
        .collect())
}

fn migrated(folder: &Path, base: &Path) -> MigratedModel {
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let lines = |faults: &[Fault]| faults.iter().map(|fault| MigrationLine::from_fault(fault, base)).collect();
    let draft = match read(folder, &Options::default()) {
        Ok(draft) => draft,
        Err(faults) => return MigratedModel { name, changes: Vec::new(), reasons: lines(&faults), missing: None },
    };
    let missing = migrate_write::missing(&draft);
    let mut changes: Vec<MigrationLine> = lines(draft.notes());
    for state in missing.iter().flat_map(|missing| &missing.states) {
        changes.push(MigrationLine {
            file: format!("{name}/sequor.toml"),
            line: 0,
            column: 0,
            code: code::STATE_AXIS,
            text: format!(
                "state \"{}\" has its batch on axis {}, which config.pbtxt cannot say: add {}",
                state.name,
                state.axis,
                state.toml().trim().replace('\n', " ")
            ),
            instead: None,
        });
    }
    MigratedModel { name, changes, reasons: Vec::new(), missing }
}

impl MigrationLine {
    fn from_fault(fault: &Fault, base: &Path) -> MigrationLine {
        let Fault { at, code, what } = fault;
        let file = at.path.strip_prefix(base).unwrap_or(&at.path).display().to_string();
        MigrationLine { file, line: at.line, column: at.column, code, text: what.clone(), instead: instead(fault) }
    }

    fn place(&self) -> String {
        let numbers = [self.line, self.column].into_iter().filter(|n| *n > 0).map(|n| format!(":{n}"));
        self.file.clone() + &numbers.collect::<String>()
    }

    fn json(&self) -> Value {
        let mut value = json!({ "file": self.file, "line": self.line, "column": self.column, "code": self.code, "text": self.text });
        if let (Some(instead), Some(object)) = (self.instead, value.as_object_mut()) {
            object.insert("instead".to_owned(), json!(instead));
        }
        value
    }
}

/// What to do about a backend that Sequor does not support.
fn instead(fault: &Fault) -> Option<&'static str> {
    if fault.code != code::BACKEND {
        return None;
    }
    let backend = fault.what.strip_prefix("backend \"")?.split('"').next()?;
    Some(match backend {
        "python" => {
            "if it prepares inputs, finishes outputs or calls other models, a plug-in takes its place: [model] plugin in sequor.toml (docs/plugins/models.md; fbank and transducer-greedy for streaming speech: docs/ensembles.md). If it runs a network, export that to ONNX"
        }
        "pytorch" => {
            "export the model with torch.onnx.export, its states as inputs and outputs (docs/export-a-stateful-onnx.md)"
        }
        "tensorflow" => "convert the model with tf2onnx and set backend: \"onnxruntime\"",
        "tensorrt" => "serve the ONNX file that the plan was built from, on instances of KIND_GPU",
        "openvino" => {
            "export the original model to ONNX; for its provider set execution_accelerators { cpu_execution_accelerator { name: \"openvino\" } }"
        }
        _ => "export the model to ONNX, or keep it on Triton and call it from the client",
    })
}

impl Migration {
    fn count(&self, verdict: MigrationVerdict) -> usize {
        self.models.iter().filter(|model| model.verdict() == verdict).count()
    }

    fn as_table(&self) -> String {
        let width = self.models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
        let mut out = String::new();
        for notice in &self.notices {
            let _ = writeln!(out, "{notice}");
        }
        for model in &self.models {
            let verdict = model.verdict();
            let _ = writeln!(out, "{:<width$}  {}", model.name, verdict.name());
            for line in model.changes.iter().chain(&model.reasons) {
                let _ = writeln!(out, "  {}  {}", line.place(), line.text);
                if let Some(instead) = line.instead {
                    let _ = writeln!(out, "    instead: {instead}");
                }
            }
        }
        let [unchanged, changes, cannot] =
            [MigrationVerdict::Unchanged, MigrationVerdict::Changes, MigrationVerdict::Cannot]
                .map(|verdict| self.count(verdict));
        let _ = writeln!(
            out,
            "{unchanged} unchanged, {changes} with changes, {cannot} cannot be served\n\
             `sequor check` loads and runs the models that can be served."
        );
        match self.written.as_deref() {
            None => {}
            Some([]) => out.push_str("Nothing to write: no model needs a file that it does not have.\n"),
            Some(paths) => paths.iter().for_each(|path| out.push_str(&format!("written: {}\n", path.display()))),
        }
        out
    }

    fn as_json(&self) -> Value {
        let lines = |lines: &[MigrationLine]| lines.iter().map(MigrationLine::json).collect::<Vec<_>>();
        let model = |model: &MigratedModel| {
            json!({
                "name": model.name,
                "verdict": model.verdict().name(),
                "changes": lines(&model.changes),
                "reasons": lines(&model.reasons),
            })
        };
        let mut value = json!({
            "unchanged": self.count(MigrationVerdict::Unchanged),
            "changes": self.count(MigrationVerdict::Changes),
            "cannot": self.count(MigrationVerdict::Cannot),
            "notices": self.notices,
            "models": self.models.iter().map(model).collect::<Vec<_>>(),
        });
        if let (Some(paths), Some(object)) = (&self.written, value.as_object_mut()) {
            object.insert("written".to_owned(), json!(paths));
        }
        value
    }
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
