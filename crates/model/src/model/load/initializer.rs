//! The initializer of a load: the ports that it sees, the states that its answers mean, and which sequences may share a state by copy.

use std::sync::Arc;

use crate::batch::wiring::stateful;
use crate::config::model::settings::{ModelSettings, StateSettings};
use crate::initializing::{Initializer, InitializerPorts};
use crate::processing::{PortTensors, ProcessorPool, TensorPort};
use crate::state::{StateSpec, StateValue, StateValues};

use super::processors::Processors;

/// The initializer of a load, and its threads.
#[derive(Debug)]
pub(in crate::model) struct LoadInitializer {
    pub(in crate::model) initializer: Arc<Initializer>,
    pub(in crate::model) pool: Arc<ProcessorPool>,
    /// Columns of the key features that must be equal for a copy of a state.
    pub(in crate::model) copy_if_same: Vec<usize>,
}

/// First states of a sequence that replace those of config.pbtxt.
#[derive(Debug, Clone)]
pub(in crate::model) struct FirstValues {
    pub(in crate::model) values: StateValues,
    /// Whether the sequence continues from a copy. Then the model sees no START.
    pub(in crate::model) is_copy: bool,
}

impl LoadInitializer {
    /// The ports of an initializer for a model with these processors.
    pub(in crate::model) fn ports(settings: &ModelSettings, processors: Option<&Processors>) -> InitializerPorts {
        let state = |state: &StateSettings| TensorPort {
            name: state.input.clone(),
            dtype: state.dtype,
            dims: state.dims.clone(),
            optional: true,
        };
        let step = Processors::signature_of(settings).inputs;
        let request = processors.map_or_else(|| step.clone(), |processors| processors.chain.signature().inputs);
        InitializerPorts { states: stateful(settings).1.iter().map(state).collect(), request, step }
    }

    /// The states that an answer means. A state that the answer omits has the initial value of config.pbtxt.
    pub(in crate::model) fn complete(specs: &[StateSpec], given: PortTensors) -> StateValues {
        let mut given = given.into_iter();
        let value = |spec: &StateSpec| match given.next().flatten() {
            Some(tensor) => StateValue { shape: tensor.shape, bytes: tensor.data },
            None => StateValue::initial(spec),
        };
        StateValues::new(specs.iter().map(value).collect())
    }

    /// Whether a sequence with the key features `to` may begin with a copy of the state of one with `from`.
    pub(in crate::model) fn may_copy(&self, from: &[u64], to: &[u64]) -> bool {
        let is_same = |at: &usize| from.get(*at).is_some_and(|key| *key != 0 && to.get(*at) == Some(key));
        !self.copy_if_same.is_empty() && self.copy_if_same.iter().all(is_same)
    }
}
