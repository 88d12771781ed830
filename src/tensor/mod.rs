//! Tensors on host memory: what requests bring and answers carry, and rows ↔ tensors on slices. Nothing here knows of devices, models or wires.

pub mod finite;
pub mod padded_rows;
pub mod rows;

use bytes::Bytes;
use sequor_core::{DataType, Shape};

/// A tensor on host memory: row-major, little-endian, unpadded; BYTES as 4-byte length and bytes, element after element.
/// The data may stand at any address: aligning is the stager's work.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dtype: DataType,
    pub shape: Shape,
    pub data: Bytes,
}

/// A tensor under its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    pub name: String,
    pub tensor: Tensor,
}
