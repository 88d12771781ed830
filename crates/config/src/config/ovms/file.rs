//! Parses `config.json`: the models that OVMS is to serve.

use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};

use super::json_places::JsonPlaces;
use super::model::{
    GivenSequences, OvmsModel, OvmsSequences, PREPARE_INPUTS, TOO_HIGH, is_auto, transposing_layout, version_policy,
};
use crate::config::Fault;
use crate::config::fault::{code, did_you_mean, in_order};
use crate::config::place::Place;

/// The contents of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OvmsFile {
    pub models: Vec<OvmsModel>,
    /// Options without effect.
    pub notices: Vec<OvmsNotice>,
}

/// An option or section without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OvmsNotice {
    /// `None` for a section outside of the models.
    pub model: Option<String>,
    pub text: String,
}

impl fmt::Display for OvmsNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            Some(model) => write!(f, "model {model}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Options of a model without effect in Sequor.
const WITHOUT_EFFECT: [&str; 8] =
    ["allow_cache", "batch_size", "layout", "metrics", "plugin_config", "precision", "shape", "target_device"];
/// Options of a model that Sequor reads.
const READ: [&str; 8] = [
    "base_path",
    "idle_sequence_cleanup",
    "low_latency_transformation",
    "max_sequence_number",
    "model_version_policy",
    "name",
    "nireq",
    "stateful",
];
/// Options that need `stateful`.
const SEQUENCES: [&str; 3] = ["max_sequence_number", "idle_sequence_cleanup", "low_latency_transformation"];
/// Options of a model that change its results, or name something other than a model, and the remedies.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("color_format", PREPARE_INPUTS),
    ("custom_loader_options", "write the model's files as they are after its custom loader, then remove the option"),
    ("graph_path", "name the ONNX models of the MediaPipe graph each by itself, with name and base_path"),
    ("mean", PREPARE_INPUTS),
    ("resize", PREPARE_INPUTS),
    ("scale", PREPARE_INPUTS),
];
/// Sections that Sequor reads.
const SECTIONS: [&str; 2] = [MODELS, MONITORING];
const MODELS: &str = "model_config_list";
/// The key of an entry of [`MODELS`].
const CONFIG: &str = "config";
const MONITORING: &str = "monitoring";
/// Sections that Sequor does not serve.
const NOT_SERVED: [&str; 3] = ["custom_loader_config_list", "mediapipe_config_list", "pipeline_config_list"];

/// Parses the file, or returns all its faults.
pub fn parse(path: &Path, text: &str) -> Result<OvmsFile, Vec<Fault>> {
    let root: Value = serde_json::from_str(text).map_err(|error| {
        let place = Place {
            line: u32::try_from(error.line()).unwrap_or(0),
            column: u32::try_from(error.column()).unwrap_or(0),
        };
        vec![Fault { at: place.at(path), code: code::PARSE, what: format!("The file is not valid json: {error}") }]
    })?;
    let places = JsonPlaces::new(text);
    let mut reader = FileReader { file: OvmsFile::default(), wrong: Vec::new() };
    reader.sections(&root);
    match root.get(MODELS).and_then(Value::as_array) {
        None => reader.fault("", format!("{MODELS} is missing: it names the models")),
        Some(models) => {
            let folder = path.parent().unwrap_or(Path::new(""));
            models.iter().enumerate().for_each(|(n, entry)| reader.entry(n, entry, folder));
        }
    }
    for path in &places.repeated {
        reader.fault(path, format!("\"{}\" stands twice", path.rsplit('/').next().unwrap_or_default()));
    }
    let FileReader { file, wrong } = reader;
    let fault = |(at, what): (String, String)| {
        let at = Place::at_offset(text, places.offset(&at)).at(path);
        Fault { at, code: code::VALUE, what }
    };
    if wrong.is_empty() { Ok(file) } else { Err(in_order(wrong.into_iter().map(fault).collect())) }
}

/// Collects the models of a file and its faults.
struct FileReader {
    file: OvmsFile,
    /// Paths of values in the file, and what is wrong with them.
    wrong: Vec<(String, String)>,
}

impl FileReader {
    fn fault(&mut self, path: &str, what: String) {
        self.wrong.push((path.to_owned(), what));
    }

    /// Checks the names of the sections.
    fn sections(&mut self, root: &Value) {
        for (key, value) in root.as_object().into_iter().flatten() {
            let path = format!("/{key}");
            if key == MONITORING {
                self.file.notices.push(OvmsNotice {
                    model: None,
                    text: "monitoring has no effect: --metrics_enable turns metrics on, at /metrics of the port that --metrics-port names (8002)"
                        .to_owned(),
                });
            } else if NOT_SERVED.contains(&key.as_str()) {
                if !value.as_array().is_some_and(Vec::is_empty) {
                    self.fault(&path, format!("{key} is not served"));
                }
            } else if key != MODELS {
                let known = did_you_mean(key, SECTIONS.into_iter().chain(NOT_SERVED));
                self.fault(&path, format!("\"{key}\" is not known{known}"));
            }
        }
    }

    /// Parses one entry of the list. A relative `base_path` begins in `folder`, the folder of the file.
    fn entry(&mut self, n: usize, entry: &Value, folder: &Path) {
        let path = format!("/{MODELS}/{n}");
        for key in entry.as_object().into_iter().flat_map(Map::keys).filter(|key| *key != CONFIG) {
            let what = format!("\"{key}\" is not known: an entry of {MODELS} has only {CONFIG}");
            self.fault(&format!("{path}/{key}"), what);
        }
        let path_of_config = format!("{path}/{CONFIG}");
        let Some(config) = entry.get(CONFIG).and_then(Value::as_object) else {
            return self.fault(&path, format!("an entry of {MODELS} has no {CONFIG}"));
        };
        let Some(name) = config.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            return self.fault(&path_of_config, "a model has no name".to_owned());
        };
        let mut reader = ModelReader { name, config, wrong: Vec::new() };
        let model = reader.model(folder);
        let wrong = reader.wrong.into_iter();
        self.wrong
            .extend(wrong.map(|(key, what)| (format!("{path_of_config}/{key}"), format!("model {name}: {what}"))));
        if self.file.models.iter().any(|other| other.name == name) {
            self.fault(&format!("{path_of_config}/name"), format!("model {name}: the name occurs twice"));
        }
        let without_effect = config.keys().filter(|key| WITHOUT_EFFECT.contains(&key.as_str()));
        let transposes = config.get("layout").and_then(transposing_layout).is_some();
        for key in without_effect.filter(|key| !(*key == "layout" && transposes)) {
            let notice = OvmsNotice { model: Some(name.to_owned()), text: format!("{key} has no effect") };
            self.file.notices.push(notice);
        }
        self.file.models.push(model);
    }
}

/// Parses one model, and collects its faults: keys, and what is wrong with them.
struct ModelReader<'a> {
    name: &'a str,
    config: &'a Map<String, Value>,
    wrong: Vec<(&'a str, String)>,
}

impl<'a> ModelReader<'a> {
    fn fault(&mut self, key: &'a str, what: impl Into<String>) {
        self.wrong.push((key, what.into()));
    }

    fn model(&mut self, folder: &Path) -> OvmsModel {
        for key in self.config.keys() {
            let is_known = |known: &[&str]| known.contains(&key.as_str());
            if !is_known(&READ) && !is_known(&WITHOUT_EFFECT) && !UNSUPPORTED.iter().any(|(of, _)| of == key) {
                self.fault(key, format!("\"{key}\" is not known{}", did_you_mean(key, READ)));
            }
        }
        let most = self.number("max_sequence_number").map(u32::try_from).transpose();
        let given = GivenSequences {
            stateful: self.flag("stateful").unwrap_or(false),
            idle_sequence_cleanup: self.flag("idle_sequence_cleanup"),
            max_sequence_number: most.unwrap_or_else(|_| {
                self.fault("max_sequence_number", TOO_HIGH);
                None
            }),
            low_latency_transformation: self.flag("low_latency_transformation"),
        };
        let stateful = given.resolve("Stateful model config parameter used for non stateful model");
        let stateful = stateful.unwrap_or_else(|what| {
            let first = SEQUENCES.into_iter().find(|key| self.config.contains_key(*key));
            self.fault(first.unwrap_or("name"), what);
            None
        });
        let nireq = self.number("nireq").filter(|n| *n > 0).map(u16::try_from).transpose();
        let nireq = nireq.unwrap_or_else(|_| {
            self.fault("nireq", "nireq is too high");
            None
        });
        let version_policy = self.config.get("model_version_policy").map(version_policy).transpose();
        let version_policy = version_policy.unwrap_or_else(|what| {
            self.fault("model_version_policy", what);
            None
        });
        let unsupported = self.unsupported(stateful);
        let base_path = self.text("base_path").unwrap_or_default();
        if base_path.is_empty() && unsupported.is_none() {
            self.fault("base_path", "base_path is missing");
        }
        let (name, base_path) = (self.name.to_owned(), folder.join(base_path));
        OvmsModel { name, base_path, nireq, version_policy, stateful, unsupported }
    }

    /// Why the model is not served, if it has an unsupported option.
    fn unsupported(&self, stateful: Option<OvmsSequences>) -> Option<String> {
        let unsupported = UNSUPPORTED.iter().find(|(key, _)| self.config.contains_key(*key));
        let unsupported = unsupported.map(|(key, instead)| format!("{key} is not served: {instead}"));
        let unsupported = unsupported.or_else(|| self.config.get("layout").and_then(transposing_layout));
        let is_dynamic = ["shape", "batch_size"].into_iter().any(|key| self.config.get(key).is_some_and(is_auto));
        let unsupported = unsupported.or_else(|| stateful.and_then(|stateful| stateful.unsupported(is_dynamic)));
        let remote = self.text("base_path").filter(|path| path.contains("://"));
        let remote = remote
            .map(|path| format!("base_path {path} is not on this machine: copy the model here, and name that folder"));
        unsupported.or(remote)
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    fn flag(&mut self, key: &'static str) -> Option<bool> {
        match self.config.get(key)? {
            Value::Bool(flag) => Some(*flag),
            other => {
                self.fault(key, format!("{key} is true or false, not {other}"));
                None
            }
        }
    }

    fn number(&mut self, key: &'static str) -> Option<u64> {
        let value = self.config.get(key)?;
        if value.as_u64().is_none() {
            self.fault(key, format!("{key} is a number of at least 0, not {value}"));
        }
        value.as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(config: &str) -> Result<OvmsModel, String> {
        let text = format!(r#"{{"model_config_list": [{{"config": {config}}}]}}"#);
        match parse(Path::new("config.json"), &text) {
            Ok(file) => Ok(file.models[0].clone()),
            Err(faults) => Err(faults.iter().map(|fault| fault.what.clone()).collect::<Vec<_>>().join("\n")),
        }
    }

    #[test]
    fn a_stateful_model_has_the_defaults_of_ovms() {
        let model = of(r#"{"name": "m", "base_path": "/models/m", "stateful": true}"#).unwrap();
        let stateful = model.stateful.unwrap();
        assert_eq!((stateful.idle_sequence_cleanup, stateful.max_sequence_number), (true, 500));
        assert!(!stateful.low_latency_transformation);
        assert_eq!(of(r#"{"name": "m", "base_path": "/models/m"}"#).unwrap().stateful, None);
    }

    #[test]
    fn every_rule_has_its_sentence() {
        let without = "model m: Stateful model config parameter used for non stateful model";
        let rows = [
            (r#""max_sequence_number": 500"#, without),
            (r#""idle_sequence_cleanup": true"#, without),
            (r#""low_latency_transformation": false, "stateful": false"#, without),
            (
                r#""stateful": true, "max_sequence_number": 4294967296"#,
                "model m: Sequence max number parameter too high",
            ),
            (
                r#""stateful": true, "max_sequence_number": -1"#,
                "model m: max_sequence_number is a number of at least 0, not -1",
            ),
            (r#""stateful": 1"#, "model m: stateful is true or false, not 1"),
            (r#""stateful_": true"#, "model m: \"stateful_\" is not known; did you mean \"stateful\"?"),
        ];
        for (option, text) in rows {
            let config = format!(r#"{{"name": "m", "base_path": "/models/m", {option}}}"#);
            assert_eq!(of(&config), Err(text.to_owned()), "{option}");
        }
        assert_eq!(of(r#"{"name": "m"}"#), Err("model m: base_path is missing".to_owned()));
    }

    #[test]
    fn every_section_and_option_is_known_or_refused() {
        let of = |rest: &str| parse(Path::new("c.json"), &format!(r#"{{"model_config_list": [], {rest}}}"#));
        let notices = of(r#""monitoring": {"metrics": {"enable": true}}"#).unwrap().notices;
        assert!(notices[0].text.starts_with("monitoring has no effect: --metrics_enable"), "{notices:?}");
        let faults = of(r#""foo": 1, "monitorin": {}"#).unwrap_err();
        let faults: Vec<&str> = faults.iter().map(|fault| fault.what.as_str()).collect();
        assert_eq!(faults, ["\"foo\" is not known", "\"monitorin\" is not known; did you mean \"monitoring\"?"]);
    }

    #[test]
    fn options_that_are_not_served_refuse_their_model_alone() {
        for (option, begin) in [
            (r#""mean": "[1,2,3]""#, "mean is not served: add this step"),
            (r#""scale": "255""#, "scale is not served"),
            (r#""color_format": "RGB:BGR""#, "color_format is not served"),
            (r#""resize": "RESIZE_LINEAR""#, "resize is not served"),
            (r#""layout": "NHWC:NCHW""#, "layout \"NHWC:NCHW\" is not served: add this step"),
            (r#""layout": {"a": "NCHW", "b": "NHWC:NCHW"}"#, "layout {"),
            (
                r#""custom_loader_options": {"loader_name": "x"}"#,
                "custom_loader_options is not served: write the model's",
            ),
            (
                r#""stateful": true, "batch_size": "auto""#,
                "Dynamic shape and dynamic batch size are not supported for stateful models",
            ),
            (r#""stateful": true, "shape": {"a": "(1,3)", "b": "auto"}"#, "Dynamic shape"),
            (r#""stateful": true, "max_sequence_number": 0"#, "max_sequence_number is 0, so no sequence could start"),
            (r#""graph_path": "g.pbtxt""#, "graph_path is not served: name the ONNX models"),
        ] {
            let model = of(&format!(r#"{{"name": "m", {option}}}"#)).unwrap();
            let what = model.check_supported().unwrap_err();
            assert!(what.starts_with(begin), "{what}");
        }
        let remote = of(r#"{"name": "m", "base_path": "s3://bucket/m"}"#).unwrap().check_supported();
        assert_eq!(
            remote.unwrap_err(),
            "base_path s3://bucket/m is not on this machine: copy the model here, and name that folder"
        );
        for supported in ["", r#", "layout": "NCHW""#, r#", "layout": {"a": "NCHW"}"#] {
            let model = of(&format!(r#"{{"name": "m", "base_path": "/m"{supported}}}"#)).unwrap();
            assert_eq!(model.check_supported(), Ok(()), "{supported}");
        }
    }

    #[test]
    fn a_relative_base_path_begins_in_the_folder_of_the_file() {
        for (file, base, want) in [
            ("/etc/ovms/config.json", "models/m", "/etc/ovms/models/m"),
            ("/etc/ovms/config.json", "/models/m", "/models/m"),
            ("config.json", "models/m", "models/m"),
        ] {
            let text = format!(r#"{{"model_config_list": [{{"config": {{"name": "m", "base_path": "{base}"}}}}]}}"#);
            let models = parse(Path::new(file), &text).unwrap().models;
            assert_eq!(models[0].base_path, Path::new(want), "{file}");
        }
    }

    #[test]
    fn unsupported_sections_are_refused_and_ignored_options_are_noted() {
        let faults = |text: &str| parse(Path::new("c.json"), text).unwrap_err()[0].to_string();
        assert!(faults("{").starts_with("c.json:1:1: The file is not valid json"));
        let pipeline = r#"{"model_config_list": [], "pipeline_config_list": [{"name": "p"}]}"#;
        assert_eq!(faults(pipeline), "c.json:1:27: pipeline_config_list is not served");
        let text = r#"{"model_config_list": [{"config": {"name": "m", "base_path": "/m", "target_device": "CPU"}}]}"#;
        let notices = parse(Path::new("c.json"), text).unwrap().notices;
        assert_eq!(
            notices.iter().map(OvmsNotice::to_string).collect::<Vec<_>>(),
            ["model m: target_device has no effect"]
        );
    }

    #[test]
    fn a_line_that_would_change_nothing_without_a_word_is_refused() {
        let faults = |entry: &str| {
            let text = format!("{{\"model_config_list\": [\n{entry}\n]}}");
            let faults = parse(Path::new("c.json"), &text).unwrap_err();
            faults.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let beside = faults(r#"{"config": {"name": "m", "base_path": "/m"}, "stateful": true}"#);
        let what = "c.json:2:46: \"stateful\" is not known: an entry of model_config_list has only config";
        assert_eq!(beside, [what]);
        let twice = faults(r#"{"config": {"name": "m", "base_path": "/m", "nireq": 1, "nireq": 2}}"#);
        assert_eq!(twice, ["c.json:2:57: \"nireq\" stands twice"]);
        let policy = faults(r#"{"config": {"name": "m", "base_path": "/m", "model_version_policy": {"latest": 7}}}"#);
        assert!(
            policy[0].starts_with("c.json:2:45: model m: model_version_policy {\"latest\":7} is none of"),
            "{policy:?}"
        );
    }

    #[test]
    fn all_faults_of_a_model_are_reported() {
        let text = r#"{"model_config_list": [{"config": {"name": "m", "stateful": 1, "nireq": "x", "foo": 2}}]}"#;
        let faults = parse(Path::new("c.json"), text).unwrap_err();
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let want = [
            "c.json:1:25: model m: base_path is missing",
            "c.json:1:49: model m: stateful is true or false, not 1",
            "c.json:1:64: model m: nireq is a number of at least 0, not \"x\"",
            "c.json:1:78: model m: \"foo\" is not known",
        ];
        let begins = faults.iter().zip(want).all(|(fault, want)| fault.starts_with(want));
        assert!(faults.len() == want.len() && begins, "{faults:#?}");
    }
}
