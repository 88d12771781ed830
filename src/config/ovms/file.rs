//! Parses `config.json`: the models that OVMS is to serve.

use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};

use super::model::{GivenSequences, OvmsModel, PREPARE_INPUTS, transposing_layout, version_policy};
use crate::config::Fault;
use crate::config::fault::{code, did_you_mean};
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
const WITHOUT_EFFECT: [&str; 9] = [
    "allow_cache",
    "batch_size",
    "layout",
    "metrics",
    "plugin_config",
    "precision",
    "shape",
    "target_device",
    "custom_loader_options",
];
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
/// Options of a model that change its results, or name something other than a model, and the remedies.
const UNSUPPORTED: [(&str, &str); 5] = [
    ("color_format", PREPARE_INPUTS),
    ("graph_path", "name the ONNX models of the MediaPipe graph each by itself, with name and base_path"),
    ("mean", PREPARE_INPUTS),
    ("resize", PREPARE_INPUTS),
    ("scale", PREPARE_INPUTS),
];
/// Sections that Sequor reads.
const SECTIONS: [&str; 2] = ["model_config_list", MONITORING];
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
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut file = OvmsFile::default();
    let mut wrong = Vec::new();
    for section in NOT_SERVED {
        let is_empty = root.get(section).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty));
        if !is_empty {
            wrong.push(format!("{section} is not served"));
        }
    }
    for key in root.as_object().into_iter().flat_map(Map::keys).map(String::as_str) {
        if key == MONITORING {
            file.notices.push(OvmsNotice {
                model: None,
                text: "monitoring has no effect: --metrics_enable turns metrics on, at /metrics of the port that --metrics-port names (8002)"
                    .to_owned(),
            });
        } else if !SECTIONS.contains(&key) && !NOT_SERVED.contains(&key) {
            wrong.push(format!("\"{key}\" is not known{}", did_you_mean(key, SECTIONS.into_iter().chain(NOT_SERVED))));
        }
    }
    match root.get("model_config_list").and_then(Value::as_array) {
        None => wrong.push("model_config_list is missing: it names the models".to_owned()),
        Some(models) => {
            for entry in models {
                match entry.get("config").and_then(Value::as_object).map(|of| model(of, folder, &mut file.notices)) {
                    Some(Ok(model)) => file.models.push(model),
                    Some(Err(what)) => wrong.push(what),
                    None => wrong.push("an entry of model_config_list has no config".to_owned()),
                }
            }
        }
    }
    for (n, model) in file.models.iter().enumerate() {
        if file.models.iter().take(n).any(|other| other.name == model.name) {
            wrong.push(format!("model {}: the name occurs twice", model.name));
        }
    }
    let fault = |what: String| Fault { at: Place::UNKNOWN.at(path), code: code::VALUE, what };
    if wrong.is_empty() { Ok(file) } else { Err(wrong.into_iter().map(fault).collect()) }
}

/// Parses one entry of the list. A relative `base_path` begins in `folder`, the folder of the file.
fn model(config: &Map<String, Value>, folder: &Path, notices: &mut Vec<OvmsNotice>) -> Result<OvmsModel, String> {
    let text = |key: &str| config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = text("name").ok_or("a model has no name")?.to_owned();
    let of = |what: String| format!("model {name}: {what}");
    let unsupported = UNSUPPORTED.iter().find(|(key, _)| config.contains_key(*key));
    let unsupported = unsupported.map(|(key, instead)| format!("{key} is not served: {instead}"));
    let unsupported = unsupported.or_else(|| config.get("layout").and_then(transposing_layout));
    let base_path = text("base_path").or(unsupported.as_ref().map(|_| ""));
    let base_path = base_path.ok_or_else(|| of("base_path is missing".to_owned()))?;
    let is_remote = base_path.contains("://");
    let remote = || format!("base_path {base_path} is not on this machine: copy the model here, and name that folder");
    let unsupported = unsupported.or_else(|| is_remote.then(remote));
    for key in config.keys() {
        if WITHOUT_EFFECT.contains(&key.as_str()) {
            notices.push(OvmsNotice { model: Some(name.clone()), text: format!("{key} has no effect") });
        } else if !READ.contains(&key.as_str()) && !UNSUPPORTED.iter().any(|(of, _)| of == key) {
            return Err(of(format!("\"{key}\" is not known{}", did_you_mean(key, READ))));
        }
    }
    let flag = |key: &str| match config.get(key) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(of(format!("{key} is true or false, not {other}"))),
    };
    let number = |key: &str| match config.get(key) {
        None => Ok(None),
        Some(value) => {
            value.as_u64().map(Some).ok_or_else(|| of(format!("{key} is a number of at least 0, not {value}")))
        }
    };
    let most = number("max_sequence_number")?.map(u32::try_from).transpose();
    let given = GivenSequences {
        stateful: flag("stateful")?.unwrap_or(false),
        idle_sequence_cleanup: flag("idle_sequence_cleanup")?,
        max_sequence_number: most.map_err(|_| of("Sequence max number parameter too high".to_owned()))?,
        low_latency_transformation: flag("low_latency_transformation")?,
    };
    let stateful = given.resolve("Stateful model config parameter used for non stateful model").map_err(of)?;
    let nireq = number("nireq")?.filter(|n| *n > 0).map(u16::try_from).transpose();
    Ok(OvmsModel {
        base_path: folder.join(base_path),
        nireq: nireq.map_err(|_| of("nireq is too high".to_owned()))?,
        version_policy: config.get("model_version_policy").map(version_policy).transpose().map_err(of)?,
        stateful,
        unsupported,
        name: name.clone(),
    })
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
        assert_eq!(faults(pipeline), "c.json: pipeline_config_list is not served");
        let text = r#"{"model_config_list": [{"config": {"name": "m", "base_path": "/m", "target_device": "CPU"}}]}"#;
        let notices = parse(Path::new("c.json"), text).unwrap().notices;
        assert_eq!(
            notices.iter().map(OvmsNotice::to_string).collect::<Vec<_>>(),
            ["model m: target_device has no effect"]
        );
    }
}
