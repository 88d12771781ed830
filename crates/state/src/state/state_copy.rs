//! Copies the states that a commit takes, for a tier that makes them durable.
//!
//! The device copies in its order of work, before the slot changes again. So a copy contains the states of its own commit, even if the slot
//! runs again before the copy is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use sequor_core::Shape;

use crate::device::{Buffer, BufferSlice, Device, DeviceError, Moves, Owned, Scratch};

use super::arena::Arena;
use super::bound::Bound;
use super::budget::{Budget, Ticket};
use super::error::StateError;
use super::left::Left;
use super::snapshot::{SnapshotError, file};
use super::spec::StateSpec;
use super::stored_state::StoredState;
use super::values::StateValues;

/// The states of one sequence as of one commit. Read it only after the device has passed a fence behind the commit. Its bytes count against
/// the server's limit until it is dropped.
#[derive(Debug)]
pub struct StateCopy {
    states: Vec<CopiedState>,
    #[allow(dead_code, reason = "only its drop matters")]
    counted: Ticket,
}

#[derive(Debug)]
struct CopiedState {
    /// Without the batch dimension.
    shape: Shape,
    memory: CopiedMemory,
}

#[derive(Debug)]
enum CopiedMemory {
    /// A buffer, and the number of its bytes that are the state.
    Device(Buffer, usize),
    Host(Owned),
}

impl StateCopy {
    /// The states as a `.safetensors` file, as [`Store::snapshot`](super::Store::snapshot) makes one.
    pub fn file(&self, specs: &[StateSpec], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError> {
        file(specs.iter(), &self.pairs().map_err(StateError::from)?, metadata)
    }

    /// The values. Read them only after the device has passed a fence behind the commit.
    pub fn values(&self) -> Result<StateValues, DeviceError> {
        Ok(StateValues::of_pairs(self.pairs()?))
    }

    /// Shape and bytes of each state.
    fn pairs(&self) -> Result<Vec<(Shape, Vec<u8>)>, DeviceError> {
        self.states.iter().map(CopiedState::value).collect()
    }

    /// Bytes of the states.
    pub fn len(&self) -> usize {
        bytes(&self.states)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn bytes(states: &[CopiedState]) -> usize {
    states.iter().map(|state| state.memory.len()).sum()
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

/// The source of a commit's copies: the output of a batch's run, before any slot changes.
#[derive(Debug)]
pub(super) struct CopySource<'a> {
    pub(super) device: &'a Arc<dyn Device>,
    pub(super) states: &'a [StoredState],
    pub(super) arena: &'a Arena,
    pub(super) budget: &'a Budget,
    pub(super) bound: &'a Bound,
    pub(super) left: &'a [Left],
}

impl CopySource<'_> {
    /// Copies the rows that are `wanted`; `None` for the others.
    pub(super) fn rows(&self, wanted: &[bool], scratch: &mut Scratch) -> Result<Vec<Option<StateCopy>>, StateError> {
        let is_wanted = |n: usize| wanted.get(n).copied().unwrap_or(false);
        let rows = self.bound.rows.iter().enumerate();
        let copies = rows.map(|(n, slot)| {
            let wanted = slot.is_some() && is_wanted(n);
            wanted.then(|| self.row(n, scratch)).transpose()
        });
        copies.collect()
    }

    fn row(&self, n: usize, scratch: &mut Scratch) -> Result<StateCopy, StateError> {
        let copies: Result<Vec<_>, StateError> =
            self.states.iter().zip(self.left).map(|(state, left)| self.memory_for(state, left, n)).collect();
        let copies = copies?;
        let mut moves = Moves::new(&**self.device, scratch);
        for ((state, left), copy) in self.states.iter().zip(self.left).zip(&copies) {
            let CopiedMemory::Device(to, len) = &copy.memory else { continue };
            if *len == 0 {
                continue;
            }
            let to = BufferSlice::new(to, 0);
            match (left, state.fixed()) {
                (Left::Growth(growth), _) => growth.copy_row(self.bound.rows.len(), n, to, &mut moves)?,
                (_, Some(fixed)) => fixed.copy_row(&state.spec, (self.bound, self.arena), n, to, &mut moves)?,
                _ => {}
            }
        }
        moves.run()?;
        let counted = self.budget.count(bytes(&copies) as u64);
        Ok(StateCopy { states: copies, counted })
    }

    /// Memory for the copy of one state. Host states that can change in size are shared, because no code writes them in place.
    fn memory_for(&self, state: &StoredState, left: &Left, n: usize) -> Result<CopiedState, StateError> {
        let device = |shape: &Shape, len: usize| -> Result<CopiedState, StateError> {
            let memory = CopiedMemory::Device(Buffer::new(self.device, len)?, len);
            Ok(CopiedState { shape: shape.clone(), memory })
        };
        match (state.fixed(), left) {
            (Some(fixed), _) => device(fixed.row(), fixed.layout().row()),
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
