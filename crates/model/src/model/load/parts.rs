//! The parts of a load beside its settings: server resources, and the parts around its graph or in place of it.

use std::sync::Arc;

use sequor_core::{Hold, LoadLimits};

use crate::config::model::place::Auto;
use crate::model::request::AnswerRoom;
use crate::model::runtime::LoadRates;
use crate::scheduling::key_interner::KeyInterner;
use crate::telemetry::ModelMetrics;

use super::ensemble::LoadEnsemble;
use super::initializer::LoadInitializer;
use super::processors::Processors;
use super::response_cache::LoadCache;
use super::sealing::StateTier;
use super::sequence_store::LoadDurability;

/// The parts of a load beside its settings.
#[derive(Debug)]
pub(in crate::model) struct LoadParts {
    pub(in crate::model) metrics: Arc<ModelMetrics>,
    /// Triton's test aid, which `oldest` ignores.
    pub(in crate::model) hold: Option<Hold>,
    /// Maximum number of candidates that a policy sees.
    pub(in crate::model) candidates: u32,
    /// Texts that became key features.
    pub(in crate::model) texts: Arc<KeyInterner>,
    /// Maximum number of batches in progress on an instance on an accelerator.
    pub(in crate::model) depth: u8,
    /// The outcome of the choice between GPU and CPU, for instances that allow both.
    pub(in crate::model) auto: Auto,
    /// Makes the states of its sequences durable before their answers leave.
    pub(in crate::model) tier: Option<Arc<dyn StateTier>>,
    /// How its sequences outlive the process, if they are durable.
    pub(in crate::model) durable: Option<LoadDurability>,
    /// The processors in front of the graph, if it has any.
    pub(in crate::model) processors: Option<Processors>,
    /// The initializer of its sequences' first states, if config.pbtxt does not define them.
    pub(in crate::model) initializer: Option<LoadInitializer>,
    /// Its steps, if it is an ensemble. Then it has no graph.
    pub(in crate::model) ensemble: Option<LoadEnsemble>,
    /// The cache of its answers, if they are kept.
    pub(in crate::model) cache: Option<LoadCache>,
    /// The resources that its instances acquire before a run, if any.
    pub(in crate::model) rates: Option<LoadRates>,
    /// The limit on answers that clients have not taken.
    pub(in crate::model) answers: AnswerRoom,
}

impl LoadParts {
    /// The parts of a load that has only a graph.
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
            answers: AnswerRoom::default(),
        }
    }
}
