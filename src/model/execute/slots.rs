//! The slots of one instance: what is done to them before a run, in the order of the core's asking, and who has no memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use sequor_core::{Req, SlotOp};

use crate::state::{SnapshotError, StateValues, Store};
use crate::telemetry::GpuMetrics;

use super::growth::GrownStates;
use super::row_work::AdoptedState;
use super::run_error::RunError;

#[derive(Debug)]
pub(in crate::model) struct Slots {
    pub(in crate::model) store: Store,
    pub(super) grown: GrownStates,
    /// The GPU's gauges, and what was last told of our states there.
    gpu: Option<(GpuMetrics, i64)>,
    /// Slots whose sequences could not be given state memory, until they are freed.
    roomless: BTreeMap<u32, RunError>,
}

/// A state that a slot is given in place of its model's own.
enum GivenState {
    Snapshot(AdoptedState),
    Values(StateValues),
}

impl Slots {
    pub(super) fn new(store: Store, grown: GrownStates, gpu: Option<GpuMetrics>) -> Slots {
        Slots { store, grown, gpu: gpu.map(|gpu| (gpu, 0)), roomless: BTreeMap::new() }
    }

    /// Does what must be done before a run. `kept` finds the state that a request brought for its sequence; `first`, by slot, states that a sequence
    /// begins with in place of those of its model.
    pub(in crate::model) fn apply(
        &mut self,
        ops: &[SlotOp],
        kept: impl FnMut(Req) -> Option<AdoptedState>,
        first: impl Fn(u32) -> Option<StateValues>,
    ) {
        self.each(ops, kept, first);
        // Without room for a chunk, the STARTs that need it are refused one by one.
        let _ = self.store.adjust_chunks();
        if let (Some((gpu, reported)), false) = (&mut self.gpu, ops.is_empty()) {
            let bytes = i64::try_from(self.store.allocated()).unwrap_or(i64::MAX);
            gpu.state_bytes.add(bytes - std::mem::replace(reported, bytes));
        }
    }

    /// Does every operation: the core counts on all of them. What fails concerns the sequence of that slot alone.
    fn each(
        &mut self,
        ops: &[SlotOp],
        mut kept: impl FnMut(Req) -> Option<AdoptedState>,
        first: impl Fn(u32) -> Option<StateValues>,
    ) {
        for op in ops {
            match op {
                SlotOp::Init(slot, _) => self.begin(slot.ix, first(slot.ix).map(GivenState::Values)),
                SlotOp::Adopt(slot, req) => self.begin(slot.ix, kept(*req).map(GivenState::Snapshot)),
                // It had nothing to free.
                SlotOp::Free(slot) if self.roomless.remove(&slot.ix).is_some() => {}
                SlotOp::Free(slot) => self.free(slot.ix),
            }
        }
    }

    /// Gives back what a slot's state grew by, before the slot is freed. Its sequence has left, and nothing reads the state any more.
    pub(in crate::model) fn release_growth(&mut self, slot: u32) {
        self.grown.reset(slot);
    }

    fn free(&mut self, slot: u32) {
        if let Err(error) = self.store.free(slot) {
            tracing::error!(slot, %error, "a slot is not freed as it should be; its next sequence begins anew in it");
        }
        self.grown.reset(slot);
    }

    /// Gives a slot the first state of a sequence, or the one that is given. If that fails, that sequence alone is not served.
    fn begin(&mut self, slot: u32, given: Option<GivenState>) {
        self.grown.reset(slot);
        let begun = match given {
            Some(given) => self.set(slot, given),
            None => self.store.init(slot).map_err(RunError::from),
        };
        match begun {
            Err(error) => {
                // What a slot held before is not another sequence's to read.
                if self.store.is_live(slot) {
                    self.free(slot);
                }
                self.roomless.insert(slot, RunError::NoState(Arc::new(error)));
            }
            Ok(()) => {
                self.roomless.remove(&slot);
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
    pub(in crate::model) fn roomless(&self, slot: Option<u32>) -> Option<&RunError> {
        self.roomless.get(&slot?)
    }

    /// The state of a slot as a file. Nothing of the instance may be running.
    pub(in crate::model) fn snapshot(
        &mut self,
        slot: u32,
        header: &BTreeMap<String, String>,
    ) -> Result<Vec<u8>, SnapshotError> {
        self.store.snapshot(slot, header)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if let Some((gpu, reported)) = &self.gpu {
            gpu.state_bytes.add(-reported);
        }
    }
}
