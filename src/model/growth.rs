//! State memory beyond what a START takes: the states of some sequences grow from step to step, and `limits.state` bounds them all the same.

use std::collections::BTreeMap;

use crate::state::StateSpec;
use crate::state::budget::{Budget, NoRoom, Ticket};

/// What the sequences in an instance's slots hold beyond the size at START.
#[derive(Debug)]
pub(super) struct GrownStates {
    budget: Budget,
    /// Bytes at START of the states that grow. The ticket of the START holds them.
    at_start: u64,
    by_slot: BTreeMap<u32, Ticket>,
}

/// Memory for slots whose states are about to have a new size. Dropping it gives the memory back.
#[derive(Debug)]
pub(super) struct Reserved(Vec<NewSize>);

#[derive(Debug)]
struct NewSize {
    slot: u32,
    /// Bytes beyond the size at START.
    beyond: u64,
    more: Option<Ticket>,
}

impl GrownStates {
    pub(super) fn new(budget: Budget, states: &[StateSpec]) -> GrownStates {
        let at_start = states.iter().filter(|state| state.grows()).map(StateSpec::bytes).sum();
        GrownStates { budget, at_start, by_slot: BTreeMap::new() }
    }

    /// Reserves memory for slots whose growing states are about to have so many bytes: for all of them, or for none.
    pub(super) fn reserve(&self, sizes: impl IntoIterator<Item = (u32, u64)>) -> Result<Reserved, NoRoom> {
        let one = |(slot, bytes): (u32, u64)| {
            let beyond = bytes.saturating_sub(self.at_start);
            let has = self.by_slot.get(&slot).map_or(0, Ticket::bytes);
            let more = if beyond > has { Some(self.budget.take(beyond - has)?) } else { None };
            Ok(NewSize { slot, beyond, more })
        };
        sizes.into_iter().map(one).collect::<Result<_, _>>().map(Reserved)
    }

    /// The states have their new size.
    pub(super) fn apply(&mut self, reserved: Reserved) {
        for NewSize { slot, beyond, more } in reserved.0 {
            match (self.by_slot.get_mut(&slot), more) {
                (Some(ticket), Some(more)) => ticket.merge(more),
                (Some(ticket), None) => ticket.shrink_to(beyond),
                (None, Some(more)) => {
                    self.by_slot.insert(slot, more);
                }
                (None, None) => {}
            }
        }
    }

    /// The slot holds a state of the size at START, or none.
    pub(super) fn reset(&mut self, slot: u32) {
        self.by_slot.remove(&slot);
    }
}
