//! One state of all slots of an instance: its specification, and its values between two runs. The differences between the kinds of memory
//! are handled here.

use sequor_core::{Dim, Padding, Shape};

use crate::device::{Buffer, DeviceError, Owned};

use super::bound::Fresh;
use super::budget::Budget;
use super::device_variable::DeviceVariable;
use super::error::StateError;
use super::fixed::FixedState;
use super::host_variable::{self, HostVariable, HostVariables};
use super::left::Left;
use super::spec::StateSpec;

#[derive(Debug)]
pub(super) struct StoredState {
    pub(super) spec: StateSpec,
    pub(super) kind: StateStorage,
}

#[derive(Debug)]
pub(super) enum StateStorage {
    Fixed(FixedState),
    /// On an accelerator, with the batch's shape.
    DeviceVariable(DeviceVariable, Shape),
    HostVariable(HostVariables),
}

impl StoredState {
    pub(super) fn fixed(&self) -> Option<&FixedState> {
        match &self.kind {
            StateStorage::Fixed(fixed) => Some(fixed),
            StateStorage::DeviceVariable(..) | StateStorage::HostVariable(_) => None,
        }
    }

    pub(super) fn fixed_mut(&mut self) -> Option<&mut FixedState> {
        match &mut self.kind {
            StateStorage::Fixed(fixed) => Some(fixed),
            StateStorage::DeviceVariable(..) | StateStorage::HostVariable(_) => None,
        }
    }

    /// Gives a slot the state at START. A state in the arena is written only when the slot first runs.
    pub(super) fn init(&mut self, slot: u32) {
        match &mut self.kind {
            StateStorage::Fixed(_) => {}
            StateStorage::DeviceVariable(variable, _) => variable.init(slot, &self.spec),
            StateStorage::HostVariable(variables) => variables.init(slot, &self.spec),
        }
    }

    /// Drops a slot's value. The arena frees its own memory.
    pub(super) fn free(&mut self, slot: u32) {
        match &mut self.kind {
            StateStorage::Fixed(_) => {}
            StateStorage::DeviceVariable(variable, _) => variable.free(slot),
            StateStorage::HostVariable(variables) => variables.free(slot),
        }
    }

    // === shapes and sizes ===

    /// The shape of a slot's value, if it can change.
    pub(super) fn variable_shape(&self, slot: u32) -> Option<&Shape> {
        match &self.kind {
            StateStorage::Fixed(_) => None,
            StateStorage::DeviceVariable(variable, _) => variable.shape(slot),
            StateStorage::HostVariable(variables) => variables.get(slot).map(|value| &value.shape),
        }
    }

    /// Bytes of a slot's value, if its size can change.
    pub(super) fn variable_bytes(&self, slot: u32) -> usize {
        match &self.kind {
            StateStorage::Fixed(_) => 0,
            StateStorage::DeviceVariable(variable, _) => variable.bytes(&self.spec, slot),
            StateStorage::HostVariable(variables) => variables.bytes(slot),
        }
    }

    /// Bytes of a slot's value.
    pub(super) fn bytes(&self, slot: u32) -> usize {
        self.fixed().map_or_else(|| self.variable_bytes(slot), |fixed| fixed.layout().kept_row())
    }

    /// Bytes allocated for slots outside the arena.
    pub(super) fn variable_allocated(&self) -> usize {
        match &self.kind {
            StateStorage::Fixed(_) => 0,
            StateStorage::DeviceVariable(variable, _) => variable.allocated(),
            StateStorage::HostVariable(variables) => variables.allocated(),
        }
    }

    /// Bytes of each row of a run's output, for a state whose size can change.
    pub(super) fn variable_sizes(&self, produced: &Fresh, count: usize) -> Result<Vec<usize>, StateError> {
        let (spec, torn) = (&self.spec, || self.torn());
        let row = spec.row_of(&produced.shape, count as u64).ok_or_else(torn)?;
        if let Some((padding, lengths)) = self.lengths_after(produced, &row)? {
            let bytes = |length: u64| {
                let elements = host_variable::with_length(&row, padding, length).elements()?;
                usize::try_from(elements).ok()?.checked_mul(spec.dtype.size()?)
            };
            return lengths.into_iter().map(|length| bytes(length).ok_or_else(torn)).collect();
        }
        if let (None, true) = (spec.dtype.size(), count > 1) {
            let rows = host_variable::split(spec, &row, count, &produced.data)?;
            return Ok(rows.iter().map(|row| row.data.len()).collect());
        }
        let size = match spec.dtype.size() {
            Some(size) => row.elements().and_then(|n| usize::try_from(n).ok()?.checked_mul(size)).ok_or_else(torn)?,
            None => produced.data.len(),
        };
        Ok(vec![size; count])
    }

    /// The length of each row of a run's output, if the state is padded. `row` is the shape of a row as produced.
    pub(super) fn lengths_after(
        &self,
        produced: &Fresh,
        row: &Shape,
    ) -> Result<Option<(&Padding, Vec<u64>)>, StateError> {
        let (StateStorage::HostVariable(variables), Some(padding)) = (&self.kind, &self.spec.padding) else {
            return Ok(None);
        };
        let lengths = variables.lengths_after(&self.spec, padding, row, produced.lengths.as_deref())?;
        Ok(Some((padding, lengths)))
    }

    // === a run ===

    /// Sets the shape of the batch's tensor. Joins the rows of host states that are not in the arena.
    pub(super) fn shape_batch(&mut self, rows: &[Option<u32>], budget: &Budget) -> Result<(), StateError> {
        match &mut self.kind {
            StateStorage::Fixed(fixed) => fixed.shape_batch(&self.spec, rows.len() as u64),
            StateStorage::DeviceVariable(variable, shape) => {
                if !variable.ready(&self.spec, rows)? {
                    return Err(StateError::Mixed { state: self.spec.input.clone() });
                }
                *shape = variable.input(&self.spec, rows).0;
            }
            StateStorage::HostVariable(variables) => variables.join(&self.spec, rows, budget)?,
        }
        Ok(())
    }

    /// Checks a run's output for a batch of `rows`. `None` means that the run wrote to the given memory.
    pub(super) fn check(&self, produced: Option<&Fresh>, rows: u64) -> Result<(), StateError> {
        let spec = &self.spec;
        match produced {
            None if self.fixed().is_some() => Ok(()),
            None => Err(StateError::Missing { state: spec.output.clone() }),
            Some(produced) => {
                if let Some(row) = spec.row_of(&produced.shape, rows) {
                    return self.lengths_after(produced, &row).map(drop);
                }
                let want = match spec.batch_axis {
                    Some(axis) => spec.dims.with(axis, Dim::Fixed(rows)),
                    None => spec.dims.clone(),
                };
                let (state, got) = (spec.output.clone(), produced.shape.clone());
                Err(StateError::Shape { state, got, want: want.to_string(), rows })
            }
        }
    }

    /// Splits a run's output for a batch of `count` rows into the values that a commit takes. Changes no slot.
    pub(super) fn split(
        &mut self,
        produced: Option<Fresh>,
        count: usize,
        taken: &[(usize, u32)],
    ) -> Result<Left, StateError> {
        let Some(produced) = produced.filter(|_| self.fixed().is_none()) else { return Ok(Left::Nothing) };
        let row = self.spec.row_of(&produced.shape, count as u64).ok_or_else(|| self.torn())?;
        let spec = &self.spec;
        Ok(match (&mut self.kind, &spec.padding) {
            (StateStorage::Fixed(_), _) => Left::Nothing,
            (StateStorage::DeviceVariable(variable, _), _) => {
                Left::Growth(variable.grow(spec, row, produced.data, taken)?)
            }
            (StateStorage::HostVariable(variables), Some(padding)) => {
                Left::HostVariable(variables.split_padded(spec, padding, row, produced)?)
            }
            (StateStorage::HostVariable(_), None) if count == 1 => {
                Left::HostVariable(vec![HostVariable { shape: row, data: produced.data }])
            }
            (StateStorage::HostVariable(_), None) => {
                Left::HostVariable(host_variable::split(spec, &row, count, &produced.data)?)
            }
        })
    }

    /// Applies the split values of these rows.
    pub(super) fn store_states(&mut self, left: Left, taken: &[(usize, u32)]) {
        match (&mut self.kind, left) {
            (StateStorage::DeviceVariable(variable, _), Left::Growth(growth)) => variable.store_states(growth, taken),
            (StateStorage::HostVariable(variables), Left::HostVariable(rows)) => variables.store_states(rows, taken),
            _ => {}
        }
    }

    // === one value ===

    /// The value of a slot that was bound alone, by gathering: one row in the graph's own type. Its shape has no batch dimension.
    pub(super) fn value(&self, slot: u32) -> Result<(Shape, Vec<u8>), DeviceError> {
        match &self.kind {
            StateStorage::Fixed(fixed) => Ok((fixed.row().clone(), fixed.gathered()?)),
            StateStorage::DeviceVariable(variable, _) => variable.get(&self.spec, slot),
            StateStorage::HostVariable(variables) => {
                let value = variables.get(slot);
                Ok(value.map(|value| (value.shape.clone(), value.data.as_ref().to_vec())).unwrap_or_default())
            }
        }
    }

    /// Prepares a value for a commit of one row. On an accelerator it is returned as memory for [`DeviceVariable::put`].
    pub(super) fn give<B>(&mut self, shape: Shape, bytes: B) -> Result<GivenValue, DeviceError>
    where
        B: AsRef<[u8]> + Into<Vec<u8>>,
    {
        Ok(match &mut self.kind {
            StateStorage::Fixed(fixed) => {
                fixed.write_first_row(bytes.as_ref())?;
                GivenValue::Written
            }
            StateStorage::DeviceVariable(variable, _) => GivenValue::Held(shape, variable.holding(bytes.as_ref())?),
            StateStorage::HostVariable(_) => {
                let length = self.spec.padding.as_ref().map(|padding| host_variable::length(&shape, padding));
                let lengths = length.map(|length| vec![i64::try_from(length).unwrap_or(i64::MAX)]);
                let shape = self.spec.batched(&shape, 1);
                GivenValue::Produced(Fresh { shape, data: Owned::from_vec(bytes.into()), lengths })
            }
        })
    }

    fn torn(&self) -> StateError {
        StateError::Torn { state: self.spec.output.clone() }
    }
}

/// A value given to a state, before it is in a slot.
#[derive(Debug)]
pub(super) enum GivenValue {
    /// It is in the memory that a run would have written.
    Written,
    /// It looks like the output of a run.
    Produced(Fresh),
    Held(Shape, Buffer),
}
