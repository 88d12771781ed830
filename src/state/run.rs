//! Binds the states of a batch for one run: in place, or gathered into one tensor.

use sequor_core::Shape;

use crate::device::{Buffer, BufferSlice, DeviceError, MemorySpan, MemorySpanMut, Moves, Owned};
use crate::tensor::rows;

use super::bind_plan::{BindPlan, SlotView, choose};
use super::error::StateError;
use super::host_variable::{self, HostVariable};
use super::spec::Layout;
use super::store::{StateStorage, Store, StoredState, view_of};

/// How a batch was bound; to be handed back to [`Store::commit`].
#[derive(Debug)]
pub struct Bound {
    pub(super) rows: Vec<Option<u32>>,
    pub(super) plan: BindPlan,
}

/// Where a state's output goes.
#[derive(Debug)]
pub enum StateOut<'a> {
    Into {
        shape: &'a Shape,
        data: MemorySpanMut<'a>,
    },
    /// The backend allocates.
    New,
}

/// A state's output in the backend's own memory.
#[derive(Debug)]
pub struct Fresh {
    pub shape: Shape,
    pub data: Owned,
}

impl Store {
    /// Brings the states of these slots to where a run reads them: where they lie, or gathered. `None` is a padding row, of zeros.
    pub fn bind(&mut self, rows: Vec<Option<u32>>) -> Result<Bound, StateError> {
        if let Some(slot) = rows.iter().flatten().find(|slot| **slot as usize >= self.slots.len()) {
            return Err(StateError::NoSlot(*slot));
        }
        // The core gives a slot its first state before it lets it run; anything else would read another sequence's.
        if let Some(slot) = rows.iter().flatten().find(|slot| !self.view(**slot).live) {
            return Err(StateError::NotLive(*slot));
        }
        let plan = choose(&rows, &self.slots, self.terms);
        self.shape_batch(&rows)?;
        match &plan {
            BindPlan::InPlace { first, side, carry } => self.carry(&rows, *first, *side, carry)?,
            BindPlan::Moved => self.gather(&rows)?,
        }
        Ok(Bound { rows, plan })
    }

    /// Copies the rows that lie on the other side, and writes first states, and zeros for padding rows, where the run will read them.
    fn carry(&mut self, rows: &[Option<u32>], first: u32, side: u8, carry: &[u32]) -> Result<(), StateError> {
        let (arena, slots) = (&self.arena, &self.slots);
        let fresh = || rows.iter().flatten().copied().filter(|slot| view_of(slots, *slot).fresh);
        let cleared = stale_padding(rows, first, side, slots, &self.stale);
        let mut moves = Moves::new(&*self.device, &mut self.scratch);
        for state in &self.states {
            let StateStorage::Fixed { index, layout, first: initial, .. } = &state.kind else { continue };
            moves.set(layout.as_kept())?;
            for slot in carry {
                let from = arena.slice(*index, *slot, 1 - side);
                if let (Some(from), Some(to)) = (from, arena.slice(*index, *slot, side)) {
                    moves.row(Some(from), to)?;
                }
            }
            for slot in fresh() {
                if let Some(to) = arena.slice(*index, slot, side) {
                    moves.row(initial.as_ref().map(|initial| BufferSlice::of(initial, 0)), to)?;
                }
            }
            for slot in &cleared {
                if let Some(to) = arena.slice(*index, *slot, side) {
                    moves.row(None, to)?;
                }
            }
        }
        gather_growing(&self.states, rows, &mut moves)?;
        moves.run()?;
        self.copied += carry.len() as u64;
        for slot in cleared {
            if let Some(sides) = self.stale.get_mut(slot as usize) {
                *sides &= !(1 << side);
            }
        }
        for slot in carry {
            self.change(*slot, |view| view.side = side);
        }
        for slot in rows.iter().flatten() {
            self.change(*slot, |view| {
                if view.fresh {
                    *view = SlotView { live: true, fresh: false, side };
                }
            });
        }
        Ok(())
    }

    /// Copies the rows of the batch into the buffers that the run reads.
    pub(super) fn gather(&mut self, rows: &[Option<u32>]) -> Result<(), StateError> {
        let count = rows.len();
        self.ensure_batch_buffers(count, true)?;
        let (arena, slots) = (&self.arena, &self.slots);
        let mut moves = Moves::new(&*self.device, &mut self.scratch);
        for state in &self.states {
            let StateStorage::Fixed { index, layout, first, given, .. } = &state.kind else { continue };
            moves.set(layout.gather(count))?;
            for (n, row) in rows.iter().enumerate() {
                let from = row.and_then(|slot| match view_of(slots, slot) {
                    SlotView { fresh: true, .. } => first.as_ref().map(|first| BufferSlice::of(first, 0)),
                    view => arena.slice(*index, slot, view.side),
                });
                moves.row(from, BufferSlice::of(given, n * layout.inner))?;
            }
        }
        gather_growing(&self.states, rows, &mut moves)?;
        moves.run()?;
        self.copied += count as u64;
        Ok(())
    }

    /// Settles the shapes of the batch's tensors, and joins the states of the host that are not in the arena.
    pub(super) fn shape_batch(&mut self, rows: &[Option<u32>]) -> Result<(), StateError> {
        let count = rows.len() as u64;
        for state in &mut self.states {
            match &mut state.kind {
                StateStorage::Fixed { shape, row, .. } => *shape = state.spec.batched(row, count),
                StateStorage::DeviceVariable(growing, shape) => {
                    if !growing.ready(&state.spec, rows)? {
                        return Err(StateError::Mixed { state: state.spec.input.clone() });
                    }
                    *shape = growing.input(&state.spec, rows).0;
                }
                StateStorage::HostVariable { slots, given, shape } => {
                    let of = |slot: &u32| slots.get(*slot as usize).and_then(Option::as_ref);
                    let batch: Vec<Option<&HostVariable>> = rows.iter().map(|row| row.as_ref().and_then(of)).collect();
                    let Some(first) = batch.iter().flatten().next() else { continue };
                    let row = first.shape.clone();
                    if batch.iter().flatten().any(|loose| loose.shape != row) {
                        return Err(StateError::Mixed { state: state.spec.input.clone() });
                    }
                    *given = match batch.as_slice() {
                        [Some(only)] => only.data.clone(),
                        _ => Owned::from_vec(host_variable::join(&state.spec, &row, &batch)),
                    };
                    *shape = state.spec.batched(&row, count);
                }
            }
        }
        Ok(())
    }

    /// A state as a run reads it, by its number.
    ///
    /// # Safety
    /// The span must not be used after the store was changed again.
    pub unsafe fn input(&self, bound: &Bound, state: usize) -> Result<(&Shape, MemorySpan<'_>), StateError> {
        let Some(StoredState { kind, spec }) = self.states.get(state) else { return Err(StateError::NoSlot(0)) };
        match kind {
            StateStorage::HostVariable { given, shape, .. } => Ok((shape, given.span())),
            StateStorage::DeviceVariable(growing, shape) => {
                let (_, size, buffer) = growing.input(spec, &bound.rows);
                // SAFETY: as below.
                Ok((shape, unsafe { buffer.read(0..size) }?))
            }
            StateStorage::Fixed { index, layout, given, shape, .. } => {
                let size = layout.row() * bound.rows.len();
                let (buffer, at) = match bound.plan {
                    BindPlan::InPlace { first, side, .. } => self.arena.row(*index, first, side),
                    BindPlan::Moved => Some((given, 0)),
                }
                .ok_or_else(|| StateError::Missing { state: spec.input.clone() })?;
                // SAFETY: nothing is moved into it before the store changes, which the caller waits for.
                Ok((shape, unsafe { buffer.read(at..at + size) }?))
            }
        }
    }

    /// Where a run writes a state, by its number.
    ///
    /// # Safety
    /// As for [`Store::input`].
    pub unsafe fn output(&self, bound: &Bound, state: usize) -> Result<StateOut<'_>, StateError> {
        let Some(StoredState { kind, .. }) = self.states.get(state) else { return Err(StateError::NoSlot(0)) };
        let StateStorage::Fixed { shape, .. } = kind else { return Ok(StateOut::New) };
        let (buffer, at, size) = self.target(bound, state)?;
        // SAFETY: the run writes here and reads elsewhere: the other side, or another buffer.
        Ok(StateOut::Into { shape, data: unsafe { buffer.write(at..at + size) }? })
    }

    /// The part of a buffer where a run writes a state of a fixed size.
    fn target(&self, bound: &Bound, state: usize) -> Result<(&Buffer, usize, usize), StateError> {
        let Some(StoredState { kind, spec }) = self.states.get(state) else { return Err(StateError::NoSlot(0)) };
        let missing = || StateError::Missing { state: spec.output.clone() };
        let StateStorage::Fixed { index, layout, taken, .. } = kind else { return Err(missing()) };
        let size = layout.row() * bound.rows.len();
        let (buffer, at) = match bound.plan {
            BindPlan::InPlace { first, side, .. } if self.terms.sides > 1 => self.arena.row(*index, first, 1 - side),
            _ => Some((taken, 0)),
        }
        .ok_or_else(missing)?;
        if buffer.len() < at + size {
            return Err(StateError::Device(DeviceError::OutOfBounds { at, len: size, size: buffer.len() }));
        }
        Ok((buffer, at, size))
    }

    /// What a run has written for a state, before it is committed: the batch's shape and bytes, rows first, for any axis.
    /// `None` where the backend allocated.
    pub fn written(&self, bound: &Bound, state: usize) -> Result<Option<(Shape, Vec<u8>)>, StateError> {
        let Some(StoredState { kind: StateStorage::Fixed { row, .. }, spec }) = self.states.get(state) else {
            return Ok(None);
        };
        let (buffer, at, size) = self.target(bound, state)?;
        let bytes = buffer.get(at..at + size)?;
        let count = bound.rows.len();
        let axis = spec.batch_axis.unwrap_or(0);
        if spec.batch_axis.is_none() || axis == 0 {
            return Ok(Some((spec.batched(row, count as u64), bytes)));
        }
        let parts = rows::split(spec.dtype, row, axis, count, &bytes);
        let parts = parts.ok_or_else(|| StateError::Torn { state: spec.output.clone() })?;
        Ok(Some((row.with(0, count as u64), parts.concat())))
    }

    /// The shape and bytes of what [`Store::lay_out`] lays out, if the state is of a fixed size.
    pub fn laid_out(&self, bound: &Bound, state: usize) -> Option<(Shape, usize)> {
        let StoredState { kind: StateStorage::Fixed { row, layout, .. }, spec } = self.states.get(state)? else {
            return None;
        };
        let count = bound.rows.len();
        let shape = if spec.batch_axis.is_some() { row.with(0, count as u64) } else { row.clone() };
        Some((shape, layout.row() * count))
    }

    /// Asks for what a run writes for a state of a fixed size to be laid out in `to`, rows first, for any axis.
    pub fn lay_out(&mut self, bound: &Bound, state: usize, to: &mut Buffer) -> Result<(), StateError> {
        let count = bound.rows.len();
        let Some((layout, _)) = self.layout_of(state).zip(self.laid_out(bound, state)) else { return Ok(()) };
        to.ensure(layout.row() * count)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let (from, at, _) = self.target(bound, state)?;
        let mut moves = Moves::new(&*self.device, &mut scratch);
        moves.set(layout.rows_first(count))?;
        for n in 0..count {
            moves.row(Some(BufferSlice::of(from, at + n * layout.inner)), BufferSlice::of(to, n * layout.row()))?;
        }
        moves.run()?;
        self.scratch = scratch;
        Ok(())
    }

    /// Copies row `n` of what a run has written for a state of a fixed size.
    pub(super) fn copy_fixed<'a>(
        &'a self,
        bound: &Bound,
        state: usize,
        n: usize,
        to: BufferSlice<'a>,
        moves: &mut Moves<'a>,
    ) -> Result<(), StateError> {
        let Some(layout) = self.layout_of(state) else { return Ok(()) };
        let (from, at, _) = self.target(bound, state)?;
        moves.set(layout.rows_first(bound.rows.len()))?;
        moves.row(Some(BufferSlice::of(from, at + n * layout.inner)), to)?;
        Ok(())
    }

    fn layout_of(&self, state: usize) -> Option<Layout> {
        match self.states.get(state)?.kind {
            StateStorage::Fixed { layout, .. } => Some(layout),
            StateStorage::DeviceVariable(..) | StateStorage::HostVariable { .. } => None,
        }
    }

    /// Provides memory for what a run in place leaves to be scattered. Call it before [`Store::output`].
    pub fn ready(&mut self, bound: &Bound) -> Result<(), StateError> {
        if self.terms.sides < 2 && matches!(bound.plan, BindPlan::InPlace { .. }) {
            self.ensure_batch_buffers(bound.rows.len(), false)?;
        }
        Ok(())
    }
}

/// The padding rows whose slot has no state, and holds on this side what an earlier sequence left there.
fn stale_padding(rows: &[Option<u32>], first: u32, side: u8, slots: &[SlotView], stale: &[u8]) -> Vec<u32> {
    let padding = (first..).zip(rows).filter(|(_, row)| row.is_none()).map(|(slot, _)| slot);
    let is_stale = |slot: &u32| {
        let view = view_of(slots, *slot);
        (!view.live || view.fresh) && stale.get(*slot as usize).is_some_and(|sides| sides & (1 << side) != 0)
    };
    padding.filter(is_stale).collect()
}

fn gather_growing<'a>(
    states: &'a [StoredState],
    rows: &[Option<u32>],
    moves: &mut Moves<'a>,
) -> Result<(), DeviceError> {
    for state in states {
        if let StateStorage::DeviceVariable(growing, _) = &state.kind {
            growing.gather(&state.spec, rows, moves)?;
        }
    }
    Ok(())
}
