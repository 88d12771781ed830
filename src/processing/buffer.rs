//! A tensor that a guest fills, before it is one.

use sequor_core::{DataType, Shape};

/// A tensor that a guest fills.
#[derive(Debug)]
pub struct TensorBuffer {
    pub(super) dtype: DataType,
    pub(super) shape: Shape,
    pub(super) bytes: Vec<u8>,
}
