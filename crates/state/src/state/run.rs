//! A batch in the store. Its states are bound, in place or gathered into one tensor. The run's output is checked, copied and committed. For
//! each row, the store commits all states or none.

use sequor_core::{Padding, Shape};

use crate::device::{Buffer, BufferSlice, DeviceError, MemorySpan, Moves};
use crate::tensor::rows;

use super::bind_plan::{BindPlan, choose};
use super::bound::{Bound, Fresh, StateOut};
use super::error::StateError;
use super::fixed::CarriedSlots;
use super::left::Left;
use super::state_copy::{CopySource, StateCopy};
use super::store::Store;
use super::stored_state::{StateStorage, StoredState};

impl Store {
    // === before the run ===

    /// Makes the states of these slots readable for a run: in place, or gathered. `None` is a padding row of zeros.
    pub fn bind(&mut self, rows: Vec<Option<u32>>) -> Result<Bound, StateError> {
        self.slots.check(&rows)?;
        // The core gives a slot its first state before it lets it run. Without this check a run could read another sequence's state.
        if let Some(slot) = rows.iter().flatten().find(|slot| !self.is_live(**slot)) {
            return Err(StateError::NotLive(*slot));
        }
        let plan = choose(&rows, self.slots.views(), self.constraints);
        self.shape_batch(&rows)?;
        match &plan {
            BindPlan::InPlace { first, side, carry } => self.carry(&rows, *first, *side, carry)?,
            BindPlan::Moved => self.gather(&rows)?,
        }
        Ok(Bound { rows, plan })
    }

    /// Gathers the states of one slot, even if binding them in place would be cheaper.
    pub(super) fn bind_moved(&mut self, slot: u32) -> Result<Bound, StateError> {
        let rows = vec![Some(slot)];
        self.slots.check(&rows)?;
        self.shape_batch(&rows)?;
        self.gather(&rows)?;
        Ok(Bound { rows, plan: BindPlan::Moved })
    }

    fn shape_batch(&mut self, rows: &[Option<u32>]) -> Result<(), StateError> {
        let budget = self.cache.budget();
        self.states.iter_mut().try_for_each(|state| state.shape_batch(rows, budget))
    }

    /// Prepares a run in place. Copies rows from the other side, and writes first states and the zeros of padding rows.
    fn carry(&mut self, rows: &[Option<u32>], first: u32, side: u8, moved: &[u32]) -> Result<(), StateError> {
        let fresh: Vec<u32> = rows.iter().flatten().copied().filter(|slot| self.slots.view(*slot).fresh).collect();
        let cleared = self.slots.stale_padding(rows, first, side);
        let carried = CarriedSlots { side, moved, fresh: &fresh, cleared: &cleared };
        let mut moves = Moves::new(&*self.device, &mut self.scratch);
        for state in &self.states {
            let Some(fixed) = state.fixed() else { continue };
            fixed.carry((&state.spec, &self.arena), &carried, &mut moves)?;
        }
        gather_growing(&self.states, rows, &mut moves)?;
        moves.run()?;
        self.copied += moved.len() as u64;
        cleared.into_iter().for_each(|slot| self.slots.clear(slot, side));
        moved.iter().for_each(|slot| self.slots.set_side(*slot, side));
        rows.iter().flatten().for_each(|slot| self.slots.write_first(*slot, side));
        Ok(())
    }

    /// Copies the rows of the batch into the memory that the run reads.
    fn gather(&mut self, rows: &[Option<u32>]) -> Result<(), StateError> {
        self.ensure_batch_buffers(rows.len(), true)?;
        let mut moves = Moves::new(&*self.device, &mut self.scratch);
        for state in &self.states {
            let Some(fixed) = state.fixed() else { continue };
            fixed.gather(rows, (&state.spec, &self.arena), &self.slots, &mut moves)?;
        }
        gather_growing(&self.states, rows, &mut moves)?;
        moves.run()?;
        self.copied += rows.len() as u64;
        Ok(())
    }

    /// Provides memory for outputs of a run in place that will be scattered. Call it before [`Store::output`].
    pub fn ready(&mut self, bound: &Bound) -> Result<(), StateError> {
        if self.constraints.sides < 2 && matches!(bound.plan, BindPlan::InPlace { .. }) {
            self.ensure_batch_buffers(bound.rows.len(), false)?;
        }
        Ok(())
    }

    // === where the run reads and writes ===

    /// The memory of a state that a run reads, by the state's number.
    ///
    /// # Safety
    /// The span must not be used after the store was changed again.
    pub unsafe fn input(&self, bound: &Bound, state: usize) -> Result<(&Shape, MemorySpan<'_>), StateError> {
        let Some(StoredState { kind, spec }) = self.states.get(state) else { return Err(StateError::NoSlot(0)) };
        match kind {
            StateStorage::HostVariable(variables) => {
                let (shape, data) = variables.joined();
                Ok((shape, data.span()))
            }
            StateStorage::DeviceVariable(variable, shape) => {
                let (_, size, buffer) = variable.input(spec, &bound.rows);
                // SAFETY: as below.
                Ok((shape, unsafe { buffer.read(0..size) }?))
            }
            StateStorage::Fixed(fixed) => {
                let (buffer, at, size) = fixed.source(spec, bound, &self.arena)?;
                // SAFETY: nothing is moved into it before the store changes. The caller does not use the span after that.
                Ok((fixed.shape(), unsafe { buffer.read(at..at + size) }?))
            }
        }
    }

    /// The memory of a state that a run writes, by the state's number.
    ///
    /// # Safety
    /// As for [`Store::input`].
    pub unsafe fn output(&self, bound: &Bound, state: usize) -> Result<StateOut<'_>, StateError> {
        let Some(state) = self.states.get(state) else { return Err(StateError::NoSlot(0)) };
        let Some(fixed) = state.fixed() else { return Ok(StateOut::New) };
        let (buffer, at, size) = fixed.target(&state.spec, bound, &self.arena)?;
        // SAFETY: the run reads from elsewhere: the other side, or another buffer.
        Ok(StateOut::Into { shape: fixed.shape(), data: unsafe { buffer.write(at..at + size) }? })
    }

    /// The length of each row of a padded state that a run reads, by the state's number. Empty for other states.
    pub fn lengths(&self, state: usize) -> &[u64] {
        match self.states.get(state).map(|state| &state.kind) {
            Some(StateStorage::HostVariable(variables)) => variables.lengths(),
            _ => &[],
        }
    }

    // === the run's output ===

    /// The length of each row of a run's output for a padded state, and the state's padding.
    pub fn lengths_after(
        &self,
        bound: &Bound,
        state: usize,
        fresh: &[Option<Fresh>],
    ) -> Result<Option<(&Padding, Vec<u64>)>, StateError> {
        let Some((state, produced)) = self.states.get(state).zip(fresh.get(state).and_then(Option::as_ref)) else {
            return Ok(None);
        };
        let Some(row) = state.spec.row_of(&produced.shape, bound.rows.len() as u64) else { return Ok(None) };
        state.lengths_after(produced, &row)
    }

    /// A run's output for a state, before it is committed: the batch's shape and bytes, rows first, for any axis. `None` if the backend
    /// allocated it.
    pub fn written(&self, bound: &Bound, state: usize) -> Result<Option<(Shape, Vec<u8>)>, StateError> {
        let Some((spec, fixed)) = self.states.get(state).and_then(|state| Some((&state.spec, state.fixed()?))) else {
            return Ok(None);
        };
        let (buffer, at, size) = fixed.target(spec, bound, &self.arena)?;
        let (bytes, row, count) = (buffer.get(at..at + size)?, fixed.row(), bound.rows.len());
        let axis = spec.batch_axis.unwrap_or(0);
        if spec.batch_axis.is_none() || axis == 0 {
            return Ok(Some((spec.batched(row, count as u64), bytes)));
        }
        let parts = rows::split(spec.dtype, row, axis, count, &bytes);
        let parts = parts.ok_or_else(|| StateError::Torn { state: spec.output.clone() })?;
        Ok(Some((row.with(0, count as u64), parts.concat())))
    }

    /// The shape and bytes of the result of [`Store::lay_out`], if the state is of a fixed size.
    pub fn laid_out(&self, bound: &Bound, state: usize) -> Option<(Shape, usize)> {
        let state = self.states.get(state)?;
        let (fixed, count) = (state.fixed()?, bound.rows.len());
        let row = fixed.row();
        let shape = if state.spec.batch_axis.is_some() { row.with(0, count as u64) } else { row.clone() };
        Some((shape, fixed.layout().row() * count))
    }

    /// Submits the copy of a run's output for a state of a fixed size to `to`, rows first, for any axis.
    pub fn lay_out(&mut self, bound: &Bound, state: usize, to: &mut Buffer) -> Result<(), StateError> {
        let Some(state) = self.states.get(state) else { return Ok(()) };
        let (Some(fixed), count) = (state.fixed(), bound.rows.len()) else { return Ok(()) };
        let row = fixed.layout().row();
        to.ensure(row * count)?;
        let mut moves = Moves::new(&*self.device, &mut self.scratch);
        for n in 0..count {
            let to = BufferSlice::new(to, n * row);
            fixed.copy_row(&state.spec, (bound, &self.arena), n, to, &mut moves)?;
        }
        Ok(moves.run()?)
    }

    /// Bytes of the states that change in size, for each row of a batch including padding, after the run's output is committed.
    pub fn growing_bytes_after(&self, bound: &Bound, fresh: &[Option<Fresh>]) -> Result<Vec<u64>, StateError> {
        let mut after = vec![0; bound.rows.len()];
        for (state, produced) in self.states.iter().zip(fresh) {
            let Some(produced) = produced.as_ref().filter(|_| state.fixed().is_none()) else { continue };
            let sizes = state.variable_sizes(produced, bound.rows.len())?;
            for (sum, size) in after.iter_mut().zip(sizes) {
                *sum += size as u64;
            }
        }
        Ok(after)
    }

    // === commit ===

    /// Checks a run's output without committing any of it: one entry per state, `None` if the run wrote to the given memory.
    pub fn check(&self, bound: &Bound, fresh: &[Option<Fresh>]) -> Result<(), StateError> {
        let rows = bound.rows.len() as u64;
        self.states.iter().zip(fresh).try_for_each(|(state, produced)| state.check(produced.as_ref(), rows))
    }

    /// Commits the new states of the rows for which `good` is true, all states of a row or none. The caller has checked the output before.
    pub fn commit(&mut self, bound: &Bound, fresh: Vec<Option<Fresh>>, good: &[bool]) -> Result<(), StateError> {
        self.commit_with_copies(bound, fresh, good, &[]).map(drop)
    }

    /// Commits, and copies the new states of the rows for which `copied` is true. Returns one entry per row of the batch.
    pub fn commit_with_copies(
        &mut self,
        bound: &Bound,
        fresh: Vec<Option<Fresh>>,
        good: &[bool],
        copied: &[bool],
    ) -> Result<Vec<Option<StateCopy>>, StateError> {
        let (takes, count) = (|n: usize| good.get(n).copied().unwrap_or(false), bound.rows.len());
        let mut taken: Vec<(usize, u32)> = Vec::with_capacity(count);
        taken
            .extend(bound.rows.iter().enumerate().filter_map(|(n, row)| Some((n, (*row)?))).filter(|(n, _)| takes(*n)));
        // Every fallible operation precedes the first change of a slot.
        let states = self.states.iter_mut().zip(fresh);
        let left: Vec<Left> =
            states.map(|(state, produced)| state.split(produced, count, &taken)).collect::<Result<_, _>>()?;
        let copies = if copied.contains(&true) { self.copy_rows(bound, &left, copied)? } else { Vec::new() };
        let flips = matches!(bound.plan, BindPlan::InPlace { .. }) && self.constraints.sides > 1;
        self.scatter(count, &taken, &left, flips)?;
        for (state, left) in self.states.iter_mut().zip(left) {
            state.store_states(left, &taken);
        }
        for (_, slot) in &taken {
            if flips {
                self.slots.flip(*slot);
            }
            self.slots.set_written(*slot);
        }
        Ok(copies)
    }

    fn copy_rows(
        &mut self,
        bound: &Bound,
        left: &[Left],
        wanted: &[bool],
    ) -> Result<Vec<Option<StateCopy>>, StateError> {
        let Store { device, states, arena, cache, scratch, .. } = self;
        CopySource { device, states, arena, budget: cache.budget(), bound, left }.rows(wanted, scratch)
    }

    /// Moves a run's output to the slots. If sides are flipped, states in the arena are already in place.
    fn scatter(&mut self, count: usize, taken: &[(usize, u32)], left: &[Left], flips: bool) -> Result<(), StateError> {
        let mut moves = Moves::new(&*self.device, &mut self.scratch);
        for (state, left) in self.states.iter().zip(left) {
            match (&state.kind, left) {
                (StateStorage::Fixed(fixed), _) if !flips => {
                    fixed.scatter((count, taken), &self.arena, &self.slots, &mut moves)?;
                }
                (StateStorage::DeviceVariable(variable, _), Left::Growth(growth)) => {
                    variable.scatter(growth, count, taken, &mut moves)?;
                }
                _ => {}
            }
        }
        moves.run()?;
        if !flips {
            self.copied += taken.len() as u64;
        }
        Ok(())
    }
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
