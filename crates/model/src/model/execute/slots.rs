//! The slots of one instance: slot operations before a run, in the core's order, and the slots without state memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use sequor_core::{Req, SlotOp};

use crate::state::{SnapshotError, StateError, StateValues, Store};
use crate::telemetry::GpuMetrics;

use super::growth::GrownStates;
use super::row_work::AdoptedState;
use super::run_error::RunError;

/// The slots of an instance, with the states in them.
#[derive(Debug)]
pub(in crate::model) struct InstanceSlots {
    pub(in crate::model) store: Store,
    pub(super) grown: GrownStates,
    /// The GPU's gauges, and the state bytes last reported to them.
    gpu: Option<(GpuMetrics, i64)>,
    /// Slots whose sequences got no state memory, until the slots are freed.
    without_memory: BTreeMap<u32, RunError>,
    /// Whether the device failed while a state was written, since this was last asked for.
    pub(super) has_failed_device: bool,
}

/// A state that replaces the model's own first state in a slot.
enum GivenState {
    Snapshot(AdoptedState),
    Values(StateValues),
}

impl InstanceSlots {
    pub(super) fn new(store: Store, grown: GrownStates, gpu: Option<GpuMetrics>) -> InstanceSlots {
        let gpu = gpu.map(|gpu| (gpu, 0));
        InstanceSlots { store, grown, gpu, without_memory: BTreeMap::new(), has_failed_device: false }
    }

    /// Applies the slot operations that precede a run. `kept` finds the state that a request brought for its sequence. `first` returns, by
    /// slot, a first state that replaces the model's own.
    pub(in crate::model) fn apply(
        &mut self,
        ops: &[SlotOp],
        kept: impl FnMut(Req) -> Option<AdoptedState>,
        first: impl Fn(u32) -> Option<StateValues>,
    ) {
        self.each(ops, kept, first);
        // If there is no memory for a chunk, the STARTs that need it are refused one by one.
        let _ = self.store.adjust_chunks();
        if let (Some((gpu, reported)), false) = (&mut self.gpu, ops.is_empty()) {
            let bytes = i64::try_from(self.store.allocated()).unwrap_or(i64::MAX);
            gpu.state_bytes.add(bytes - std::mem::replace(reported, bytes));
        }
    }

    /// Applies every operation, because the core relies on all of them. A failure concerns only the sequence of that slot.
    fn each(
        &mut self,
        ops: &[SlotOp],
        mut kept: impl FnMut(Req) -> Option<AdoptedState>,
        first: impl Fn(u32) -> Option<StateValues>,
    ) {
        for op in ops {
            match op {
                SlotOp::Init(slot, _) => self.begin(slot.ix, Ok(first(slot.ix).map(GivenState::Values))),
                SlotOp::Adopt(slot, req) => {
                    let state = kept(*req).ok_or_else(|| RunError::from(StateError::NotBrought(slot.ix)));
                    self.begin(slot.ix, state.map(|state| Some(GivenState::Snapshot(state))));
                }
                // The slot had nothing to free.
                SlotOp::Free(slot) if self.without_memory.remove(&slot.ix).is_some() => {}
                SlotOp::Free(slot) => self.free(slot.ix),
            }
        }
    }

    /// Releases the memory that a slot's state grew by, before the slot is freed. Its sequence has left, and no code reads the state any
    /// more.
    pub(in crate::model) fn release_growth(&mut self, slot: u32) {
        self.grown.reset(slot);
    }

    fn free(&mut self, slot: u32) {
        if let Err(error) = self.store.free(slot) {
            tracing::error!(slot, %error, "a slot is not freed as it should be; its next sequence begins anew in it");
        }
        self.grown.reset(slot);
    }

    /// Gives a slot the model's first state or the given one. If that fails, only that sequence is not served.
    fn begin(&mut self, slot: u32, given: Result<Option<GivenState>, RunError>) {
        self.grown.reset(slot);
        let begun = match given {
            Ok(Some(given)) => self.set(slot, given),
            Ok(None) => self.store.init(slot).map_err(RunError::from),
            // The sequence must not begin anew.
            Err(error) => Err(error),
        };
        match begun {
            Err(error) => {
                self.has_failed_device |= error.has_failed_device();
                // Another sequence must not read the slot's previous state.
                if self.store.is_live(slot) {
                    self.free(slot);
                }
                self.without_memory.insert(slot, RunError::NoState(Arc::new(error)));
            }
            Ok(()) => {
                self.without_memory.remove(&slot);
            }
        }
    }

    fn set(&mut self, slot: u32, given: GivenState) -> Result<(), RunError> {
        match given {
            GivenState::Snapshot(AdoptedState { snapshot, grown }) => {
                if let Some(reserved) = grown {
                    self.grown.prepay(slot, reserved);
                }
                self.store.restore(slot, &snapshot)?;
            }
            GivenState::Values(values) => self.store.write_values(slot, &values)?,
        }
        if self.store.grows() {
            let reserved = self.grown.reserve([(slot, self.store.growing_bytes(slot))])?;
            self.grown.apply(reserved);
        }
        Ok(())
    }

    /// Why the sequence in this slot cannot run, if it has no state memory.
    pub(in crate::model) fn without_memory(&self, slot: Option<u32>) -> Option<&RunError> {
        self.without_memory.get(&slot?)
    }

    /// The state of a slot as a file. No run of the instance may be in progress.
    pub(in crate::model) fn snapshot(
        &mut self,
        slot: u32,
        header: &BTreeMap<String, String>,
    ) -> Result<Vec<u8>, SnapshotError> {
        self.store.snapshot(slot, header)
    }
}

impl Drop for InstanceSlots {
    fn drop(&mut self) {
        if let Some((gpu, reported)) = &self.gpu {
            gpu.state_bytes.add(-reported);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use sequor_core::{DataType, Dims, Shape, Slot, Time};

    use super::*;
    use crate::device::{Device, Host};
    use crate::state::budget::{Budget, HeldBytes};
    use crate::state::{ChunkCache, InitialValue, StateSpec};

    /// A sequence that continues from a state must not begin anew if that state is not there.
    #[test]
    fn a_state_that_is_not_there_is_no_first_state() {
        let device: Arc<dyn Device> = Arc::new(Host);
        let (budget, initial) = (Budget::new(1 << 20), InitialValue { shape: Shape::new(&[1]), data: None });
        let state = StateSpec {
            input: "S".to_owned(),
            output: "T".to_owned(),
            dtype: DataType::Fp32,
            dims: Dims::from_wire(&[1]),
            batch_axis: Some(0),
            storage: DataType::Fp32,
            initial,
            same_buffer: false,
            padding: None,
        };
        let cache = ChunkCache::new(budget.clone(), || Time(0));
        let store = Store::new(&device, vec![state], 2, false, cache.clone()).unwrap();
        let grown = GrownStates::new(budget, cache, &[], HeldBytes::default());
        let mut slots = InstanceSlots::new(store, grown, None);
        let [one, two] = [0, 1].map(|at| Slot::new(at, NonZeroU32::MIN));
        let req = Req::new(7, NonZeroU32::MIN);
        slots.apply(&[SlotOp::Adopt(one, req), SlotOp::Init(two, req)], |_| None, |_| None);
        assert!(!slots.store.is_live(0) && slots.without_memory(Some(0)).is_some());
        assert!(slots.store.is_live(1) && slots.without_memory(Some(1)).is_none());
        slots.apply(&[SlotOp::Free(one), SlotOp::Init(one, req)], |_| None, |_| None);
        assert!(slots.store.is_live(0) && slots.without_memory(Some(0)).is_none());
    }
}
