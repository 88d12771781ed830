//! A graph's inputs and outputs, as a backend reads them from a file and a configuration is checked against them.

use sequor_core::{DataType, Dims};

/// A graph's inputs and outputs, with whole shapes including the batch dimension.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signature {
    /// Inputs that every run must have.
    pub inputs: Vec<Port>,
    /// Inputs for which the graph has a value that a run may replace (ONNX: initializers that are also inputs).
    pub optional: Vec<Port>,
    pub outputs: Vec<Port>,
    /// The file's description of the graph, for people.
    pub description: String,
}

/// An input or output as the graph declares it, with its whole shape including the batch dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
}

impl Signature {
    /// An input with this name, required or optional.
    pub fn input(&self, name: &str) -> Option<&Port> {
        self.inputs.iter().chain(&self.optional).find(|port| port.name == name)
    }

    pub fn output(&self, name: &str) -> Option<&Port> {
        self.outputs.iter().find(|port| port.name == name)
    }
}
