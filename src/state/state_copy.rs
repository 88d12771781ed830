//! Copies the states that a commit takes, for a tier that makes them durable.
//!
//! The device copies in its order of work, before the slot changes again. So a copy holds the states of its own commit, even if the slot runs again
//! before the copy is read.

use std::collections::BTreeMap;

use sequor_core::Shape;

use crate::device::{Buffer, BufferSlice, DeviceError, Moves, Owned, Scratch};

use super::error::StateError;
use super::left::Left;
use super::run::Bound;
use super::snapshot::{SnapshotError, file};
use super::spec::StateSpec;
use super::store::{StateStorage, Store};

/// The states of one sequence as of one commit. Read it after the device has passed a fence behind the commit.
#[derive(Debug)]
pub struct StateCopy(Vec<CopiedState>);

#[derive(Debug)]
struct CopiedState {
    /// Without the batch dimension.
    shape: Shape,
    memory: CopiedMemory,
}

#[derive(Debug)]
enum CopiedMemory {
    /// This many bytes of it.
    Device(Buffer, usize),
    Host(Owned),
}

impl StateCopy {
    /// The states as a `.safetensors` file, as [`Store::snapshot`] makes one.
    pub fn file(&self, specs: &[StateSpec], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError> {
        file(specs.iter(), &self.pairs().map_err(StateError::from)?, metadata)
    }

    /// Shape and bytes of each state.
    pub(super) fn pairs(&self) -> Result<Vec<(Shape, Vec<u8>)>, DeviceError> {
        self.0.iter().map(CopiedState::value).collect()
    }

    /// Bytes of the states.
    pub fn len(&self) -> usize {
        self.0.iter().map(|state| state.memory.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl CopiedState {
    fn value(&self) -> Result<(Shape, Vec<u8>), DeviceError> {
        let bytes = match &self.memory {
            CopiedMemory::Device(buffer, len) => buffer.get(0..*len)?,
            CopiedMemory::Host(data) => data.as_ref().to_vec(),
        };
        Ok((self.shape.clone(), bytes))
    }
}

impl CopiedMemory {
    fn len(&self) -> usize {
        match self {
            CopiedMemory::Device(_, len) => *len,
            CopiedMemory::Host(data) => data.len(),
        }
    }
}

impl Store {
    /// Copies what a run has left of the rows that are `wanted`; `None` for the others. Changes no slot.
    pub(super) fn copy_rows(
        &mut self,
        bound: &Bound,
        left: &[Left],
        wanted: &[bool],
    ) -> Result<Vec<Option<StateCopy>>, StateError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let is_wanted = |n: usize| wanted.get(n).copied().unwrap_or(false);
        let rows = bound.rows.iter().enumerate();
        let copies = rows.map(|(n, slot)| {
            let wanted = slot.is_some() && is_wanted(n);
            wanted.then(|| self.copy_row(bound, left, n, &mut scratch)).transpose()
        });
        let copies = copies.collect();
        self.scratch = scratch;
        copies
    }

    fn copy_row(&self, bound: &Bound, left: &[Left], n: usize, scratch: &mut Scratch) -> Result<StateCopy, StateError> {
        let copies: Result<Vec<_>, StateError> =
            self.states.iter().zip(left).map(|(state, left)| self.memory_for(&state.kind, left, n)).collect();
        let copies = copies?;
        let mut moves = Moves::new(&*self.device, scratch);
        for (state, (left, copy)) in left.iter().zip(&copies).enumerate() {
            let CopiedMemory::Device(to, len) = &copy.memory else { continue };
            if *len == 0 {
                continue;
            }
            let to = BufferSlice::of(to, 0);
            match left {
                Left::Growth(growth) => growth.copy_row(bound.rows.len(), n, to, &mut moves)?,
                _ => self.copy_fixed(bound, state, n, to, &mut moves)?,
            }
        }
        moves.run()?;
        Ok(StateCopy(copies))
    }

    /// Memory for the copy of one state. States on the host that can change in size are shared, for nothing writes them in place.
    fn memory_for(&self, kind: &StateStorage, left: &Left, n: usize) -> Result<CopiedState, StateError> {
        let device = |shape: &Shape, len: usize| -> Result<CopiedState, StateError> {
            let memory = CopiedMemory::Device(Buffer::new(&self.device, len)?, len);
            Ok(CopiedState { shape: shape.clone(), memory })
        };
        match (kind, left) {
            (StateStorage::Fixed { row, layout, .. }, _) => device(row, layout.row()),
            (_, Left::Growth(growth)) => device(growth.row(), growth.row_bytes()),
            (_, Left::HostVariable(rows)) => {
                let row = rows.get(n).cloned();
                let row = row.map(|row| CopiedState { shape: row.shape, memory: CopiedMemory::Host(row.data) });
                row.ok_or(StateError::NoSlot(0))
            }
            (_, Left::Nothing) => Err(StateError::NoSlot(0)),
        }
    }
}
