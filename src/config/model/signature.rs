//! What a graph takes and gives, in the configuration's terms: all that completion and validation know of a model's file.

use sequor_core::{DataType, Dims};

/// A graph's inputs and outputs, whole shapes with the batch dimension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphSignature {
    /// What every run must be given.
    pub inputs: Vec<GraphPort>,
    /// Inputs the graph has a value for, which a run may replace (ONNX: initializers that are also inputs).
    pub optional: Vec<GraphPort>,
    pub outputs: Vec<GraphPort>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphPort {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
}

impl GraphSignature {
    /// Any input, whether it must be given or not.
    pub fn input(&self, name: &str) -> Option<&GraphPort> {
        self.inputs.iter().chain(&self.optional).find(|port| port.name == name)
    }

    pub fn output(&self, name: &str) -> Option<&GraphPort> {
        self.outputs.iter().find(|port| port.name == name)
    }
}
