//! Plans the directory of a model: the versions that its policy chooses, its `config.pbtxt`, and the files that its own configuration may
//! name. Writes nothing.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use sequor_proto::ModelConfig;
use sequor_proto::model_config::SchedulingChoice;

use super::model::OvmsModel;
use crate::config::model::settings::VersionPolicy;
use crate::config::model::text;
use crate::config::model::versions::{version_of, versions_in};
use crate::config::onnx::{self, NamedState, Transformed};

/// The directory of a model.
#[derive(Debug)]
pub(super) struct LayoutPlan {
    /// The text of its `config.pbtxt`.
    pub(super) config: String,
    /// Whether the text is that of the model's own configuration, perhaps with options of OVMS behind it.
    pub(super) has_own_config: bool,
    /// The versions to serve, in ascending order; at least one.
    pub(super) versions: Vec<VersionPlan>,
    /// Other files and folders of the base path.
    pub(super) shared: Vec<OsString>,
    /// Options without effect.
    pub(super) notices: Vec<String>,
    /// Names of the files in the folder of the first version.
    pub(super) first_files: Vec<String>,
}

/// A version to serve.
#[derive(Debug)]
pub(super) struct VersionPlan {
    pub(super) number: u64,
    pub(super) graph: VersionGraph,
}

/// What becomes of a version's graph.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VersionGraph {
    /// It keeps its name.
    AsItIs,
    /// The file of this name gets the name of all versions.
    Renamed(String),
    /// So does this file, and its states become inputs and outputs.
    WithStates(String),
}

impl VersionGraph {
    /// The file that gets the name of all versions.
    pub(super) fn file(&self) -> Option<&str> {
        match self {
            VersionGraph::AsItIs => None,
            VersionGraph::Renamed(file) | VersionGraph::WithStates(file) => Some(file),
        }
    }
}

/// The model's own `config.pbtxt`.
struct OwnConfig {
    text: String,
    config: ModelConfig,
}

pub(super) fn plan(model: &OvmsModel) -> Result<LayoutPlan, String> {
    let as_text = |error: io::Error| error.to_string();
    let present = versions_in(&model.base_path).map_err(as_text)?;
    let own = own_config(model)?;
    let policy = own.as_ref().and_then(|own| VersionPolicy::from_config(&own.config));
    let policy = policy.or(model.version_policy.clone()).unwrap_or(VersionPolicy::Latest(1));
    let chosen = policy.choose(&present);
    let base_path = &model.base_path;
    let first = chosen.first().ok_or_else(|| {
        let what = "has no version to serve: a folder with a number for its name that model_version_policy chooses";
        format!("{} {what}", base_path.display())
    })?;
    let first_files = file_names(&base_path.join(first.to_string())).map_err(as_text)?;
    let mut versions = Vec::new();
    for number in chosen {
        let graph = graph(model, own.as_ref(), &base_path.join(number.to_string()))?;
        versions.push(VersionPlan { number, graph });
    }
    // After the graphs: a model in another format has no states to name.
    if own.is_none() && model.stateful.is_some_and(|stateful| !stateful.low_latency_transformation) {
        return Err(format!(
            "the states of a stateful model must be named: write sequence_batching with its states into {}, or set \
             low_latency_transformation, which names those of LSTM, GRU and RNN nodes",
            model.own_config().display()
        ));
    }
    let (mut notices, mut shared) = (Vec::new(), Vec::new());
    let config = match &own {
        Some(own) => {
            shared = shared_entries(base_path).map_err(as_text)?;
            with_options(model, own, &mut notices)?
        }
        None => config(model) + &states(model, &versions)?,
    };
    Ok(LayoutPlan { config, has_own_config: own.is_some(), versions, shared, notices, first_files })
}

/// Reads and checks the model's own configuration, if it has one.
fn own_config(model: &OvmsModel) -> Result<Option<OwnConfig>, String> {
    let path = model.own_config();
    let low_latency = model.stateful.is_some_and(|stateful| stateful.low_latency_transformation);
    if !path.is_file() {
        return Ok(None);
    }
    if low_latency {
        return Err(format!(
            "low_latency_transformation makes the configuration of its states itself: remove {}, or the option",
            path.display()
        ));
    }
    let text = fs_err::read_to_string(&path).map_err(|error| error.to_string())?;
    let config = text::parse(&path, &text).map_err(|fault| fault.to_string())?;
    let is_sequence = matches!(config.scheduling_choice, Some(SchedulingChoice::SequenceBatching(_)));
    if model.stateful.is_some() && !is_sequence && !is_ensemble(&config) {
        return Err(format!(
            "stateful is set, but {} has no sequence_batching: write it there with the model's states, or remove the option",
            path.display()
        ));
    }
    Ok(Some(OwnConfig { text, config }))
}

fn is_ensemble(config: &ModelConfig) -> bool {
    matches!(config.scheduling_choice, Some(SchedulingChoice::EnsembleScheduling(_)))
}

/// The text of the model's own configuration, with the options of OVMS that it does not set itself.
fn with_options(model: &OvmsModel, own: &OwnConfig, notices: &mut Vec<String>) -> Result<String, String> {
    let (path, mut added) = (model.own_config(), String::new());
    match (&model.version_policy, VersionPolicy::from_config(&own.config)) {
        (Some(policy), None) => added += &policy_line(policy),
        (Some(policy), Some(other)) if sorted(policy) != sorted(&other) => {
            let what = "model_version_policy and version_policy of";
            return Err(format!("{what} {} choose different versions: remove one of them", path.display()));
        }
        _ => {}
    }
    if let Some(nireq) = model.nireq.filter(|_| !is_ensemble(&own.config)) {
        let groups = &own.config.instance_group;
        if groups.is_empty() {
            added += &instances_line(nireq);
        } else if groups.iter().map(|group| group.count).sum::<i32>() != i32::from(nireq) {
            notices.push(format!("nireq has no effect: instance_group of {} sets the instances", path.display()));
        }
    }
    // Behind the text, so that the lines of faults are those of the file.
    Ok(if added.is_empty() { own.text.clone() } else { format!("{}\n{added}", own.text) })
}

fn sorted(policy: &VersionPolicy) -> VersionPolicy {
    let mut policy = policy.clone();
    if let VersionPolicy::Specific(versions) = &mut policy {
        versions.sort_unstable();
        versions.dedup();
    }
    policy
}

/// What becomes of the graph in this version's folder.
fn graph(model: &OvmsModel, own: Option<&OwnConfig>, version: &Path) -> Result<VersionGraph, String> {
    match own {
        Some(OwnConfig { config, .. }) => {
            let is_onnx = matches!(config.backend.as_str(), "" | "onnxruntime" | "stateful");
            let is_named = !config.default_model_filename.is_empty() || version.join("model.onnx").exists();
            if is_named || !is_onnx || is_ensemble(config) {
                return Ok(VersionGraph::AsItIs);
            }
            onnx_file(version).map(VersionGraph::Renamed)
        }
        // Without a configuration of its own, a stateful model is one of `low_latency_transformation`.
        None if model.stateful.is_some() => onnx_file(version).map(VersionGraph::WithStates),
        None => onnx_file(version).map(VersionGraph::Renamed),
    }
}

fn file_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// The remedy for a model in another format.
const EXPORT: &str = "export the original model to ONNX, with its states as inputs and outputs";

/// The name of the only ONNX file in a folder.
fn onnx_file(version: &Path) -> Result<String, String> {
    let names = file_names(version).map_err(|error| error.to_string())?;
    let onnx: Vec<&String> = names.iter().filter(|name| name.ends_with(".onnx")).collect();
    let has = |endings: &[&str]| names.iter().any(|name| endings.iter().any(|ending| name.ends_with(ending)));
    match onnx.as_slice() {
        [name] => Ok((*name).clone()),
        [] if has(&[".xml"]) => Err(format!(
            "OpenVINO IR (ReadValue, Assign, TensorIterator) is not served; {EXPORT}. For LSTM, GRU and RNN nodes of that file \
             low_latency_transformation makes the states"
        )),
        [] if has(&[".nnet", ".mdl", ".raw", ".ark"]) => Err(format!("Kaldi models are not served; {EXPORT}")),
        _ => Err(format!("{} does not have exactly one .onnx file", version.display())),
    }
}

/// The files and folders that a configuration in the base path may name: all but versions and configurations.
fn shared_entries(base_path: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs_err::read_dir(base_path)? {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        let is_ours = name.to_str().is_some_and(|name| {
            let is_version = version_of(name).is_some() && path.is_dir();
            is_version || name.starts_with('.') || ["config.pbtxt", "sequor.toml", "lost+found"].contains(&name)
        });
        if !is_ours {
            names.push(name);
        }
    }
    Ok(names)
}

/// A configuration that leaves inputs and outputs to the graph.
fn config(model: &OvmsModel) -> String {
    let mut text = format!("name: {}\nbackend: \"onnxruntime\"\n", quoted(&model.name));
    text += "default_model_filename: \"model.onnx\"\n";
    text += &instances_line(model.nireq.unwrap_or(1));
    if let Some(policy) = &model.version_policy {
        text += &policy_line(policy);
    }
    text
}

fn instances_line(count: u16) -> String {
    format!("instance_group [ {{ count: {count} kind: KIND_CPU }} ]\n")
}

fn policy_line(policy: &VersionPolicy) -> String {
    let policy = match policy {
        VersionPolicy::All => "all { }".to_owned(),
        VersionPolicy::Latest(number) => format!("latest {{ num_versions: {number} }}"),
        VersionPolicy::Specific(versions) => format!("specific {{ versions: {versions:?} }}"),
    };
    format!("version_policy: {{ {policy} }}\n")
}

/// The lines for the states that `low_latency_transformation` finds. Each version is read by itself: large graphs need their memory twice.
fn states(model: &OvmsModel, versions: &[VersionPlan]) -> Result<String, String> {
    let Some(stateful) = model.stateful else { return Ok(String::new()) };
    let mut newest = String::new();
    for VersionPlan { number, graph } in versions {
        let path = model.base_path.join(number.to_string()).join(graph.file().unwrap_or_default());
        let bytes = fs_err::read(&path).map_err(|error| error.to_string())?;
        let transformed = onnx::transform(&bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        newest = sequences(&transformed, stateful.max_sequence_number);
    }
    Ok(newest)
}

/// The `sequence_batching` section for a graph whose states were made inputs and outputs. Each request runs alone, as in OVMS.
fn sequences(transformed: &Transformed, most: u32) -> String {
    let mut text = "max_batch_size: 0\nsequence_batching {\n".to_owned();
    let most = i32::try_from(most).unwrap_or(i32::MAX).max(1);
    let _ = writeln!(text, "  oldest {{ max_candidate_sequences: {most} }}");
    if let Some(start) = &transformed.start {
        let control = "kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ]";
        let _ = writeln!(text, "  control_input [ {{ name: {} control [ {{ {control} }} ] }} ]", quoted(start));
    }
    for NamedState { input, output, dtype, dims } in &transformed.states {
        let _ = writeln!(
            text,
            "  state [ {{ input_name: {} output_name: {} data_type: {} dims: {dims:?} }} ]",
            quoted(input),
            quoted(output),
            dtype.config_name(),
        );
    }
    text + "}\n"
}

/// A text in the syntax of protobuf's text format.
fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for c in text.chars() {
        match c {
            '\\' | '"' => quoted.extend(['\\', c]),
            c if c.is_ascii_control() => {
                let _ = write!(quoted, "\\{:03o}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_any_character_is_one_text() {
        let name = "a\"\\\n\u{7f}é";
        let config = text::parse(Path::new("c"), &format!("name: {}", quoted(name))).unwrap();
        assert_eq!(config.name, name);
    }
}
