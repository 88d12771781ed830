//! Owns the states of an instance's slots: initialises them, frees them, and reports their shapes and sizes.

use std::sync::Arc;

use sequor_core::Shape;

use crate::device::{Buffer, BufferSlice, Device, DeviceError, DeviceId, Moves, Owned, Scratch, StridedLayout};

use super::arena::Arena;
use super::bind_plan::{BindConstraints, SlotView};
use super::chunk_cache::{ChunkCache, ChunkMemory};
use super::device_variable::{self, DeviceVariable};
use super::error::StateError;
use super::host_variable::HostVariable;
use super::spec::{Layout, StateSpec};

/// Smaller buffers of a batch are not worth releasing.
const LARGE: usize = 256 << 10;

/// The states of the slots of one instance. Belongs to the thread that runs the instance.
#[derive(Debug)]
pub struct Store {
    pub(super) device: Arc<dyn Device>,
    pub(super) states: Vec<StoredState>,
    pub(super) arena: Arena,
    pub(super) slots: Vec<SlotView>,
    /// By slot, the sides on which it holds what an earlier sequence left there; bit 0 is side 0.
    pub(super) stale: Vec<u8>,
    pub(super) terms: BindConstraints,
    cache: ChunkCache,
    live: u32,
    pub(super) scratch: Scratch,
    /// Rows copied from one side to another, gathered or scattered so far; what it costs to have states.
    pub(super) copied: u64,
}

#[derive(Debug)]
pub(super) struct StoredState {
    pub(super) spec: StateSpec,
    pub(super) kind: StateStorage,
}

#[derive(Debug)]
pub(super) enum StateStorage {
    /// In the arena, under this number. The buffers take the rows of a batch that cannot be bound.
    Fixed {
        index: usize,
        layout: Layout,
        /// The state at START as rows are kept; `None` is zeros.
        first: Option<Buffer>,
        given: Buffer,
        taken: Buffer,
        shape: Shape,
        row: Shape,
    },
    /// On an accelerator, with the batch's shape.
    DeviceVariable(DeviceVariable, Shape),
    HostVariable {
        slots: Vec<Option<HostVariable>>,
        given: Owned,
        shape: Shape,
    },
}

impl Store {
    /// `fixed_rows`: rows of a batch are slots. Then two copies are kept of every slot, so that a run can write where it does not read, unless
    /// a state says that its input and output shall be the same memory: then there is one, and what a run wrote is copied there if it is good.
    pub fn new(
        device: &Arc<dyn Device>,
        specs: Vec<StateSpec>,
        slots: u32,
        fixed_rows: bool,
        cache: ChunkCache,
    ) -> Result<Store, DeviceError> {
        let sides = if fixed_rows && !specs.iter().any(|spec| spec.same_buffer) { 2 } else { 1 };
        let mut layouts = Vec::new();
        let mut states = Vec::with_capacity(specs.len());
        for spec in specs {
            let kind = match (spec.layout(), spec.dims.fixed()) {
                (Some(layout), Some(row)) => {
                    layouts.push(layout);
                    let first = first_row(device, &spec, layout)?;
                    let (given, taken) = (Buffer::new(device, 0)?, Buffer::new(device, 0)?);
                    StateStorage::Fixed {
                        index: layouts.len() - 1,
                        layout,
                        first,
                        given,
                        taken,
                        shape: Shape::default(),
                        row,
                    }
                }
                _ if device.place() != DeviceId::Host && device_variable::is_possible(&spec) => {
                    StateStorage::DeviceVariable(DeviceVariable::new(device, &spec, slots)?, Shape::default())
                }
                _ => StateStorage::HostVariable {
                    slots: vec![None; slots as usize],
                    given: Owned::from_vec(Vec::new()),
                    shape: Shape::default(),
                },
            };
            states.push(StoredState { spec, kind });
        }
        let leading = layouts.iter().all(|l| l.outer == 1);
        let as_kept = layouts.iter().all(|l| l.inner == l.kept);
        let arena = Arena::new(Arc::clone(device), cache.clone(), layouts, slots, sides, fixed_rows);
        let terms = BindConstraints { sides, per_chunk: arena.per_chunk, leading, as_kept };
        let (device, stale) = (Arc::clone(device), vec![0; slots as usize]);
        let slots = vec![SlotView::default(); slots as usize];
        let scratch = Scratch::default();
        let mut store = Store { device, states, arena, slots, stale, terms, cache, live: 0, scratch, copied: 0 };
        store.try_room()?;
        Ok(store)
    }

    /// Whether an accelerator has room for a first sequence: else a model would load there and serve no request.
    fn try_room(&mut self) -> Result<(), DeviceError> {
        if self.device.place() == DeviceId::Host || self.slots.is_empty() {
            return Ok(());
        }
        self.arena.occupy(0)?;
        self.arena.vacate(0);
        Ok(())
    }

    pub fn specs(&self) -> impl Iterator<Item = &StateSpec> {
        self.states.iter().map(|s| &s.spec)
    }

    /// Rows of states copied so far.
    pub fn rows_copied(&self) -> u64 {
        self.copied
    }

    /// Bytes allocated for slots.
    pub fn allocated(&self) -> u64 {
        let loose = |state: &StoredState| match &state.kind {
            StateStorage::HostVariable { slots, .. } => slots.iter().flatten().map(|l| l.data.len()).sum(),
            StateStorage::DeviceVariable(growing, _) => growing.allocated(),
            StateStorage::Fixed { .. } => 0,
        };
        (self.arena.allocated() + self.states.iter().map(loose).sum::<usize>()) as u64
    }

    // === slots ===

    /// Gives the slot the first state of a sequence, in place of its contents. Written when the slot first runs.
    pub fn init(&mut self, slot: u32) -> Result<(), StateError> {
        let view = self.slots.get_mut(slot as usize).ok_or(StateError::NoSlot(slot))?;
        let (slots, is_stale) = match view.live {
            true => (slot..slot.saturating_add(1), true),
            false => self.arena.occupy(slot)?.unwrap_or_default(),
        };
        self.live += u32::from(!view.live);
        *view = SlotView { live: true, fresh: true, side: view.side };
        for slot in slots {
            self.set_stale(slot, is_stale);
        }
        for state in &mut self.states {
            match &mut state.kind {
                StateStorage::Fixed { .. } => {}
                StateStorage::DeviceVariable(growing, _) => growing.init(slot, &state.spec),
                StateStorage::HostVariable { slots, .. } => {
                    if let Some(place) = slots.get_mut(slot as usize) {
                        *place = Some(HostVariable::initial(&state.spec));
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops the slot's state. Its memory is written again before anything reads it: by the first state of the slot's next sequence, or with
    /// zeros, where the slot becomes a padding row.
    pub fn free(&mut self, slot: u32) -> Result<(), StateError> {
        let view = self.slots.get_mut(slot as usize).ok_or(StateError::NoSlot(slot))?;
        if !std::mem::take(view).live {
            return Err(StateError::NotHeld(slot));
        }
        for state in &mut self.states {
            match &mut state.kind {
                StateStorage::Fixed { .. } => {}
                StateStorage::DeviceVariable(growing, _) => growing.free(slot),
                StateStorage::HostVariable { slots, .. } => {
                    if let Some(place) = slots.get_mut(slot as usize) {
                        *place = None;
                    }
                }
            }
        }
        self.set_stale(slot, true);
        self.arena.vacate(slot);
        self.live = self.live.saturating_sub(1);
        if self.live == 0 {
            self.keep_batch_buffers()?;
        }
        Ok(())
    }

    fn set_stale(&mut self, slot: u32, is_stale: bool) {
        if let Some(sides) = self.stale.get_mut(slot as usize) {
            *sides = if is_stale { u8::MAX } else { 0 };
        }
    }

    /// Without sequences, memory for batches is released like that of slots. An accelerator keeps it: releasing stops its work.
    fn keep_batch_buffers(&mut self) -> Result<(), DeviceError> {
        if self.device.place() != DeviceId::Host {
            return Ok(());
        }
        for state in &mut self.states {
            let StateStorage::Fixed { given, taken, .. } = &mut state.kind else { continue };
            for buffer in [given, taken].into_iter().filter(|buffer| buffer.len() >= LARGE) {
                let touched = buffer.len() as u64;
                let buffers = vec![std::mem::replace(buffer, Buffer::new(&self.device, 0)?)];
                self.cache.keep(&self.device, ChunkMemory { buffers, touched, is_reused: true });
            }
        }
        Ok(())
    }

    /// Makes the buffers that a run writes, and if it `gathers` also those that it reads, large enough for `count` rows.
    pub(super) fn ensure_batch_buffers(&mut self, count: usize, gathers: bool) -> Result<(), DeviceError> {
        for state in &mut self.states {
            let StateStorage::Fixed { layout, given, taken, .. } = &mut state.kind else { continue };
            let len = layout.row().saturating_mul(count);
            for buffer in gathers.then_some(given).into_iter().chain([taken]).filter(|buffer| buffer.len() < len) {
                let memory = self.cache.allocate(&self.device, &[len.next_power_of_two()])?;
                if let Some(larger) = memory.buffers.into_iter().next() {
                    *buffer = larger;
                }
            }
        }
        Ok(())
    }

    // === facts of a slot ===

    /// Class of the shapes of a slot's states that can change; equal classes batch together.
    pub fn shape_class(&self, slot: u32) -> u64 {
        let shapes = self.states.iter().filter_map(|state| match &state.kind {
            StateStorage::HostVariable { slots, .. } => slots.get(slot as usize)?.as_ref().map(|l| &l.shape),
            StateStorage::DeviceVariable(growing, _) => growing.shape(slot),
            StateStorage::Fixed { .. } => None,
        });
        shapes.fold(0, |class, shape| shape.class(class))
    }

    /// The class of the shapes at START.
    pub fn initial_shape_class(specs: &[StateSpec]) -> u64 {
        let loose = specs.iter().filter(|spec| spec.layout().is_none());
        loose.fold(0, |class, spec| spec.initial.shape.class(class))
    }

    /// Bytes a slot's states have now.
    pub fn bytes(&self, slot: u32) -> u64 {
        let of = |state: &StoredState| match &state.kind {
            StateStorage::Fixed { layout, .. } => layout.kept_row(),
            StateStorage::DeviceVariable(growing, _) => growing.bytes(&state.spec, slot),
            StateStorage::HostVariable { slots, .. } => {
                slots.get(slot as usize).and_then(|s| s.as_ref()).map_or(0, |l| l.data.len())
            }
        };
        self.states.iter().map(of).sum::<usize>() as u64
    }

    /// Whether a sequence's state lies in this slot.
    pub fn is_live(&self, slot: u32) -> bool {
        self.view(slot).live
    }

    pub(super) fn view(&self, slot: u32) -> SlotView {
        view_of(&self.slots, slot)
    }

    pub(super) fn change(&mut self, slot: u32, change: impl FnOnce(&mut SlotView)) {
        if let Some(view) = self.slots.get_mut(slot as usize) {
            change(view);
        }
    }
}

pub(super) fn view_of(slots: &[SlotView], slot: u32) -> SlotView {
    slots.get(slot as usize).copied().unwrap_or_default()
}

impl Drop for Store {
    fn drop(&mut self) {
        // What this store freed on an accelerator was used in this instance's order of work, which ends with it.
        if self.device.place() != DeviceId::Host {
            self.cache.release_device(&self.device);
        }
    }
}

/// The state at START on the device, as rows are kept; `None` is zeros.
fn first_row(device: &Arc<dyn Device>, spec: &StateSpec, layout: Layout) -> Result<Option<Buffer>, DeviceError> {
    let Some(data) = &spec.initial.data else { return Ok(None) };
    let mut bytes = data.to_vec();
    bytes.resize(layout.row(), 0);
    let (given, kept) = (Buffer::holding(device, &bytes)?, Buffer::new(device, layout.kept_row())?);
    let mut scratch = Scratch::default();
    let mut moves = Moves::new(&**device, &mut scratch);
    moves.set(StridedLayout { convert: layout.narrow, ..StridedLayout::whole(layout.row()) })?;
    moves.row(Some(BufferSlice::of(&given, 0)), BufferSlice::of(&kept, 0))?;
    moves.run()?;
    device.wait(device.fence()?)?;
    Ok(Some(kept))
}
