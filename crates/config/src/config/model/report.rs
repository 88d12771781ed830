//! The state that all checks share: the configuration, the places of its fields, and the faults found so far.

use std::path::Path;

use sequor_core::{Dim, Dims};
use sequor_proto::{ModelConfig, ModelSequenceBatching, model_config::SchedulingChoice};

use super::locate::Places;
use super::sequor_toml::SequorToml;
use crate::config::fault::{Fault, code};
use crate::config::server::file::ServerLimits;

pub(super) struct Report<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) toml: &'a SequorToml,
    /// The model's directory.
    pub(super) directory: &'a Path,
    path: &'a Path,
    places: &'a Places,
    /// Whether `max_batch_size` is final. Before completion, 0 is not final.
    settled: bool,
    /// Whether -1 in inputs and outputs marks the batch dimension, as in the stateful backend, instead of the first dimension.
    marks_batch: bool,
    pub(super) limits: ServerLimits,
    pub(super) faults: Vec<Fault>,
}

/// All texts of one configuration.
#[derive(Clone, Copy)]
pub(super) struct ConfigSources<'a> {
    pub(super) toml: &'a SequorToml,
    pub(super) directory: &'a Path,
    pub(super) path: &'a Path,
    pub(super) places: &'a Places,
}

impl<'a> Report<'a> {
    pub(super) fn new(config: &'a ModelConfig, texts: ConfigSources<'a>, limits: ServerLimits, settled: bool) -> Self {
        let ConfigSources { toml, directory, path, places } = texts;
        Report { config, toml, directory, path, places, settled, marks_batch: false, limits, faults: Vec::new() }
    }

    /// Sets `marks_batch`.
    pub(super) fn marking_batch(self) -> Self {
        Report { marks_batch: true, ..self }
    }

    pub(super) fn marks_batch(&self) -> bool {
        self.marks_batch
    }

    /// For an input or output with these dims: the batch axis of the graph's tensor, and the dims without it.
    pub(super) fn batch_of(&self, dims: &Dims) -> (Option<usize>, Dims) {
        let marked = dims.0.iter().position(|dim| *dim == Dim::Any).filter(|_| self.marks_batch);
        let Some(axis) = marked else { return (self.batches().then_some(0), dims.clone()) };
        (Some(axis), dims.without(axis))
    }

    /// A fault of a field of config.pbtxt.
    pub(super) fn fault(&mut self, field: &str, code: &'static str, what: impl Into<String>) {
        self.faults.push(Fault { at: self.places.get(field).at(self.path), code, what: what.into() });
    }

    /// A fault of the entry with this key in a map.
    pub(super) fn entry_fault(&mut self, field: &str, key: &str, code: &'static str, what: impl Into<String>) {
        let at = self.places.entry(field, key).at(self.path);
        self.faults.push(Fault { at, code, what: what.into() });
    }

    /// A note about a field of config.pbtxt that has no effect.
    pub(super) fn note(&self, field: &str, what: String) -> Fault {
        Fault { at: self.places.get(field).at(self.path), code: code::NOTE_NO_EFFECT, what }
    }

    /// A note about one entry of a map that has no effect.
    pub(super) fn entry_note(&self, field: &str, key: &str, what: String) -> Fault {
        Fault { at: self.places.entry(field, key).at(self.path), code: code::NOTE_NO_EFFECT, what }
    }

    /// A fault of a key of sequor.toml.
    pub(super) fn toml_fault(&mut self, key: &[&str], code: &'static str, what: impl Into<String>) {
        self.faults.push(Fault { at: self.toml.at(key), code, what: what.into() });
    }

    /// Whether the field is written in config.pbtxt.
    pub(super) fn has(&self, field: &str) -> bool {
        self.places.has(field)
    }

    pub(super) fn model(&self) -> &'a str {
        &self.config.name
    }

    /// Whether tensors have a batch dimension. True as long as that is undecided.
    pub(super) fn batches(&self) -> bool {
        self.config.max_batch_size > 0 || !self.settled
    }

    /// Maximum rows of a batch; no limit as long as that is undecided.
    pub(super) fn max_batch_size(&self) -> i32 {
        let open = self.config.max_batch_size == 0 && !self.settled;
        if open { i32::MAX } else { self.config.max_batch_size }
    }

    pub(super) fn sequence(&self) -> Option<&'a ModelSequenceBatching> {
        match &self.config.scheduling_choice {
            Some(SchedulingChoice::SequenceBatching(sequence)) => Some(sequence),
            _ => None,
        }
    }

    /// The axis of the batch in a state's tensor.
    pub(super) fn batch_axis(&self, state: &str) -> usize {
        self.toml.keys.state.get(state).and_then(|s| s.batch_axis).map_or(0, usize::from)
    }
}

/// The path of entry `n` of a repeated field.
pub(super) fn nth(field: &str, n: usize) -> String {
    format!("{field}[{n}]")
}
