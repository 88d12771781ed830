//! All states of an instance's slots: what there is of each, its first value, its end, and what the host is told of it.

use std::sync::Arc;

use sequor_core::Shape;

use crate::device::{Buffer, Device, DeviceError, Lay, Moves, Owned, Place, Scratch, Spot};

use super::arena::Arena;
use super::error::StateError;
use super::growing::{self, Growing};
use super::loose::Loose;
use super::spec::{Layout, StateSpec};
use super::way::{SlotView, Terms};

/// The states of the slots of one instance. Belongs to whoever is that instance.
#[derive(Debug)]
pub struct Store {
    pub(super) device: Arc<dyn Device>,
    pub(super) states: Vec<State>,
    pub(super) arena: Arena,
    pub(super) slots: Vec<SlotView>,
    pub(super) terms: Terms,
    pub(super) scratch: Scratch,
    /// Rows copied from one side to another, gathered or scattered so far; what it costs to have states.
    pub(super) copied: u64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) spec: StateSpec,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
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
    Growing(Growing, Shape),
    Loose {
        slots: Vec<Option<Loose>>,
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
                    Kind::Fixed { index: layouts.len() - 1, layout, first, given, taken, shape: Shape::default(), row }
                }
                _ if device.place() != Place::Host && growing::is_possible(&spec) => {
                    Kind::Growing(Growing::new(device, &spec, slots)?, Shape::default())
                }
                _ => Kind::Loose {
                    slots: vec![None; slots as usize],
                    given: Owned::from_vec(Vec::new()),
                    shape: Shape::default(),
                },
            };
            states.push(State { spec, kind });
        }
        let leading = layouts.iter().all(|l| l.outer == 1);
        let as_kept = layouts.iter().all(|l| l.inner == l.kept);
        let arena = Arena::new(Arc::clone(device), layouts, slots, sides, fixed_rows);
        let terms = Terms { sides, per_chunk: arena.per_chunk, leading, as_kept };
        let slots = vec![SlotView::default(); slots as usize];
        let mut store =
            Store { device: Arc::clone(device), states, arena, slots, terms, scratch: Scratch::default(), copied: 0 };
        store.try_room()?;
        Ok(store)
    }

    /// Whether an accelerator has room for a first sequence: else a model would load there and serve nobody.
    fn try_room(&mut self) -> Result<(), DeviceError> {
        if self.device.place() == Place::Host || self.slots.is_empty() {
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
        let loose = |state: &State| match &state.kind {
            Kind::Loose { slots, .. } => slots.iter().flatten().map(|l| l.data.len()).sum(),
            Kind::Growing(growing, _) => growing.allocated(),
            Kind::Fixed { .. } => 0,
        };
        (self.arena.allocated() + self.states.iter().map(loose).sum::<usize>()) as u64
    }

    // === slots ===

    /// Gives the slot the first state of a sequence, whatever it held. Written when the slot first runs.
    pub fn init(&mut self, slot: u32) -> Result<(), StateError> {
        let view = self.slots.get_mut(slot as usize).ok_or(StateError::NoSlot(slot))?;
        if !view.live {
            self.arena.occupy(slot)?;
        }
        *view = SlotView { live: true, fresh: true, side: view.side };
        for state in &mut self.states {
            match &mut state.kind {
                Kind::Fixed { .. } => {}
                Kind::Growing(growing, _) => growing.init(slot, &state.spec),
                Kind::Loose { slots, .. } => {
                    if let Some(place) = slots.get_mut(slot as usize) {
                        *place = Some(Loose::initial(&state.spec));
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops the slot's state and zeroes its memory.
    pub fn free(&mut self, slot: u32) -> Result<(), StateError> {
        let view = self.slots.get_mut(slot as usize).ok_or(StateError::NoSlot(slot))?;
        if !std::mem::take(view).live {
            return Err(StateError::NotHeld(slot));
        }
        for state in &mut self.states {
            match &mut state.kind {
                Kind::Fixed { .. } => {}
                Kind::Growing(growing, _) => growing.free(slot),
                Kind::Loose { slots, .. } => {
                    if let Some(place) = slots.get_mut(slot as usize) {
                        *place = None;
                    }
                }
            }
        }
        self.zero(slot)?;
        self.arena.vacate(slot);
        Ok(())
    }

    fn zero(&mut self, slot: u32) -> Result<(), StateError> {
        let mut moves = Moves::new(&*self.device, &mut self.scratch);
        for (index, layout) in fixed(&self.states) {
            moves.set(layout.as_kept())?;
            for side in 0..self.terms.sides {
                if let Some(to) = self.arena.spot(index, slot, side) {
                    moves.row(None, to)?;
                }
            }
        }
        Ok(moves.run()?)
    }

    // === what the host is told of a slot ===

    /// Class of the shapes of a slot's states that can change; equal classes batch together.
    pub fn shape_class(&self, slot: u32) -> u64 {
        let shapes = self.states.iter().filter_map(|state| match &state.kind {
            Kind::Loose { slots, .. } => slots.get(slot as usize)?.as_ref().map(|l| &l.shape),
            Kind::Growing(growing, _) => growing.shape(slot),
            Kind::Fixed { .. } => None,
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
        let of = |state: &State| match &state.kind {
            Kind::Fixed { layout, .. } => layout.kept_row(),
            Kind::Growing(growing, _) => growing.bytes(&state.spec, slot),
            Kind::Loose { slots, .. } => slots.get(slot as usize).and_then(|s| s.as_ref()).map_or(0, |l| l.data.len()),
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

/// The states in the arena.
pub(super) fn fixed(states: &[State]) -> impl Iterator<Item = (usize, Layout)> + '_ {
    states.iter().filter_map(|state| match state.kind {
        Kind::Fixed { index, layout, .. } => Some((index, layout)),
        Kind::Growing(..) | Kind::Loose { .. } => None,
    })
}

/// The state at START on the device, as rows are kept; `None` is zeros.
fn first_row(device: &Arc<dyn Device>, spec: &StateSpec, layout: Layout) -> Result<Option<Buffer>, DeviceError> {
    let Some(data) = &spec.initial.data else { return Ok(None) };
    let mut bytes = data.to_vec();
    bytes.resize(layout.row(), 0);
    let (given, kept) = (Buffer::holding(device, &bytes)?, Buffer::new(device, layout.kept_row())?);
    let mut scratch = Scratch::default();
    let mut moves = Moves::new(&**device, &mut scratch);
    moves.set(Lay { convert: layout.narrow, ..Lay::whole(layout.row()) })?;
    moves.row(Some(Spot::of(&given, 0)), Spot::of(&kept, 0))?;
    moves.run()?;
    device.wait(device.mark()?)?;
    Ok(Some(kept))
}
