//! States on the host whose size may change with every step, and texts. Each value has memory of its own.
//!
//! If a row runs alone, the store takes over the memory that the backend allocated, without a copy.

use sequor_core::{DataType, Shape};

use crate::device::Owned;
use crate::tensor::rows;

use super::error::StateError;
use super::spec::StateSpec;

/// One sequence's value of such a state.
#[derive(Debug, Clone)]
pub(super) struct HostVariable {
    /// Without the batch dimension.
    pub(super) shape: Shape,
    pub(super) data: Owned,
}

impl HostVariable {
    /// The state at START.
    pub(super) fn initial(spec: &StateSpec) -> HostVariable {
        let shape = spec.initial.shape.clone();
        let bytes = match &spec.initial.data {
            Some(data) => data.to_vec(),
            None => zeros(spec.dtype, &shape),
        };
        HostVariable { shape, data: Owned::from_vec(bytes) }
    }
}

/// A tensor of zeros, or of empty texts.
fn zeros(dtype: DataType, shape: &Shape) -> Vec<u8> {
    let elements = shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    vec![0; elements.saturating_mul(dtype.zero_size())]
}

/// Joins the rows of a batch, all of this shape; `None` is padding.
pub(super) fn join(spec: &StateSpec, shape: &Shape, batch: &[Option<&HostVariable>]) -> Vec<u8> {
    let pad = zeros(spec.dtype, shape);
    let parts: Vec<&[u8]> = batch.iter().map(|row| row.map_or(pad.as_slice(), |loose| loose.data.as_ref())).collect();
    rows::join(spec.dtype, shape, spec.batch_axis.unwrap_or(0), &parts)
}

/// Cuts a batch back into its rows.
pub(super) fn split(
    spec: &StateSpec,
    row: &Shape,
    count: usize,
    data: &Owned,
) -> Result<Vec<HostVariable>, StateError> {
    let parts = rows::split(spec.dtype, row, spec.batch_axis.unwrap_or(0), count, data.as_ref());
    let parts = parts.ok_or_else(|| StateError::Torn { state: spec.output.clone() })?;
    Ok(parts.into_iter().map(|bytes| HostVariable { shape: row.clone(), data: Owned::from_vec(bytes) }).collect())
}
