//! A tensor while a guest fills it.

use sequor_core::{DataType, Shape};

/// A buffer that a guest fills and then turns into a tensor.
#[derive(Debug)]
pub struct TensorBuffer {
    pub(super) dtype: DataType,
    pub(super) shape: Shape,
    pub(super) bytes: Vec<u8>,
}
