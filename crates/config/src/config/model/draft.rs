//! Builds a model's configuration: without its graph as a [`Draft`], with it as [`ModelSettings`]. Steps: read, name, complete, normalise,
//! validate, resolve.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sequor_core::Dims;
use sequor_proto::ModelConfig;
use sequor_proto::model_config::SchedulingChoice;
use sequor_proto::model_sequence_batching::State;

use super::locate::Places;
use super::report::{ConfigSources, Report};
use super::sequor_toml::{SequorToml, bare};
use super::settings::{BackendKind, ModelSettings, Scheduling, SessionTuning, VersionPolicy};
use super::signature::Signature;
use super::{
    complete, cpu_only, fit, graphless, json, metric_tags, names, normalise, padding, refuse, resolve, state_padding,
    state_pairs, stateful, text, tuning, validate, versions,
};
use crate::config::fault::{Fault, code, in_order};
use crate::config::place::Place;
use crate::config::server::file::{ModelSection, ServerLimits};
use crate::error::At;

/// The server's settings for all configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether missing parts of a configuration are completed from the graph.
    pub auto_complete: bool,
    /// The `max_batch_size` of a completed model that can batch.
    pub default_max_batch_size: u32,
    /// Whether instances that ask for a GPU run on the CPU.
    pub cpu_only: bool,
    pub limits: ServerLimits,
}

impl Default for Options {
    fn default() -> Self {
        let ModelSection { auto_complete, default_max_batch_size, .. } = ModelSection::default();
        Options { auto_complete, default_max_batch_size, cpu_only: false, limits: ServerLimits::default() }
    }
}

/// The texts of a configuration, and facts about its directory.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub directory: PathBuf,
    /// The model's name, if the directory has another one.
    pub name: Option<String>,
    pub config: ConfigSource,
    /// The file that faults name, if config.pbtxt was generated from another file.
    pub config_path: Option<PathBuf>,
    /// The text of sequor.toml, if there is one.
    pub sequor_toml: Option<String>,
    /// Names of the files in the first version directory.
    pub files: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub enum ConfigSource {
    /// No file: everything comes from the graph.
    #[default]
    None,
    /// config.pbtxt.
    Text(String),
    /// The `config` parameter of a load request.
    Json(String),
}

/// A state with its batch on an axis that config.pbtxt cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedState {
    /// Its `input_name`.
    pub name: String,
    pub axis: usize,
    /// Whether `sequor.toml` has a table for it, with other keys.
    pub has_table: bool,
}

impl MovedState {
    /// The lines of `sequor.toml` that set the axis.
    pub fn toml(&self) -> String {
        format!("[state.{}]\nbatch_axis = {}\n", bare(&self.name), self.axis)
    }
}

/// A configuration that passed all checks that need no graph.
#[derive(Debug, Clone)]
pub struct Draft {
    pub name: String,
    pub directory: PathBuf,
    pub backend: BackendKind,
    /// The name of the graph's file within a version directory.
    pub file_name: String,
    pub versions: VersionPolicy,
    pub(super) config: ModelConfig,
    toml: SequorToml,
    pub(super) path: PathBuf,
    pub(super) places: Places,
    pub(super) options: Options,
    /// Whether the model has a configuration of its own.
    is_configured: bool,
    /// Notes about fields without effect.
    notes: Vec<Fault>,
    tuning: SessionTuning,
}

/// Reads the configuration of the model in this directory.
pub fn read(directory: &Path, options: &Options) -> Result<Draft, Vec<Fault>> {
    Draft::parse(Sources::read(directory)?, options)
}

impl Sources {
    /// Reads the configuration files in a model's directory.
    pub fn read(directory: &Path) -> Result<Sources, Vec<Fault>> {
        let fault = |e: &std::io::Error| {
            vec![Fault { at: Place::UNKNOWN.at(directory), code: code::FILE, what: e.to_string() }]
        };
        let versions = versions::versions_in(directory).map_err(|e| fault(&e))?;
        let first = versions.first().map(|v| names_in(&directory.join(v.to_string())));
        let config = optional(&directory.join("config.pbtxt")).map_err(|e| fault(&e))?;
        Ok(Sources {
            directory: directory.to_owned(),
            config: config.map_or(ConfigSource::None, ConfigSource::Text),
            sequor_toml: optional(&directory.join("sequor.toml")).map_err(|e| fault(&e))?,
            files: first.transpose().map_err(|e| fault(&e))?.unwrap_or_default(),
            ..Sources::default()
        })
    }
}

fn optional(file: &Path) -> std::io::Result<Option<String>> {
    match fs_err::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn names_in(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs_err::read_dir(directory)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

impl Draft {
    /// Builds the draft, or returns all faults of the texts.
    pub fn parse(sources: Sources, options: &Options) -> Result<Draft, Vec<Fault>> {
        let Sources { directory, name, config, config_path, sequor_toml, files } = sources;
        let toml_text = sequor_toml.unwrap_or_default();
        let toml = SequorToml::parse(&directory.join("sequor.toml"), &toml_text);
        let is_configured = !matches!(config, ConfigSource::None);
        let config_path = config_path.unwrap_or_else(|| directory.join("config.pbtxt"));
        let parsed = parse_config(config_path, config);
        let ((mut config, path, places), toml) = match (parsed, toml) {
            (Ok(parsed), Ok(toml)) => (parsed, toml),
            (parsed, toml) => {
                let faults = parsed.err().into_iter().flatten().chain(toml.err().into_iter().flatten());
                return Err(in_order(faults.collect()));
            }
        };
        let own_name = || directory.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let own_name = name.unwrap_or_else(own_name);
        let kind = fill(&mut config, &toml, &own_name, &files);
        let moved = if options.cpu_only { cpu_only::move_to_cpu(&mut config) } else { None };
        let is_complete = kind != DraftKind::Graph || !options.auto_complete || !complete::is_needed(&config);
        let normal = normal(&config, kind);
        let texts = ConfigSources { toml: &toml, directory: &directory, path: &path, places: &places };
        let mut report = Report::new(&normal, texts, options.limits, is_complete);
        names::check(&mut report, &own_name);
        let (notes, tuning) = check(&mut report, &config, kind, moved);
        let faults = in_order(report.faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Draft {
            is_configured,
            notes: in_order(notes),
            tuning,
            name: config.name.clone(),
            backend: if kind == DraftKind::Plugin { BackendKind::Plugin } else { resolve::backend(&config) },
            file_name: config.default_model_filename.clone(),
            versions: resolve::versions(&normal),
            options: options.clone(),
            directory,
            config,
            toml,
            path,
            places,
        })
    }

    /// The configuration's options for loading the graph.
    pub fn tuning(&self) -> &SessionTuning {
        &self.tuning
    }

    /// Notes about fields without effect.
    pub fn notes(&self) -> &[Fault] {
        &self.notes
    }

    /// A note about a field that has no effect in this server.
    pub fn note(&self, field: &str, what: String) -> Fault {
        Fault { at: self.places.get(field).at(&self.path), code: code::NOTE_NO_EFFECT, what }
    }

    /// The place of the instance groups in the configuration.
    pub fn instances_at(&self) -> At {
        self.places.get("instance_group[0]").at(&self.path)
    }

    /// The place of a sample of `model_warmup`.
    pub fn warmup_at(&self, sample: usize) -> At {
        self.places.get(&format!("model_warmup[{sample}]")).at(&self.path)
    }

    /// The place of the accelerator for CPUs in the configuration.
    pub fn accelerator_at(&self) -> At {
        self.places.get("optimization.execution_accelerators.cpu_execution_accelerator").at(&self.path)
    }

    /// The graph's file in a version directory. If its path is a directory, the graph is the file `model.onnx` in it, as in Triton.
    pub fn file(&self, version: u64) -> PathBuf {
        let path = self.directory.join(version.to_string()).join(&self.file_name);
        if path.is_dir() { path.join("model.onnx") } else { path }
    }

    /// The key of the configuration that names the graph's file.
    pub fn file_key(&self) -> &'static str {
        if stateful::is_stateful(&self.config) { "the parameter onnx_file_name" } else { "default_model_filename" }
    }

    /// Whether the configuration declares states.
    pub fn has_states(&self) -> bool {
        match &self.config.scheduling_choice {
            Some(SchedulingChoice::SequenceBatching(sequence)) => !sequence.state.is_empty(),
            _ => false,
        }
    }

    /// The sequences that have a slot at the same time, as far as the configuration alone says.
    pub fn sequence_slots(&self) -> Option<u64> {
        let normal = normal(&self.config, DraftKind::Graph);
        let Some(SchedulingChoice::SequenceBatching(sequence)) = &normal.scheduling_choice else { return None };
        let instances = resolve::processors(&normal).len() as u64;
        let is_known = !stateful::is_stateful(&self.config);
        is_known.then(|| u64::from(resolve::slots(&normal, sequence)) * instances)
    }

    /// The states whose batch is on another axis than the configuration says, judged by the whole shapes of the graph's inputs. A state
    /// whose axis is set in `sequor.toml` is never one of them.
    pub fn moved_states(&self, inputs: &BTreeMap<String, Dims>) -> Vec<MovedState> {
        let mut config = self.config.clone();
        normalise::normalise(&mut config);
        let Draft { toml, directory, path, places, .. } = self;
        let report = Report::new(&config, ConfigSources { toml, directory, path, places }, self.options.limits, true);
        let states = report.sequence().map(|sequence| sequence.state.as_slice()).unwrap_or_default();
        let moved = |state: &State| {
            let keys = toml.keys.state.get(&state.input_name);
            let axis = fit::moved_axis(&report, inputs.get(&state.input_name)?, state)?;
            let moved = MovedState { name: state.input_name.clone(), axis, has_table: keys.is_some() };
            Some(moved).filter(|_| keys.is_none_or(|keys| keys.batch_axis.is_none()))
        };
        states.iter().filter_map(moved).collect()
    }

    /// Completes, validates and resolves the configuration against the graph, or returns all faults.
    pub fn resolve(&self, graph: &Signature) -> Result<ModelSettings, Vec<Fault>> {
        if stateful::is_stateful(&self.config) {
            return self.settle_stateful(graph);
        }
        let mut config = self.config.clone();
        let has_graph = self.backend != BackendKind::Plugin;
        if self.options.auto_complete && has_graph {
            let default = self.toml.keys.default_max_batch_size.unwrap_or(self.options.default_max_batch_size);
            let completed = complete::complete(&mut config, &self.toml.keys, graph, default);
            if let Err(what) = completed {
                let at = self.places.get("max_batch_size").at(&self.path);
                return Err(vec![Fault { at, code: code::BATCHING, what }]);
            }
        }
        normalise::normalise(&mut config);
        let Draft { toml, directory, path, places, .. } = self;
        let mut report =
            Report::new(&config, ConfigSources { toml, directory, path, places }, self.options.limits, true);
        validate::check(&mut report, &file_size);
        if report.faults.is_empty() && has_graph {
            fit::check(&mut report, graph);
        }
        if report.faults.is_empty() {
            let settings = resolve::resolve(&report, graph);
            let notes = self.notes.iter().cloned().chain(self.unpaired_states(graph, &settings)).collect();
            return Ok(ModelSettings { notes, ..settings });
        }
        Err(in_order(report.faults))
    }

    /// A note about undeclared states. A model with a configuration gets none, because its author has seen its inputs.
    fn unpaired_states(&self, graph: &Signature, settings: &ModelSettings) -> Option<Fault> {
        let is_plain = !self.is_configured && !matches!(settings.scheduling, Scheduling::Sequence(_));
        let what = state_pairs::describe(graph).filter(|_| is_plain)?;
        Some(Fault { at: self.places.get("sequence_batching").at(&self.path), code: code::NOTE_STATE, what })
    }

    /// Like `resolve`, for a model of the stateful backend, whose graph names its states.
    fn settle_stateful(&self, graph: &Signature) -> Result<ModelSettings, Vec<Fault>> {
        let mut config = self.config.clone();
        stateful::fill_defaults(&mut config);
        normalise::normalise(&mut config);
        let Draft { toml, directory, path, places, .. } = self;
        let texts = ConfigSources { toml, directory, path, places };
        let mut report = Report::new(&config, texts, self.options.limits, true);
        let translated = stateful::translate(&mut report, graph);
        let Some(translated) = translated.filter(|_| report.faults.is_empty()) else {
            return Err(in_order(report.faults));
        };
        let texts = ConfigSources { toml: &translated.toml, ..texts };
        let mut report = Report::new(&translated.config, texts, self.options.limits, true).marking_batch();
        validate::check(&mut report, &file_size);
        if report.faults.is_empty() {
            fit::check(&mut report, graph);
        }
        if !report.faults.is_empty() {
            return Err(in_order(report.faults));
        }
        let settings = ModelSettings { notes: self.notes.clone(), ..resolve::resolve(&report, graph) };
        Ok(translated.finish(settings, config))
    }
}

impl Draft {
    pub fn is_ensemble(&self) -> bool {
        self.backend == BackendKind::Ensemble
    }

    /// The models of an ensemble's steps, each once.
    pub fn members(&self) -> Vec<String> {
        let Some(SchedulingChoice::EnsembleScheduling(ensemble)) = &self.config.scheduling_choice else {
            return Vec::new();
        };
        let mut names: Vec<String> = ensemble.step.iter().map(|step| step.model_name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The settings of an ensemble. `sequences` is set if a member has sequences, and holds the shortest idle time of the members.
    pub fn settle_ensemble(&self, sequences: Option<Option<Duration>>) -> ModelSettings {
        let mut config = self.config.clone();
        normalise::normalise(&mut config);
        let Draft { toml, directory, path, places, .. } = self;
        let report = Report::new(&config, ConfigSources { toml, directory, path, places }, self.options.limits, true);
        let settled = resolve::resolve(&report, &Signature::default());
        let scheduling = match sequences {
            Some(idle) => Scheduling::Sequence(Box::new(resolve::ensemble_sequences(&report, idle))),
            None => Scheduling::Each,
        };
        ModelSettings { notes: self.notes.clone(), scheduling, instances: 1, ..settled }
    }

    /// The place of a step of an ensemble.
    pub fn step_at(&self, step: Option<usize>) -> At {
        let field = step.map_or("ensemble_scheduling".to_owned(), |n| format!("ensemble_scheduling.step[{n}]"));
        self.places.get(&field).at(&self.path)
    }
}

/// The source for the rest of a configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DraftKind {
    /// A plug-in answers every request; there is no graph.
    Plugin,
    /// The graph, read as Triton's stateful backend reads it.
    StatefulBackend,
    Graph,
}

/// Fills in names from the directory.
fn fill(config: &mut ModelConfig, toml: &SequorToml, own_name: &str, files: &[String]) -> DraftKind {
    if toml.keys.model.is_some() {
        graphless::fill(config, own_name);
        return DraftKind::Plugin;
    }
    names::fill(config, own_name, files);
    if !stateful::is_stateful(config) {
        return DraftKind::Graph;
    }
    stateful::fill_file_name(config);
    DraftKind::StatefulBackend
}

fn normal(config: &ModelConfig, kind: DraftKind) -> ModelConfig {
    let mut normal = config.clone();
    if kind == DraftKind::StatefulBackend {
        stateful::fill_defaults(&mut normal);
    }
    normalise::normalise(&mut normal);
    normal
}

/// Checks everything that needs no graph. Returns the notes and the options for loading the graph. `moved` is the first group that runs on
/// the CPU instead of a GPU.
fn check(
    report: &mut Report<'_>,
    config: &ModelConfig,
    kind: DraftKind,
    moved: Option<usize>,
) -> (Vec<Fault>, SessionTuning) {
    if names::is_ensemble(config) {
        validate::ensemble::check(report, config);
    }
    let mut notes = refuse::check(report, config);
    notes.extend(moved.map(|group| cpu_only::note(report, group)));
    if kind == DraftKind::StatefulBackend {
        notes.extend(stateful::check(report, config));
    }
    let tuning = if kind == DraftKind::Plugin { SessionTuning::default() } else { tuning::read(report) };
    metric_tags::check(report);
    padding::check(report);
    state_padding::check(report);
    validate::check(report, &file_size);
    if kind == DraftKind::Plugin {
        graphless::check(report);
        notes.extend(graphless::notes(report));
    }
    (notes, tuning)
}

fn parse_config(path: PathBuf, source: ConfigSource) -> Result<(ModelConfig, PathBuf, Places), Vec<Fault>> {
    match source {
        ConfigSource::None => Ok((ModelConfig::default(), path, Places::default())),
        ConfigSource::Text(text) => Ok((text::parse_all(&path, &text)?, path, Places::parse(&text))),
        ConfigSource::Json(text) => {
            let path = PathBuf::from("config");
            Ok((json::from_json(&path, &text).map_err(|fault| vec![fault])?, path, Places::default()))
        }
    }
}

fn file_size(path: &Path) -> Option<u64> {
    fs_err::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|m| m.len())
}
