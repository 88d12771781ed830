//! What clients are told of a model.

use sequor_core::{DataType, Dims};

/// What clients are told of a model. Controls, states and batch inputs are not listed; shapes have the batch dimension in front.
#[derive(Debug, Clone)]
pub struct Metadata {
    pub name: String,
    pub versions: Vec<u64>,
    pub platform: String,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
}

#[derive(Debug, Clone)]
pub struct TensorMetadata {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
}
