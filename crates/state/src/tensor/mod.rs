//! Tensors in host memory, for requests and answers, and conversions between rows and tensors on slices. This module does not know devices,
//! models or wire formats.

pub mod finite;
pub mod padded_rows;
pub mod rows;

use bytes::Bytes;
use sequor_core::{DataType, Shape};

/// A tensor in host memory: row-major, little-endian, unpadded. BYTES elements are a 4-byte length and the bytes, one after the other. The
/// data may be at any alignment: the staging aligns it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dtype: DataType,
    pub shape: Shape,
    pub data: Bytes,
}

/// A tensor and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    pub name: String,
    pub tensor: Tensor,
}
