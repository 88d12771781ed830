//! State memory beyond the size at START. The states of some sequences grow from step to step, and `limits.state` bounds them too.

use std::collections::BTreeMap;

use crate::state::budget::{Budget, HeldBytes, NoRoom, Ticket};
use crate::state::{ChunkCache, StateSpec};

/// The memory of the sequences in an instance's slots beyond the size at START.
#[derive(Debug)]
pub(super) struct GrownStates {
    budget: Budget,
    /// Memory of ended sequences. It is trimmed to make room for states that grow.
    chunk_cache: ChunkCache,
    /// Bytes of the growing states at START. The ticket of the START accounts for them.
    at_start: u64,
    by_slot: BTreeMap<u32, Ticket>,
    /// Growth of all instances of the load together.
    held: HeldBytes,
}

/// Memory reserved for slots whose states are about to have a new size. Dropping it gives the memory back.
#[derive(Debug)]
pub(super) struct ReservedGrowth(Vec<NewSize>);

#[derive(Debug)]
struct NewSize {
    slot: u32,
    /// Bytes beyond the size at START.
    beyond: u64,
    more: Option<Ticket>,
}

impl GrownStates {
    pub(in crate::model) fn new(
        budget: Budget,
        chunk_cache: ChunkCache,
        states: &[StateSpec],
        held: HeldBytes,
    ) -> GrownStates {
        let at_start = states.iter().filter(|state| state.grows()).map(StateSpec::bytes).fold(0, u64::saturating_add);
        GrownStates { budget, chunk_cache, at_start, by_slot: BTreeMap::new(), held }
    }

    /// Takes over memory that was reserved for the state that a slot is about to get.
    pub(super) fn prepay(&mut self, slot: u32, reserved: Ticket) {
        let (before, now) = (self.beyond(slot), reserved.bytes());
        self.by_slot.insert(slot, reserved);
        self.held.change(before, now);
    }

    /// Bytes that a slot holds beyond the size at START.
    fn beyond(&self, slot: u32) -> u64 {
        self.by_slot.get(&slot).map_or(0, Ticket::bytes)
    }

    /// Reserves memory for slots whose growing states are about to have these sizes in bytes. It reserves for all of them or for none.
    pub(in crate::model) fn reserve(
        &self,
        sizes: impl IntoIterator<Item = (u32, u64)>,
    ) -> Result<ReservedGrowth, NoRoom> {
        let one = |(slot, bytes): (u32, u64)| {
            let beyond = bytes.saturating_sub(self.at_start);
            let has = self.beyond(slot);
            let more = if beyond > has { Some(self.budget.take(beyond - has)?) } else { None };
            Ok(NewSize { slot, beyond, more })
        };
        let reserved = sizes.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
        if reserved.iter().any(|size| size.more.is_some()) {
            self.chunk_cache.trim();
        }
        Ok(ReservedGrowth(reserved))
    }

    /// Records that the states have their new sizes.
    pub(in crate::model) fn apply(&mut self, reserved: ReservedGrowth) {
        for NewSize { slot, beyond, more } in reserved.0 {
            let before = self.beyond(slot);
            match (self.by_slot.get_mut(&slot), more) {
                (Some(ticket), Some(more)) => ticket.merge(more),
                (Some(ticket), None) => ticket.shrink_to(beyond),
                (None, Some(more)) => {
                    self.by_slot.insert(slot, more);
                }
                (None, None) => {}
            }
            self.held.change(before, self.beyond(slot));
        }
    }

    /// Records that the slot holds a state of the size at START, or none.
    pub(super) fn reset(&mut self, slot: u32) {
        if let Some(ticket) = self.by_slot.remove(&slot) {
            self.held.change(ticket.bytes(), 0);
        }
    }
}

impl Drop for GrownStates {
    fn drop(&mut self) {
        self.held.change(self.by_slot.values().map(Ticket::bytes).sum(), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use sequor_core::{DataType, Dims, Shape, Time};

    use super::*;
    use crate::device::{Device, Host};
    use crate::initializing::{KeptLookup, KeptStates};
    use crate::state::{InitialValue, StateValue, StateValues, Store};
    use crate::telemetry::KeptMetrics;

    /// States in use and kept memory stay within the limit together, without a START in between.
    #[test]
    fn kept_memory_makes_room_for_a_state_that_grows() {
        let budget = Budget::new(8 << 20);
        let chunk_cache = ChunkCache::new(budget.clone(), || Time(0));
        let device: Arc<dyn Device> = Arc::new(Host);
        let state = StateSpec {
            input: "S".to_owned(),
            output: "T".to_owned(),
            dtype: DataType::Fp32,
            dims: Dims::from_wire(&[1 << 20]),
            batch_axis: Some(0),
            storage: DataType::Fp32,
            initial: InitialValue { shape: Shape::new(&[1 << 20]), data: None },
            same_buffer: false,
            padding: None,
        };
        let mut ended = Store::new(&device, vec![state], 1, false, chunk_cache.clone()).unwrap();
        ended.init(0).unwrap();
        ended.free(0).unwrap();
        assert!(chunk_cache.bytes() >= 4 << 20);
        let held = HeldBytes::default();
        let mut grown = GrownStates::new(budget.clone(), chunk_cache.clone(), &[], held.clone());
        let reserved = grown.reserve([(0, 8 << 20)]).unwrap();
        grown.apply(reserved);
        assert_eq!((budget.used(), chunk_cache.bytes()), (budget.limit(), 0));
        assert_eq!(held.get(), 8 << 20);
        grown.reset(0);
        assert_eq!(held.get(), 0);
    }

    /// States that initializers keep make room for a state that grows in a run, not only for a START.
    #[test]
    fn kept_states_of_initializers_are_evicted_for_a_state_that_grows() {
        let budget = Budget::new(8 << 20);
        let kept = KeptStates::new(u64::MAX, budget.clone(), KeptMetrics::default());
        let KeptLookup::Missing(permit) = kept.find_now("p") else { panic!("nothing is kept yet") };
        let value = StateValue { shape: Shape::new(&[1 << 20]), bytes: Bytes::from(vec![0; 4 << 20]) };
        permit.keep(&StateValues::new(vec![value]));
        assert!(kept.bytes() > 4 << 20);
        let mut grown =
            GrownStates::new(budget.clone(), ChunkCache::new(budget.clone(), || Time(0)), &[], HeldBytes::default());
        let reserved = grown.reserve([(0, 6 << 20)]).unwrap();
        grown.apply(reserved);
        assert_eq!((kept.bytes(), budget.used()), (0, 6 << 20));
    }
}
