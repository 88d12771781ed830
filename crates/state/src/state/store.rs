//! Owns the states of an instance's slots: begins and frees them, reports their shapes and sizes, and reads and writes single values. `run`
//! has the operations on batches.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sequor_core::Shape;

use crate::device::{Device, DeviceError, DeviceId, Scratch};

use super::arena::Arena;
use super::bind_plan::BindConstraints;
use super::chunk_cache::ChunkCache;
use super::chunk_plan::ChunkPlan;
use super::device_variable::{self, DeviceVariable};
use super::error::StateError;
use super::fixed::FixedState;
use super::host_variable::HostVariables;
use super::slots::Slots;
use super::snapshot::{self, SnapshotError};
use super::spec::{StateSpec, sides};
use super::stored_state::{GivenValue, StateStorage, StoredState};
use super::values::StateValues;

/// The states of the slots of one instance. Belongs to the thread that runs the instance.
#[derive(Debug)]
pub struct Store {
    pub(super) device: Arc<dyn Device>,
    pub(super) states: Vec<StoredState>,
    pub(super) arena: Arena,
    pub(super) slots: Slots,
    pub(super) constraints: BindConstraints,
    pub(super) cache: ChunkCache,
    pub(super) scratch: Scratch,
    /// Number of rows copied between sides, gathered or scattered so far: the cost of states.
    pub(super) copied: u64,
}

impl Store {
    /// `fixed_rows`: rows of a batch are slots. Then each slot keeps two copies, so that a run can write to the other one than it reads. If
    /// a state requires the same memory for input and output, there is one copy, and the output of a successful run is copied there.
    pub fn new(
        device: &Arc<dyn Device>,
        specs: Vec<StateSpec>,
        slots: u32,
        fixed_rows: bool,
        cache: ChunkCache,
    ) -> Result<Store, DeviceError> {
        let sides = sides(&specs, fixed_rows);
        let mut layouts = Vec::new();
        let mut states = Vec::with_capacity(specs.len());
        for spec in specs {
            let kind = match (spec.layout(), spec.dims.fixed()) {
                (Some(layout), Some(row)) => {
                    layouts.push(layout);
                    StateStorage::Fixed(FixedState::new(device, &spec, (layouts.len() - 1, layout), row)?)
                }
                _ if device.place() != DeviceId::Host && device_variable::is_possible(&spec) => {
                    StateStorage::DeviceVariable(DeviceVariable::new(device, &spec, slots)?, Shape::default())
                }
                _ => StateStorage::HostVariable(HostVariables::new(slots)),
            };
            states.push(StoredState { spec, kind });
        }
        let leading = layouts.iter().all(|l| l.outer == 1);
        let as_kept = layouts.iter().all(|l| l.inner == l.kept);
        let arena = Arena::new(Arc::clone(device), cache.clone(), layouts, slots, sides, fixed_rows);
        let constraints = BindConstraints { sides, chunks: arena.sizes, leading, as_kept };
        let (device, slots, scratch) = (Arc::clone(device), Slots::new(slots), Scratch::default());
        let mut store = Store { device, states, arena, slots, constraints, cache, scratch, copied: 0 };
        store.try_room()?;
        Ok(store)
    }

    /// Divides the slots into these chunks, and provides memory for the first one. Call it before any slot is used.
    pub fn plan_chunks(&mut self, plan: ChunkPlan) -> Result<(), DeviceError> {
        self.arena.plan(plan);
        self.constraints.chunks = plan.sizes;
        let provided = self.arena.grow_by_one()?;
        self.note_provided(provided);
        Ok(())
    }

    /// Adds or drops one chunk, by the plan. Does nothing without a plan.
    pub fn adjust_chunks(&mut self) -> Result<(), DeviceError> {
        let provided = self.arena.adjust()?;
        self.note_provided(provided);
        Ok(())
    }

    /// Number of chunks that have memory, if there is a plan for them.
    pub fn planned_chunks(&self) -> Option<usize> {
        self.arena.planned_chunks()
    }

    fn note_provided(&mut self, provided: Option<(Range<u32>, bool)>) {
        let (slots, is_stale) = provided.unwrap_or_default();
        self.slots.mark(slots, is_stale);
    }

    /// Checks that an accelerator has memory for a first sequence. Otherwise a model would load there and serve no request.
    fn try_room(&mut self) -> Result<(), DeviceError> {
        if self.device.place() == DeviceId::Host || self.slots.views().is_empty() {
            return Ok(());
        }
        self.arena.occupy(0)?;
        self.arena.vacate(0);
        Ok(())
    }

    pub fn specs(&self) -> impl Iterator<Item = &StateSpec> {
        self.states.iter().map(|s| &s.spec)
    }

    /// Number of rows of states copied so far.
    pub fn rows_copied(&self) -> u64 {
        self.copied
    }

    /// Bytes allocated for slots.
    pub fn allocated(&self) -> u64 {
        let variable = self.states.iter().map(StoredState::variable_allocated).sum::<usize>();
        (self.arena.allocated() + variable) as u64
    }

    // === slots ===

    /// Gives the slot the first state of a sequence, which replaces its contents. The state is written when the slot first runs.
    pub fn init(&mut self, slot: u32) -> Result<(), StateError> {
        self.slots.check(&[Some(slot)])?;
        let provided = match self.is_live(slot) {
            true => Some((slot..slot.saturating_add(1), true)),
            false => self.arena.occupy(slot)?,
        };
        self.slots.begin(slot);
        self.note_provided(provided);
        self.states.iter_mut().for_each(|state| state.init(slot));
        Ok(())
    }

    /// Drops the slot's state. Its memory is rewritten before anything reads it: with the first state of the slot's next sequence, or with
    /// zeros if the slot becomes a padding row.
    pub fn free(&mut self, slot: u32) -> Result<(), StateError> {
        self.slots.end(slot)?;
        self.states.iter_mut().for_each(|state| state.free(slot));
        self.arena.vacate(slot);
        if self.slots.are_free() {
            self.keep_batch_buffers()?;
        }
        Ok(())
    }

    /// Gives the memory of free slots back to the system, if states and kept memory exceed their limit. No run may be in progress.
    pub fn release_idle(&mut self) {
        if self.cache.unwanted_idle() > 0 {
            let slots = &self.slots;
            self.arena.release_idle(|slot| !slots.view(slot).live);
        }
    }

    /// Releases the memory for batches if no slot is in use. An accelerator keeps it, because releasing stalls its work.
    fn keep_batch_buffers(&mut self) -> Result<(), DeviceError> {
        if self.device.place() != DeviceId::Host {
            return Ok(());
        }
        let mut fixed = self.states.iter_mut().filter_map(StoredState::fixed_mut);
        fixed.try_for_each(|fixed| fixed.release(&self.device, &self.cache))
    }

    /// Makes the memory that a run writes large enough for `count` rows. If it `gathers`, also the memory that it reads.
    pub(super) fn ensure_batch_buffers(&mut self, count: usize, gathers: bool) -> Result<(), DeviceError> {
        let mut fixed = self.states.iter_mut().filter_map(StoredState::fixed_mut);
        fixed.try_for_each(|fixed| fixed.ensure(&self.device, &self.cache, count, gathers))
    }

    // === facts of a slot ===

    /// The class of the shapes of a slot's variable states. Slots of equal classes can run together.
    pub fn shape_class(&self, slot: u32) -> u64 {
        let shapes = self.states.iter().filter_map(|state| Some((&state.spec, state.variable_shape(slot)?)));
        shapes.fold(0, |class, (spec, shape)| spec.class(shape, class))
    }

    /// The class of the shapes at START.
    pub fn initial_shape_class(specs: &[StateSpec]) -> u64 {
        let variable = specs.iter().filter(|spec| spec.layout().is_none());
        variable.fold(0, |class, spec| spec.class(&spec.initial.shape, class))
    }

    /// Present bytes of a slot's states.
    pub fn bytes(&self, slot: u32) -> u64 {
        self.states.iter().map(|state| state.bytes(slot)).sum::<usize>() as u64
    }

    /// Whether the size of any state changes from step to step.
    pub fn grows(&self) -> bool {
        self.states.iter().any(|state| state.fixed().is_none())
    }

    /// Bytes of those states in a slot whose size changes.
    pub fn growing_bytes(&self, slot: u32) -> u64 {
        self.states.iter().map(|state| state.variable_bytes(slot)).sum::<usize>() as u64
    }

    /// Whether this slot holds a sequence's state.
    pub fn is_live(&self, slot: u32) -> bool {
        self.slots.view(slot).live
    }

    // === values ===

    /// The states of a slot as a `.safetensors` file. `metadata` goes into its header.
    pub fn snapshot(&mut self, slot: u32, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError> {
        let values = self.values(slot)?;
        snapshot::file(self.specs(), &values, metadata)
    }

    /// Gives a slot the states of a snapshot, all of them or none.
    pub fn restore(&mut self, slot: u32, file: &[u8]) -> Result<(), SnapshotError> {
        let values = snapshot::read(self.specs(), file)?;
        Ok(self.set_values(slot, values)?)
    }

    /// The values of a slot's states. No run of the instance may be in progress.
    pub fn read_values(&mut self, slot: u32) -> Result<StateValues, StateError> {
        Ok(StateValues::of_pairs(self.values(slot)?))
    }

    /// Gives a slot these values, which replace its contents. The caller has checked shapes and sizes.
    pub fn write_values(&mut self, slot: u32, values: &StateValues) -> Result<(), StateError> {
        self.set_values(slot, values.each().iter().map(|value| (value.shape.clone(), value.bytes.clone())))
    }

    /// The values of a slot's states, each as one row in the graph's own type. Their shapes have no batch dimension.
    fn values(&mut self, slot: u32) -> Result<Vec<(Shape, Vec<u8>)>, StateError> {
        // A free slot still contains its last sequence's data.
        if !self.is_live(slot) {
            return Err(StateError::NotLive(slot));
        }
        self.bind_moved(slot)?;
        self.states.iter().map(|state| Ok(state.value(slot)?)).collect()
    }

    fn set_values<B>(&mut self, slot: u32, values: impl IntoIterator<Item = (Shape, B)>) -> Result<(), StateError>
    where
        B: AsRef<[u8]> + Into<Vec<u8>>,
    {
        self.init(slot)?;
        let bound = self.bind_moved(slot)?;
        let (mut fresh, mut held) = (Vec::new(), Vec::new());
        for (state, (shape, bytes)) in self.states.iter_mut().zip(values) {
            let (produced, memory) = match state.give(shape, bytes)? {
                GivenValue::Written => (None, None),
                GivenValue::Produced(produced) => (Some(produced), None),
                GivenValue::Held(shape, memory) => (None, Some((shape, memory))),
            };
            fresh.push(produced);
            held.push(memory);
        }
        self.commit(&bound, fresh, &[true])?;
        for (state, held) in self.states.iter_mut().zip(held) {
            if let (StateStorage::DeviceVariable(variable, _), Some((shape, memory))) = (&mut state.kind, held) {
                variable.set(slot, shape, memory);
            }
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Memory that this store freed on an accelerator belongs to this instance's order of work, which ends with the store.
        if self.device.place() != DeviceId::Host {
            self.cache.release_device(&self.device);
        }
    }
}
