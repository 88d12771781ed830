//! States on an accelerator whose size may change with every step. Each value has its own memory there and never passes through the host.
//!
//! The store gathers a batch from these values and moves the run's outputs back, in the same launches as for states of a fixed size.

use std::sync::Arc;

use sequor_core::{DataType, Shape};

use crate::device::{Buffer, BufferSlice, Convert, Device, DeviceError, Moves, Owned};

use super::spec::{Layout, StateSpec};

/// Maximum bytes of free memory kept for reuse, because allocation stalls an accelerator.
const KEPT: usize = 64 << 20;

/// One state of all slots.
#[derive(Debug)]
pub(super) struct DeviceVariable {
    device: Arc<dyn Device>,
    slots: Vec<Option<Grown>>,
    /// The state at START; `None` is zeros.
    first: Option<Buffer>,
    /// The rows of a batch, gathered side by side.
    given: Buffer,
    /// The shape of one row of the batch.
    row: Shape,
    /// Free memory, with sizes that are powers of two.
    free: Vec<Buffer>,
}

/// One sequence's value.
#[derive(Debug)]
struct Grown {
    /// Without the batch dimension.
    shape: Shape,
    /// `None` while it is the state at START.
    memory: Option<Buffer>,
}

/// The outputs of a run for one state, with memory for the rows that are taken.
#[derive(Debug)]
pub(super) struct Growth {
    row: Shape,
    layout: Layout,
    data: Owned,
    /// By taken row. `None` if the slot's present memory is large enough.
    more: Vec<Option<Buffer>>,
}

impl Growth {
    /// The shape of each row.
    pub(super) fn row(&self) -> &Shape {
        &self.row
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.layout.row()
    }

    /// Copies row `n` of a batch of `count`.
    pub(super) fn copy_row<'a>(
        &'a self,
        count: usize,
        n: usize,
        to: BufferSlice<'a>,
        moves: &mut Moves<'a>,
    ) -> Result<(), DeviceError> {
        moves.set(self.layout.rows_first(count))?;
        moves.row(Some(BufferSlice::of_owned(&self.data, n * self.layout.inner)), to)
    }
}

impl DeviceVariable {
    pub(super) fn new(device: &Arc<dyn Device>, spec: &StateSpec, slots: u32) -> Result<DeviceVariable, DeviceError> {
        let first = spec.initial.data.as_ref().map(|data| Buffer::holding(device, data)).transpose()?;
        let given = Buffer::new(device, 0)?;
        let slots = std::iter::repeat_with(|| None).take(slots as usize).collect();
        Ok(DeviceVariable { device: Arc::clone(device), slots, first, given, row: Shape::default(), free: Vec::new() })
    }

    pub(super) fn init(&mut self, slot: u32, spec: &StateSpec) {
        self.free(slot);
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(Grown { shape: spec.initial.shape.clone(), memory: None });
        }
    }

    pub(super) fn free(&mut self, slot: u32) {
        let held = self.slots.get_mut(slot as usize).and_then(Option::take);
        if let Some(memory) = held.and_then(|grown| grown.memory) {
            self.lay_by(memory);
        }
    }

    pub(super) fn shape(&self, slot: u32) -> Option<&Shape> {
        self.slots.get(slot as usize)?.as_ref().map(|grown| &grown.shape)
    }

    /// Bytes of a slot's value.
    pub(super) fn bytes(&self, spec: &StateSpec, slot: u32) -> usize {
        self.shape(slot).map_or(0, |shape| size(spec, shape))
    }

    /// Bytes of memory, in use and free.
    pub(super) fn allocated(&self) -> usize {
        let used = self.slots.iter().flatten().filter_map(|grown| grown.memory.as_ref());
        used.chain(&self.free).map(Buffer::len).sum()
    }

    // === a run ===

    /// Prepares to gather the rows of a batch. Returns false if they differ in shape.
    pub(super) fn ready(&mut self, spec: &StateSpec, rows: &[Option<u32>]) -> Result<bool, DeviceError> {
        let mut shapes = rows.iter().flatten().filter_map(|slot| self.shape(*slot));
        let Some(row) = shapes.next().cloned() else { return Ok(true) };
        if shapes.any(|shape| *shape != row) {
            return Ok(false);
        }
        self.given.ensure(size(spec, &row) * rows.len())?;
        self.row = row;
        Ok(true)
    }

    /// Gathers the rows. A single row with memory of its own is read in place instead.
    pub(super) fn gather<'a>(
        &'a self,
        spec: &StateSpec,
        rows: &[Option<u32>],
        moves: &mut Moves<'a>,
    ) -> Result<(), DeviceError> {
        let layout = layout(spec, &self.row);
        if self.alone(rows).is_some() || layout.row() == 0 {
            return Ok(());
        }
        moves.set(layout.gather(rows.len()))?;
        for (n, row) in rows.iter().enumerate() {
            let grown = row.and_then(|slot| self.slots.get(slot as usize)?.as_ref());
            let from = grown.and_then(|grown| grown.memory.as_ref().or(self.first.as_ref()));
            moves.row(from.map(|from| BufferSlice::new(from, 0)), BufferSlice::new(&self.given, n * layout.inner))?;
        }
        Ok(())
    }

    /// The memory of a batch's only row.
    fn alone(&self, rows: &[Option<u32>]) -> Option<&Buffer> {
        let [Some(slot)] = rows else { return None };
        self.slots.get(*slot as usize)?.as_ref()?.memory.as_ref()
    }

    /// The input of a run: the batch's shape, its bytes and its memory.
    pub(super) fn input(&self, spec: &StateSpec, rows: &[Option<u32>]) -> (Shape, usize, &Buffer) {
        let shape = spec.batched(&self.row, rows.len() as u64);
        (shape, size(spec, &self.row) * rows.len(), self.alone(rows).unwrap_or(&self.given))
    }

    /// Takes memory for the outputs of the rows that are taken. Changes no slot yet.
    pub(super) fn grow(
        &mut self,
        spec: &StateSpec,
        row: Shape,
        data: Owned,
        taken: &[(usize, u32)],
    ) -> Result<Growth, DeviceError> {
        let layout = layout(spec, &row);
        let mut more = Vec::with_capacity(taken.len());
        for (_, slot) in taken {
            let has = self.slots.get(*slot as usize).and_then(|grown| grown.as_ref()?.memory.as_ref());
            let fits = has.is_some_and(|memory| memory.len() >= layout.row().max(1));
            more.push(if fits { None } else { Some(self.take(layout.row())?) });
        }
        Ok(Growth { row, layout, data, more })
    }

    /// Moves the outputs of a run to the slots' memory.
    pub(super) fn scatter<'a>(
        &'a self,
        growth: &'a Growth,
        count: usize,
        taken: &[(usize, u32)],
        moves: &mut Moves<'a>,
    ) -> Result<(), DeviceError> {
        if growth.layout.row() == 0 {
            return Ok(());
        }
        moves.set(growth.layout.scatter(count))?;
        for ((n, slot), more) in taken.iter().zip(&growth.more) {
            let has = || self.slots.get(*slot as usize)?.as_ref()?.memory.as_ref();
            if let Some(to) = more.as_ref().or_else(has) {
                moves
                    .row(Some(BufferSlice::of_owned(&growth.data, n * growth.layout.inner)), BufferSlice::new(to, 0))?;
            }
        }
        Ok(())
    }

    /// Applies the moved values to their slots.
    pub(super) fn store_states(&mut self, growth: Growth, taken: &[(usize, u32)]) {
        for ((_, slot), more) in taken.iter().zip(growth.more) {
            let Some(Some(grown)) = self.slots.get_mut(*slot as usize) else { continue };
            grown.shape.clone_from(&growth.row);
            if let Some(outgrown) = more.and_then(|more| grown.memory.replace(more)) {
                self.lay_by(outgrown);
            }
        }
    }

    // === out and in ===

    /// A slot's value. Waits for the device.
    pub(super) fn get(&self, spec: &StateSpec, slot: u32) -> Result<(Shape, Vec<u8>), DeviceError> {
        let Some(Some(grown)) = self.slots.get(slot as usize) else { return Ok(Default::default()) };
        let len = size(spec, &grown.shape);
        let bytes = match grown.memory.as_ref().or(self.first.as_ref()) {
            Some(memory) => memory.get(0..len)?,
            None => vec![0; len],
        };
        Ok((grown.shape.clone(), bytes))
    }

    /// Memory that contains these bytes, for [`DeviceVariable::put`].
    pub(super) fn holding(&mut self, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        let mut memory = self.take(bytes.len())?;
        memory.write_bytes(bytes)?;
        Ok(memory)
    }

    pub(super) fn set(&mut self, slot: u32, shape: Shape, memory: Buffer) {
        self.free(slot);
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(Grown { shape, memory: Some(memory) });
        }
    }

    // === memory ===

    fn take(&mut self, len: usize) -> Result<Buffer, DeviceError> {
        let size = len.max(64).next_power_of_two();
        match self.free.iter().position(|buffer| buffer.len() == size) {
            Some(at) => Ok(self.free.swap_remove(at)),
            None => Buffer::new(&self.device, size),
        }
    }

    /// Keeps memory for reuse. Its submitted work is done before that of its next owner.
    fn lay_by(&mut self, memory: Buffer) {
        if self.free.iter().map(Buffer::len).sum::<usize>() + memory.len() <= KEPT {
            self.free.push(memory);
        }
    }
}

fn layout(spec: &StateSpec, row: &Shape) -> Layout {
    let axis = spec.batch_axis.unwrap_or(0).min(row.0.len());
    let product = |dims: &[u64]| Shape::new(dims).elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let (before, after) = row.0.split_at(axis);
    let inner = product(after).saturating_mul(spec.dtype.size().unwrap_or(1));
    Layout { outer: product(before), inner, kept: inner, widen: Convert::No, narrow: Convert::No }
}

fn size(spec: &StateSpec, row: &Shape) -> usize {
    layout(spec, row).row()
}

/// Whether such a state can be kept on a device. Texts are always in host memory.
pub(super) fn is_possible(spec: &StateSpec) -> bool {
    spec.dtype != DataType::Bytes
}
