//! The slots of one instance: what is done to them before a run, in the order of the core's asking, and who has no memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{Req, SlotOp};

use crate::state::{SnapshotError, Store};
use crate::telemetry::GpuMetrics;

use super::growth::GrownStates;
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

impl Slots {
    pub(super) fn new(store: Store, grown: GrownStates, gpu: Option<GpuMetrics>) -> Slots {
        Slots { store, grown, gpu: gpu.map(|gpu| (gpu, 0)), roomless: BTreeMap::new() }
    }

    /// Does what must be done before a run. `kept` finds the state that a request brought for its sequence.
    pub(in crate::model) fn apply(
        &mut self,
        ops: &[SlotOp],
        kept: impl Fn(Req) -> Option<Bytes>,
    ) -> Result<(), RunError> {
        let done = self.each(ops, kept);
        if let (Some((gpu, told)), false) = (&mut self.gpu, ops.is_empty()) {
            let bytes = i64::try_from(self.store.allocated()).unwrap_or(i64::MAX);
            gpu.state_bytes.add(bytes - std::mem::replace(told, bytes));
        }
        done
    }

    fn each(&mut self, ops: &[SlotOp], kept: impl Fn(Req) -> Option<Bytes>) -> Result<(), RunError> {
        for op in ops {
            match op {
                SlotOp::Init(slot, _) => self.begin(slot.ix, None)?,
                SlotOp::Adopt(slot, req) => self.begin(slot.ix, kept(*req))?,
                // It had nothing to free.
                SlotOp::Free(slot) if self.roomless.remove(&slot.ix).is_some() => {}
                SlotOp::Free(slot) => {
                    self.store.free(slot.ix)?;
                    self.grown.reset(slot.ix);
                }
            }
        }
        Ok(())
    }

    /// Gives a slot the first state of a sequence, or one that was kept. Where there is no room for it, that sequence alone is not served.
    fn begin(&mut self, slot: u32, kept: Option<Bytes>) -> Result<(), RunError> {
        self.grown.reset(slot);
        let begun = match kept {
            Some(snapshot) => self.restore(slot, &snapshot),
            None => self.store.init(slot).map_err(RunError::from),
        };
        match begun {
            Err(error) if error.no_room().is_some() || error.over_limit().is_some() => {
                // What a slot held before is not another sequence's to read.
                if self.store.is_live(slot) {
                    self.store.free(slot)?;
                }
                self.roomless.insert(slot, RunError::NoState(Arc::new(error)));
                Ok(())
            }
            begun => {
                self.roomless.remove(&slot);
                begun
            }
        }
    }

    fn restore(&mut self, slot: u32, snapshot: &[u8]) -> Result<(), RunError> {
        self.store.restore(slot, snapshot)?;
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
        if let Some((gpu, told)) = &self.gpu {
            gpu.state_bytes.add(-told);
        }
    }
}
