//! How large the states are whose size changes, so that their memory can be accounted for: now, and after a run.

use sequor_core::Shape;

use super::error::StateError;
use super::host_variable;
use super::run::{Bound, Fresh};
use super::spec::StateSpec;
use super::store::{StateStorage, Store};

impl Store {
    /// Whether the size of a state changes from step to step.
    pub fn grows(&self) -> bool {
        self.states.iter().any(|state| !matches!(state.kind, StateStorage::Fixed { .. }))
    }

    /// Bytes of these states in a slot.
    pub fn growing_bytes(&self, slot: u32) -> u64 {
        let bytes = self.states.iter().map(|state| match &state.kind {
            StateStorage::Fixed { .. } => 0,
            StateStorage::DeviceVariable(growing, _) => growing.bytes(&state.spec, slot),
            StateStorage::HostVariable { slots, .. } => {
                slots.get(slot as usize).and_then(Option::as_ref).map_or(0, |loose| loose.data.len())
            }
        });
        bytes.sum::<usize>() as u64
    }

    /// Bytes of these states for each row of a batch, padding included, once what the run has produced is committed.
    pub fn growing_bytes_after(&self, bound: &Bound, fresh: &[Option<Fresh>]) -> Result<Vec<u64>, StateError> {
        let mut after = vec![0; bound.rows.len()];
        for (state, produced) in self.states.iter().zip(fresh) {
            let (false, Some(produced)) = (matches!(state.kind, StateStorage::Fixed { .. }), produced) else {
                continue;
            };
            let sizes = row_sizes(&state.spec, produced, bound.rows.len())?;
            for (sum, size) in after.iter_mut().zip(sizes) {
                *sum += size as u64;
            }
        }
        Ok(after)
    }
}

/// Bytes of each row of what a run has produced of a state.
fn row_sizes(spec: &StateSpec, produced: &Fresh, count: usize) -> Result<Vec<usize>, StateError> {
    let torn = || StateError::Torn { state: spec.output.clone() };
    let row: Shape = spec.row_of(&produced.shape, count as u64).ok_or_else(torn)?;
    if let (None, true) = (spec.dtype.size(), count > 1) {
        return Ok(host_variable::split(spec, &row, count, &produced.data)?.iter().map(|row| row.data.len()).collect());
    }
    let size = match spec.dtype.size() {
        Some(size) => row.elements().and_then(|n| usize::try_from(n).ok()?.checked_mul(size)).ok_or_else(torn)?,
        None => produced.data.len(),
    };
    Ok(vec![size; count])
}
