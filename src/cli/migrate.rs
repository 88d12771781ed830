//! `sequor migrate`: what becomes of a Triton repository or of the models in a `config.json` of OVMS, model by model. No graph is run and no
//! library is needed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::Failed;
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
        "Write the models of a config.json into this new directory, as a Triton repository with a sequor.toml for each",
    );
    let output = Arg::new("output")
        .long("output")
        .value_name("FORM")
        .default_value("table")
        .value_parser(PossibleValuesParser::new(["table", "json"]))
        .help("Output format");
    Command::new("migrate")
        .about("Say what becomes of a Triton model repository or of OVMS's models: what serves unchanged, what changes, what cannot be served and what to do instead")
        .after_help("Exit: 0 every model can be served, 3 some cannot.")
        .args([repository, output, write])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let Some(directory) = matches.get_one::<PathBuf>("repository") else { return Ok(()) };
    let failed = |e: std::io::Error| Failed::Configuration(format!("{}: {e}", directory.display()));
    let directory = fs_err::canonicalize(directory).map_err(failed)?;
    let models = match directory.is_file() {
        true => ovms_models(&directory, matches.get_one::<PathBuf>("write").map(PathBuf::as_path))?,
        false if matches.contains_id("write") => {
            let what = "--write is for a config.json of OVMS; a Triton repository is served as it is";
            return Err(Failed::Configuration(what.to_owned()));
        }
        false => models(&directory).map_err(failed)?,
    };
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => println!("{:#}", as_json(&models)),
        _ => print!("{}", as_table(&models)),
    }
    match models.iter().filter(|model| model.verdict() == MigrationVerdict::Cannot).count() {
        0 => Ok(()),
        n => Err(Failed::Configuration(format!("{n} of {} models cannot be served", models.len()))),
    }
}

/// The models of a `config.json`. Those that can be served are written, if a folder is named.
fn ovms_models(file: &Path, write: Option<&Path>) -> Result<Vec<MigratedModel>, Failed> {
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
        let about = format!("model {}: ", model.name);
        let notes = notices.iter().filter_map(|notice| notice.strip_prefix(&about));
        let reason = layout::check(model).err();
        MigratedModel {
            name: model.name.clone(),
            changes: notes.map(|note| line(code::NOTE_NO_EFFECT, note.to_owned())).collect(),
            reasons: reason.into_iter().map(|what| line(code::NOT_SERVED, what)).collect(),
        }
    };
    let verdicts: Vec<MigratedModel> = models.iter().map(migrated).collect();
    let Some(folder) = write else { return Ok(verdicts) };
    if fs_err::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(failed(format!("{} is not empty", folder.display())));
    }
    let served = models.iter().zip(&verdicts).filter(|(_, of)| of.reasons.is_empty()).map(|(model, _)| model.clone());
    let served: Vec<OvmsModel> = served.collect();
    layout::write(folder, &served, DEFAULT_SCAN_MINUTES, VersionFiles::Copy)
        .map_err(|wrong| failed(wrong.join("\nsequor: ")))?;
    Ok(verdicts)
}

/// What becomes of one model.
#[derive(Debug)]
struct MigratedModel {
    name: String,
    /// Fields that have no effect here.
    changes: Vec<MigrationLine>,
    /// Why it cannot be served.
    reasons: Vec<MigrationLine>,
}

/// One fact about a model's files.
#[derive(Debug)]
struct MigrationLine {
    /// The file, named from the repository on.
    file: String,
    line: u32,
    column: u32,
    code: &'static str,
    text: String,
    /// What to do, if the text does not say.
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

/// Every model of the repository, by name; the one model, if the directory is that of one.
fn models(directory: &Path) -> std::io::Result<Vec<MigratedModel>> {
    if is_model(directory) {
        let base = directory.parent().unwrap_or(directory);
        return Ok(vec![migrated(directory, base)]);
    }
    let mut folders = Vec::new();
    for entry in fs_err::read_dir(directory)? {
        folders.push(entry?.path());
    }
    folders.sort();
    Ok(folders.iter().filter(|folder| is_model(folder)).map(|folder| migrated(folder, directory)).collect())
}

fn is_model(path: &Path) -> bool {
    path.join("config.pbtxt").is_file() || versions::versions_in(path).is_ok_and(|v| !v.is_empty())
}

fn migrated(folder: &Path, base: &Path) -> MigratedModel {
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let lines = |faults: &[Fault]| faults.iter().map(|fault| MigrationLine::of(fault, base)).collect();
    match read(folder, &Options::default()) {
        Ok(draft) => MigratedModel { name, changes: lines(draft.notes()), reasons: Vec::new() },
        Err(faults) => MigratedModel { name, changes: Vec::new(), reasons: lines(&faults) },
    }
}

impl MigrationLine {
    fn of(fault: &Fault, base: &Path) -> MigrationLine {
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

/// What to do about a backend that is not served.
fn instead(fault: &Fault) -> Option<&'static str> {
    if fault.code != code::BACKEND {
        return None;
    }
    let backend = fault.what.strip_prefix("backend \"")?.split('"').next()?;
    Some(match backend {
        "python" => {
            "if it prepares inputs or finishes outputs, write a processor plug-in (docs/plugins/processor.md); if it runs a network, export that to ONNX"
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

fn count(models: &[MigratedModel], verdict: MigrationVerdict) -> usize {
    models.iter().filter(|model| model.verdict() == verdict).count()
}

fn as_table(models: &[MigratedModel]) -> String {
    let width = models.iter().map(|model| model.name.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for model in models {
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
            .map(|verdict| count(models, verdict));
    let _ = writeln!(
        out,
        "{unchanged} unchanged, {changes} with fields that have no effect, {cannot} cannot be served\n\
         `sequor check` loads and runs the models that can be served."
    );
    out
}

fn as_json(models: &[MigratedModel]) -> Value {
    let lines = |lines: &[MigrationLine]| lines.iter().map(MigrationLine::json).collect::<Vec<_>>();
    let model = |model: &MigratedModel| {
        json!({
            "name": model.name,
            "verdict": model.verdict().name(),
            "changes": lines(&model.changes),
            "reasons": lines(&model.reasons),
        })
    };
    json!({
        "unchanged": count(models, MigrationVerdict::Unchanged),
        "changes": count(models, MigrationVerdict::Changes),
        "cannot": count(models, MigrationVerdict::Cannot),
        "models": models.iter().map(model).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(configs: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, config) in configs {
            let model = directory.path().join(name);
            fs_err::create_dir_all(model.join("1")).unwrap();
            fs_err::write(model.join("1/model.onnx"), "").unwrap();
            fs_err::write(model.join("config.pbtxt"), config).unwrap();
        }
        directory
    }

    #[test]
    fn every_model_has_its_verdict_and_what_to_do() {
        let directory = repository(&[
            ("asr", "platform: 'ensemble'\nensemble_scheduling { }"),
            ("encoder", "backend: 'onnxruntime'"),
            ("scorer", "name: 'scorer'\nbackend: 'python'"),
            ("vad", "backend: 'onnxruntime'\noptimization { cuda { graphs: true } }"),
        ]);
        fs_err::create_dir(directory.path().join("notes")).unwrap();
        let models = models(directory.path()).unwrap();
        let verdicts: Vec<_> = models.iter().map(|model| (model.name.as_str(), model.verdict())).collect();
        assert_eq!(
            verdicts,
            [
                ("asr", MigrationVerdict::Cannot),
                ("encoder", MigrationVerdict::Unchanged),
                ("scorer", MigrationVerdict::Cannot),
                ("vad", MigrationVerdict::Changes)
            ]
        );
        insta::assert_snapshot!(as_table(&models));
        let json = as_json(&models);
        assert_eq!((json["unchanged"].as_u64(), json["cannot"].as_u64()), (Some(1), Some(2)));
        assert_eq!(json["models"][3]["changes"][0]["line"], 2);
        assert!(json["models"][2]["reasons"][0]["instead"].as_str().unwrap().contains("processor plug-in"));
    }

    #[test]
    fn the_directory_of_one_model_is_one_model() {
        let directory = repository(&[("one", "backend: 'onnxruntime'")]);
        assert_eq!(models(&directory.path().join("one")).unwrap().len(), 1);
    }

    #[test]
    fn models_of_the_stateful_backend_are_served_as_they_are() {
        let own = include_str!("../../models/accumulate/config.pbtxt");
        let tensorrt = "parameters { key: 'ort_ep' value { string_value: 'trt' } }\nparameters { key: 'trt_cache_dir' value { string_value: '/tmp' } }";
        let wrong = own.replace("\"512\"", "\"8\"");
        let directory = repository(&[
            ("accumulate", own),
            ("on_tensorrt", &(own.replace("\"accumulate\"", "\"on_tensorrt\"") + tensorrt)),
            ("wrong", &wrong.replace("\"accumulate\"", "\"wrong\"")),
        ]);
        let models = models(directory.path()).unwrap();
        let verdicts: Vec<_> = models.iter().map(MigratedModel::verdict).collect();
        assert_eq!(verdicts, [MigrationVerdict::Unchanged, MigrationVerdict::Changes, MigrationVerdict::Cannot]);
        assert_eq!(models[1].changes.len(), 2, "{models:?}");
        let reasons: Vec<&str> = models[2].reasons.iter().map(|line| line.text.as_str()).collect();
        assert!(
            reasons[0].starts_with("Initial buffer size must be larger than or equal to the max batch size"),
            "{reasons:?}"
        );
    }

    #[test]
    fn models_of_ovms_have_their_verdicts_and_become_a_repository() {
        let folder = tempfile::tempdir().unwrap();
        let graph = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/recurrent.onnx");
        for (name, file) in [("speech", "net.onnx"), ("plain", "net.onnx"), ("old", "net.xml")] {
            let version = folder.path().join(name).join("1");
            fs_err::create_dir_all(&version).unwrap();
            fs_err::copy(graph, version.join(file)).unwrap();
        }
        let model = |name: &str, more: serde_json::Value| {
            let mut config = json!({ "name": name, "base_path": folder.path().join(name) });
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "config": config })
        };
        let models = [
            model("speech", json!({ "stateful": true, "low_latency_transformation": true, "target_device": "CPU" })),
            model("plain", json!({})),
            model("old", json!({ "stateful": true })),
        ];
        let file = folder.path().join("config.json");
        fs_err::write(&file, json!({ "model_config_list": models }).to_string()).unwrap();
        let out = folder.path().join("out");
        let models = ovms_models(&file, Some(&out)).unwrap();
        let verdicts: Vec<_> = models.iter().map(MigratedModel::verdict).collect();
        assert_eq!(verdicts, [MigrationVerdict::Changes, MigrationVerdict::Unchanged, MigrationVerdict::Cannot]);
        assert_eq!(models[0].changes[0].text, "target_device has no effect");
        assert!(models[2].reasons[0].text.starts_with("OpenVINO IR"), "{models:?}");
        let read = |path: &str| fs_err::read_to_string(out.join(path)).unwrap();
        assert!(read("speech/config.pbtxt").contains("state [ { input_name: \"encoder_LSTM_h_in\""));
        assert!(read("speech/sequor.toml").contains("rules = \"ovms\"\nmax_live = 500\nidle_scan = \"5m\""));
        assert!(!out.join("speech/1/net.onnx").is_symlink() && out.join("plain/1/net.onnx").is_file());
        assert!(!out.join("old").exists());
        assert_eq!(
            models_in_repository(&out),
            [("plain", MigrationVerdict::Unchanged), ("speech", MigrationVerdict::Unchanged)]
        );
        let again = ovms_models(&file, Some(&out)).unwrap_err();
        assert!(format!("{again:?}").contains("is not empty"), "{again:?}");
    }

    fn models_in_repository(folder: &Path) -> Vec<(&'static str, MigrationVerdict)> {
        let name = |name: &str| ["plain", "speech"].into_iter().find(|known| *known == name).unwrap();
        models(folder).unwrap().iter().map(|model| (name(&model.name), model.verdict())).collect()
    }
}
