//! States on the host whose size may change with every step, and texts. Each value has memory of its own.
//!
//! If a row runs alone, the store takes over the memory that the backend allocated, without a copy.

use sequor_core::{DataType, Shape};

use crate::device::Owned;
use crate::tensor::rows;

use super::error::StateError;
use super::spec::StateSpec;

/// One such state, of all slots.
#[derive(Debug)]
pub(super) struct HostVariables {
    slots: Vec<Option<HostVariable>>,
    /// The rows of a batch as one tensor, and its shape.
    given: Owned,
    shape: Shape,
}

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

impl HostVariables {
    pub(super) fn new(slots: u32) -> HostVariables {
        let given = Owned::from_vec(Vec::new());
        HostVariables { slots: vec![None; slots as usize], given, shape: Shape::default() }
    }

    pub(super) fn init(&mut self, slot: u32, spec: &StateSpec) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(HostVariable::initial(spec));
        }
    }

    pub(super) fn free(&mut self, slot: u32) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = None;
        }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&HostVariable> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Bytes of a slot's value.
    pub(super) fn bytes(&self, slot: u32) -> usize {
        self.get(slot).map_or(0, |value| value.data.len())
    }

    pub(super) fn allocated(&self) -> usize {
        self.slots.iter().flatten().map(|value| value.data.len()).sum()
    }

    /// Joins the rows of a batch. A row that is alone is shared and not copied.
    pub(super) fn join(&mut self, spec: &StateSpec, rows: &[Option<u32>]) -> Result<(), StateError> {
        let batch: Vec<Option<&HostVariable>> = rows.iter().map(|row| self.get((*row)?)).collect();
        let Some(first) = batch.iter().flatten().next() else { return Ok(()) };
        let row = first.shape.clone();
        if batch.iter().flatten().any(|value| value.shape != row) {
            return Err(StateError::Mixed { state: spec.input.clone() });
        }
        let given = match batch.as_slice() {
            [Some(only)] => only.data.clone(),
            _ => Owned::from_vec(join(spec, &row, &batch)),
        };
        (self.given, self.shape) = (given, spec.batched(&row, rows.len() as u64));
        Ok(())
    }

    /// What a run reads: the batch's shape and bytes.
    pub(super) fn joined(&self) -> (&Shape, &Owned) {
        (&self.shape, &self.given)
    }

    /// Takes the new values of these rows.
    pub(super) fn settle(&mut self, rows: Vec<HostVariable>, taken: &[(usize, u32)]) {
        let mut rows: Vec<Option<HostVariable>> = rows.into_iter().map(Some).collect();
        for (n, slot) in taken {
            if let (Some(place), Some(row)) = (self.slots.get_mut(*slot as usize), rows.get_mut(*n)) {
                *place = row.take();
            }
        }
    }
}

/// A tensor of zeros, or of empty texts.
fn zeros(dtype: DataType, shape: &Shape) -> Vec<u8> {
    let elements = shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    vec![0; elements.saturating_mul(dtype.zero_size())]
}

/// Joins the rows of a batch, all of this shape; `None` is padding.
fn join(spec: &StateSpec, shape: &Shape, batch: &[Option<&HostVariable>]) -> Vec<u8> {
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
