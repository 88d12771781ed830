//! The tensors of a model that an initializer sees.

use crate::processing::TensorPort;

/// The tensors of a model.
#[derive(Debug, Clone, Default)]
pub struct InitializerPorts {
    /// Its states, without the batch dimension.
    pub states: Vec<TensorPort>,
    /// The inputs of requests.
    pub request: Vec<TensorPort>,
    /// The inputs of the graph's steps.
    pub step: Vec<TensorPort>,
}
