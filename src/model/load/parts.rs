//! What a load has besides its settings: what the server gives it, and what stands around its graph or in its place.

use std::sync::Arc;

use sequor_core::{Hold, LoadLimits};

use crate::config::model::place::Auto;
use crate::model::runtime::LoadRates;
use crate::scheduling::key_interner::KeyInterner;
use crate::telemetry::ModelMetrics;

use super::ensemble::LoadEnsemble;
use super::initializer::LoadInitializer;
use super::processors::Processors;
use super::response_cache::LoadCache;
use super::tier::{LoadDurability, StateTier};

/// What a load has besides its settings.
#[derive(Debug)]
pub(in crate::model) struct LoadParts {
    pub(in crate::model) metrics: Arc<ModelMetrics>,
    /// Triton's test aid, which `oldest` ignores.
    pub(in crate::model) hold: Option<Hold>,
    /// Maximum number of candidates that a policy sees.
    pub(in crate::model) candidates: u32,
    /// Texts that became key features.
    pub(in crate::model) texts: Arc<KeyInterner>,
    /// Batches that an instance on an accelerator may have under way.
    pub(in crate::model) depth: u8,
    /// What became of instances that may run on a GPU or on the CPU.
    pub(in crate::model) auto: Auto,
    /// What makes the states of its sequences durable before their answers leave.
    pub(in crate::model) tier: Option<Arc<dyn StateTier>>,
    /// How its sequences outlive the process, if they do.
    pub(in crate::model) durable: Option<LoadDurability>,
    /// The processors in front of the graph, if it has any.
    pub(in crate::model) processors: Option<Processors>,
    /// What makes the first states of its sequences, if config.pbtxt does not.
    pub(in crate::model) initializer: Option<LoadInitializer>,
    /// Its steps, if it is an ensemble. It has no graph then.
    pub(in crate::model) ensemble: Option<LoadEnsemble>,
    /// Its answers, if they are kept.
    pub(in crate::model) cache: Option<LoadCache>,
    /// What its instances wait for before a run, if they do.
    pub(in crate::model) rates: Option<LoadRates>,
}

impl LoadParts {
    /// The parts of a load that has a graph alone.
    pub(in crate::model) fn new(metrics: Arc<ModelMetrics>) -> LoadParts {
        LoadParts {
            metrics,
            hold: None,
            candidates: LoadLimits::default().candidates,
            texts: Arc::default(),
            depth: 1,
            auto: Auto::NotAsked,
            tier: None,
            durable: None,
            processors: None,
            initializer: None,
            ensemble: None,
            cache: None,
            rates: None,
        }
    }
}
