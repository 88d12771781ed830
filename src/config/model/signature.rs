//! What a graph takes and gives: all that a configuration is held against, and what a backend says of a file.

use sequor_core::{DataType, Dims};

/// A graph's inputs and outputs, whole shapes with the batch dimension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signature {
    /// What every run must be given.
    pub inputs: Vec<Port>,
    /// Inputs the graph has a value for, which a run may replace (ONNX: initializers that are also inputs).
    pub optional: Vec<Port>,
    pub outputs: Vec<Port>,
    /// What the file says of the graph, for people.
    pub description: String,
}

/// An input or output as the graph declares it: whole shape, batch dimension included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
}

impl Signature {
    /// Any input, whether it must be given or not.
    pub fn input(&self, name: &str) -> Option<&Port> {
        self.inputs.iter().chain(&self.optional).find(|port| port.name == name)
    }

    pub fn output(&self, name: &str) -> Option<&Port> {
        self.outputs.iter().find(|port| port.name == name)
    }
}
