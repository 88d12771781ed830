//! Validates the states that a run produced, then commits them. For each row, the store commits all states or none.

use sequor_core::{Dim, Shape};

use crate::device::{BufferSlice, Moves};

use super::bind_plan::BindPlan;
use super::error::StateError;
use super::host_variable::{self, HostVariable};
use super::left::Left;
use super::run::{Bound, Fresh};
use super::state_copy::StateCopy;
use super::store::{StateStorage, Store, view_of};

impl Store {
    /// Checks what a run has produced, without taking any of it: one entry a state, `None` where the run wrote where it was told.
    pub fn check(&self, bound: &Bound, fresh: &[Option<Fresh>]) -> Result<(), StateError> {
        let rows = bound.rows.len() as u64;
        for (state, produced) in self.states.iter().zip(fresh) {
            match (&state.kind, produced) {
                (StateStorage::Fixed { .. }, None) => {}
                (StateStorage::DeviceVariable(..) | StateStorage::HostVariable { .. }, None) => {
                    return Err(StateError::Missing { state: state.spec.output.clone() });
                }
                (_, Some(produced)) if state.spec.row_of(&produced.shape, rows).is_some() => {}
                (_, Some(produced)) => {
                    let want = match state.spec.batch_axis {
                        Some(axis) => state.spec.dims.with(axis, Dim::Fixed(rows)),
                        None => state.spec.dims.clone(),
                    };
                    let (state, got) = (state.spec.output.clone(), produced.shape.clone());
                    return Err(StateError::Shape { state, got, want: want.to_string(), rows });
                }
            }
        }
        Ok(())
    }

    /// Takes the new states of the rows for which `good` says so, all of a row's or none. Everything was checked before.
    pub fn commit(&mut self, bound: &Bound, fresh: Vec<Option<Fresh>>, good: &[bool]) -> Result<(), StateError> {
        self.commit_with_copies(bound, fresh, good, &[]).map(drop)
    }

    /// Commits, and copies the new states of the rows for which `copied` says so: one entry a row of the batch.
    pub fn commit_with_copies(
        &mut self,
        bound: &Bound,
        fresh: Vec<Option<Fresh>>,
        good: &[bool],
        copied: &[bool],
    ) -> Result<Vec<Option<StateCopy>>, StateError> {
        let takes = |n: usize| good.get(n).copied().unwrap_or(false);
        let mut taken: Vec<(usize, u32)> = Vec::with_capacity(bound.rows.len());
        taken
            .extend(bound.rows.iter().enumerate().filter_map(|(n, row)| Some((n, (*row)?))).filter(|(n, _)| takes(*n)));
        // Everything that can fail comes before the first change of a slot.
        let left = self.split(bound, fresh, &taken)?;
        let copies = if copied.contains(&true) { self.copy_rows(bound, &left, copied)? } else { Vec::new() };
        let flips = matches!(bound.plan, BindPlan::InPlace { .. }) && self.terms.sides > 1;
        self.scatter(bound.rows.len(), &taken, &left, flips)?;
        if flips {
            for (_, slot) in &taken {
                self.change(*slot, |view| view.side = 1 - view.side);
            }
        }
        self.settle(left, &taken);
        for (_, slot) in &taken {
            self.change(*slot, |view| view.fresh = false);
        }
        Ok(copies)
    }

    /// What a run has left of the states that are not in the arena, ready to be taken.
    fn split(
        &mut self,
        bound: &Bound,
        fresh: Vec<Option<Fresh>>,
        taken: &[(usize, u32)],
    ) -> Result<Vec<Left>, StateError> {
        let count = bound.rows.len();
        let mut out = Vec::with_capacity(self.states.len());
        for (state, produced) in self.states.iter_mut().zip(fresh) {
            let torn = || StateError::Torn { state: state.spec.output.clone() };
            let row = |shape: &Shape| state.spec.row_of(shape, count as u64).ok_or_else(torn);
            out.push(match (&mut state.kind, produced) {
                (StateStorage::DeviceVariable(growing, _), Some(Fresh { shape, data })) => {
                    Left::Growth(growing.grow(&state.spec, row(&shape)?, data, taken)?)
                }
                (StateStorage::HostVariable { .. }, Some(Fresh { shape, data })) if count == 1 => {
                    Left::HostVariable(vec![HostVariable { shape: row(&shape)?, data }])
                }
                (StateStorage::HostVariable { .. }, Some(Fresh { shape, data })) => {
                    Left::HostVariable(host_variable::split(&state.spec, &row(&shape)?, count, &data)?)
                }
                _ => Left::Nothing,
            });
        }
        Ok(out)
    }

    /// Moves what a run has left to where it is kept. Where sides are flipped, states in the arena lie there already.
    fn scatter(&mut self, count: usize, taken: &[(usize, u32)], left: &[Left], flips: bool) -> Result<(), StateError> {
        let (arena, slots) = (&self.arena, &self.slots);
        let mut moves = Moves::new(&*self.device, &mut self.scratch);
        for (state, left) in self.states.iter().zip(left) {
            match (&state.kind, left) {
                (StateStorage::Fixed { index, layout, taken: buffer, .. }, _) if !flips => {
                    moves.set(layout.scatter(count))?;
                    for (n, slot) in taken {
                        if let Some(to) = arena.slice(*index, *slot, view_of(slots, *slot).side) {
                            moves.row(Some(BufferSlice::of(buffer, n * layout.inner)), to)?;
                        }
                    }
                }
                (StateStorage::DeviceVariable(growing, _), Left::Growth(growth)) => {
                    growing.scatter(growth, count, taken, &mut moves)?;
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

    fn settle(&mut self, left: Vec<Left>, taken: &[(usize, u32)]) {
        for (state, left) in self.states.iter_mut().zip(left) {
            match (&mut state.kind, left) {
                (StateStorage::DeviceVariable(growing, _), Left::Growth(growth)) => growing.settle(growth, taken),
                (StateStorage::HostVariable { slots, .. }, Left::HostVariable(rows)) => {
                    let mut rows: Vec<Option<HostVariable>> = rows.into_iter().map(Some).collect();
                    for (n, slot) in taken {
                        if let (Some(place), Some(row)) = (slots.get_mut(*slot as usize), rows.get_mut(*n)) {
                            *place = row.take();
                        }
                    }
                }
                _ => {}
            }
        }
    }
}
