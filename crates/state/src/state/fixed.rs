//! A state of a fixed size, of all slots. Its rows are in the arena. Its own memory is for the rows of a batch that cannot be bound there.

use std::sync::Arc;

use sequor_core::Shape;

use crate::device::{Buffer, BufferSlice, Device, DeviceError, Moves, Scratch, StridedLayout};

use super::arena::Arena;
use super::bind_plan::BindPlan;
use super::bound::Bound;
use super::chunk_cache::{ChunkCache, ChunkMemory};
use super::error::StateError;
use super::slots::Slots;
use super::spec::{Layout, StateSpec};

/// Minimum bytes of a batch's buffer that is released.
const LARGE: usize = 256 << 10;

/// One state of all slots.
#[derive(Debug)]
pub(super) struct FixedState {
    /// Its number in the arena.
    index: usize,
    layout: Layout,
    /// The state at START, in the stored type; `None` is zeros.
    first: Option<Buffer>,
    /// The rows of a batch that the run reads. `taken`: those that it writes.
    given: Buffer,
    taken: Buffer,
    /// The batch's shape. `row`: that of one row.
    shape: Shape,
    row: Shape,
}

/// The slots of a batch whose rows must be written to this side before a run reads them in place.
#[derive(Debug)]
pub(super) struct CarriedSlots<'a> {
    pub(super) side: u8,
    /// Slots whose rows are on the other side.
    pub(super) moved: &'a [u32],
    /// Slots that get their first state.
    pub(super) fresh: &'a [u32],
    /// Slots that become padding rows of zeros.
    pub(super) cleared: &'a [u32],
}

impl FixedState {
    pub(super) fn new(
        device: &Arc<dyn Device>,
        spec: &StateSpec,
        (index, layout): (usize, Layout),
        row: Shape,
    ) -> Result<FixedState, DeviceError> {
        let first = first_row(device, spec, layout)?;
        let (given, taken) = (Buffer::new(device, 0)?, Buffer::new(device, 0)?);
        Ok(FixedState { index, layout, first, given, taken, shape: Shape::default(), row })
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) fn row(&self) -> &Shape {
        &self.row
    }

    /// The shape of the batch.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(super) fn shape_batch(&mut self, spec: &StateSpec, count: u64) {
        self.shape = spec.batched(&self.row, count);
    }

    // === memory of a batch ===

    /// Makes the memory that a run writes large enough for `count` rows. If it `gathers`, also the memory that it reads.
    pub(super) fn ensure(
        &mut self,
        device: &Arc<dyn Device>,
        cache: &ChunkCache,
        count: usize,
        gathers: bool,
    ) -> Result<(), DeviceError> {
        let len = self.layout.row().saturating_mul(count);
        let buffers = gathers.then_some(&mut self.given).into_iter().chain([&mut self.taken]);
        for buffer in buffers.filter(|buffer| buffer.len() < len) {
            let memory = cache.allocate(device, &[len.next_power_of_two()])?;
            if let Some(larger) = memory.buffers.into_iter().next() {
                *buffer = larger;
            }
        }
        Ok(())
    }

    /// Gives large memory of a batch to the cache.
    pub(super) fn release(&mut self, device: &Arc<dyn Device>, cache: &ChunkCache) -> Result<(), DeviceError> {
        for buffer in [&mut self.given, &mut self.taken].into_iter().filter(|buffer| buffer.len() >= LARGE) {
            let touched = buffer.len() as u64;
            let buffers = vec![std::mem::replace(buffer, Buffer::new(device, 0)?)];
            cache.keep(device, ChunkMemory { buffers, touched, is_reused: true });
        }
        Ok(())
    }

    // === moving rows ===

    /// Writes the rows that a run in place reads and that are not on its side yet.
    pub(super) fn carry<'a>(
        &'a self,
        (spec, arena): (&StateSpec, &'a Arena),
        slots: &CarriedSlots<'_>,
        moves: &mut Moves<'a>,
    ) -> Result<(), StateError> {
        let CarriedSlots { side, moved, fresh, cleared } = *slots;
        moves.set(self.layout.as_kept())?;
        for slot in moved {
            let from = self.slice(spec, arena, *slot, 1 - side)?;
            moves.row(Some(from), self.slice(spec, arena, *slot, side)?)?;
        }
        for slot in fresh {
            let to = self.slice(spec, arena, *slot, side)?;
            moves.row(self.first.as_ref().map(|first| BufferSlice::new(first, 0)), to)?;
        }
        // A padding row has no state that could be missing.
        for slot in cleared {
            if let Some(to) = arena.slice(self.index, *slot, side) {
                moves.row(None, to)?;
            }
        }
        Ok(())
    }

    /// Moves the rows of a batch to the memory that the run reads.
    pub(super) fn gather<'a>(
        &'a self,
        rows: &[Option<u32>],
        (spec, arena): (&StateSpec, &'a Arena),
        slots: &Slots,
        moves: &mut Moves<'a>,
    ) -> Result<(), StateError> {
        moves.set(self.layout.gather(rows.len()))?;
        for (n, row) in rows.iter().enumerate() {
            let from = match row.map(|slot| (slot, slots.view(slot))) {
                None => None,
                Some((_, view)) if view.fresh => self.first.as_ref().map(|first| BufferSlice::new(first, 0)),
                // Without this check a lost state would read as zeros.
                Some((slot, view)) => Some(self.slice(spec, arena, slot, view.side)?),
            };
            moves.row(from, BufferSlice::new(&self.given, n * self.layout.inner))?;
        }
        Ok(())
    }

    /// The slot's row, which must have memory.
    fn slice<'a>(
        &self,
        spec: &StateSpec,
        arena: &'a Arena,
        slot: u32,
        side: u8,
    ) -> Result<BufferSlice<'a>, StateError> {
        arena.slice(self.index, slot, side).ok_or_else(|| StateError::Lost { state: spec.input.clone(), slot })
    }

    /// Moves these rows of the run's output, of a batch of `count`, to their slots.
    pub(super) fn scatter<'a>(
        &'a self,
        (count, taken): (usize, &[(usize, u32)]),
        arena: &'a Arena,
        slots: &Slots,
        moves: &mut Moves<'a>,
    ) -> Result<(), DeviceError> {
        moves.set(self.layout.scatter(count))?;
        for (n, slot) in taken {
            if let Some(to) = arena.slice(self.index, *slot, slots.view(*slot).side) {
                moves.row(Some(BufferSlice::new(&self.taken, n * self.layout.inner)), to)?;
            }
        }
        Ok(())
    }

    /// Copies row `n` of a run's output into one piece.
    pub(super) fn copy_row<'a>(
        &'a self,
        spec: &StateSpec,
        (bound, arena): (&Bound, &'a Arena),
        n: usize,
        to: BufferSlice<'a>,
        moves: &mut Moves<'a>,
    ) -> Result<(), StateError> {
        let (from, at, _) = self.target(spec, bound, arena)?;
        moves.set(self.layout.rows_first(bound.rows.len()))?;
        Ok(moves.row(Some(BufferSlice::new(from, at + n * self.layout.inner)), to)?)
    }

    // === where a run reads and writes ===

    /// The memory that a run reads: buffer, offset and bytes.
    pub(super) fn source<'a>(
        &'a self,
        spec: &StateSpec,
        bound: &Bound,
        arena: &'a Arena,
    ) -> Result<(&'a Buffer, usize, usize), StateError> {
        let place = match bound.plan {
            BindPlan::InPlace { first, side, .. } => arena.row(self.index, first, side),
            BindPlan::Moved => Some((&self.given, 0)),
        };
        let (buffer, at) = place.ok_or_else(|| StateError::Missing { state: spec.input.clone() })?;
        Ok((buffer, at, self.layout.row() * bound.rows.len()))
    }

    /// The memory that a run writes: buffer, offset and bytes.
    pub(super) fn target<'a>(
        &'a self,
        spec: &StateSpec,
        bound: &Bound,
        arena: &'a Arena,
    ) -> Result<(&'a Buffer, usize, usize), StateError> {
        let size = self.layout.row() * bound.rows.len();
        let place = match bound.plan {
            BindPlan::InPlace { first, side, .. } if arena.has_two_sides() => arena.row(self.index, first, 1 - side),
            _ => Some((&self.taken, 0)),
        };
        let (buffer, at) = place.ok_or_else(|| StateError::Missing { state: spec.output.clone() })?;
        if buffer.len() < at + size {
            return Err(StateError::Device(DeviceError::OutOfBounds { at, len: size, size: buffer.len() }));
        }
        Ok((buffer, at, size))
    }

    // === one value ===

    /// The first gathered row, in the graph's own type.
    pub(super) fn gathered(&self) -> Result<Vec<u8>, DeviceError> {
        self.given.get(0..self.layout.row())
    }

    /// Sets the first row that a commit takes.
    pub(super) fn write_first_row(&mut self, bytes: &[u8]) -> Result<(), DeviceError> {
        self.taken.write_bytes(bytes)
    }
}

/// The state at START on the device, in the stored type; `None` is zeros.
fn first_row(device: &Arc<dyn Device>, spec: &StateSpec, layout: Layout) -> Result<Option<Buffer>, DeviceError> {
    let Some(data) = &spec.initial.data else { return Ok(None) };
    let mut bytes = data.to_vec();
    bytes.resize(layout.row(), 0);
    let (given, kept) = (Buffer::holding(device, &bytes)?, Buffer::new(device, layout.kept_row())?);
    let mut scratch = Scratch::default();
    let mut moves = Moves::new(&**device, &mut scratch);
    moves.set(StridedLayout { convert: layout.narrow, ..StridedLayout::whole(layout.row()) })?;
    moves.row(Some(BufferSlice::new(&given, 0)), BufferSlice::new(&kept, 0))?;
    moves.run()?;
    device.wait(device.fence()?)?;
    Ok(Some(kept))
}
