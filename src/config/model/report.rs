//! What the checks share: the configuration at hand, where its fields stand, and the faults found so far.

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
    /// Whether `max_batch_size` is final: completion may still set one that is 0.
    settled: bool,
    /// Whether inputs and outputs mark the batch dimension with -1, as in the stateful backend, and it is not the one in front.
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

    /// For a configuration whose inputs and outputs mark their batch dimension.
    pub(super) fn marking_batch(self) -> Self {
        Report { marks_batch: true, ..self }
    }

    pub(super) fn marks_batch(&self) -> bool {
        self.marks_batch
    }

    /// The axis of the batch in the graph's tensor for an input or output of these dims, and the dims without it.
    pub(super) fn batch_of(&self, dims: &Dims) -> (Option<usize>, Dims) {
        let marked = dims.0.iter().position(|dim| *dim == Dim::Any).filter(|_| self.marks_batch);
        let Some(axis) = marked else { return (self.batches().then_some(0), dims.clone()) };
        (Some(axis), dims.without(axis))
    }

    /// A fault of a field of config.pbtxt.
    pub(super) fn fault(&mut self, field: &str, code: &'static str, what: impl Into<String>) {
        self.faults.push(Fault { at: self.places.get(field).at(self.path), code, what: what.into() });
    }

    /// A fault of one entry of a map, by its key.
    pub(super) fn entry_fault(&mut self, field: &str, key: &str, code: &'static str, what: impl Into<String>) {
        let at = self.places.entry(field, key).at(self.path);
        self.faults.push(Fault { at, code, what: what.into() });
    }

    /// A note about a field of config.pbtxt that has no effect.
    pub(super) fn note(&self, field: &str, what: String) -> Fault {
        Fault { at: self.places.get(field).at(self.path), code: code::NOTE_NO_EFFECT, what }
    }

    /// The same about one entry of a map.
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

    /// Whether tensors have a batch dimension; they may, while that is open.
    pub(super) fn batches(&self) -> bool {
        self.config.max_batch_size > 0 || !self.settled
    }

    /// The most rows of a batch; no bound while that is open.
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

    /// On which axis of its tensor a state has the batch.
    pub(super) fn batch_axis(&self, state: &str) -> usize {
        self.toml.keys.state.get(state).and_then(|s| s.batch_axis).map_or(0, usize::from)
    }
}

/// Fields of the messages beneath, spelled with their index.
pub(super) fn nth(field: &str, n: usize) -> String {
    format!("{field}[{n}]")
}
