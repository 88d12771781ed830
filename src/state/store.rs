//! All states of an instance's slots: initialise, bind for a run, commit or drop, free. A commit is all or nothing for each row.

use std::sync::Arc;

use sequor_core::Shape;

use crate::device::{self, Buffer, Convert, Device, DeviceError, Move, Owned, RawMove, Span, SpanMut, Strip};

use crate::tensor::rows;

use super::arena::Arena;
use super::loose::{self, Loose};
use super::spec::{Layout, StateSpec};
use super::way::{SlotView, Terms, Way, choose};

/// Why a batch has no states, or its new ones are not taken. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("slot {0} is beyond the store")]
    NoSlot(u32),
    /// The model gave a state that the configuration does not allow.
    #[error("state output '{state}' has shape {got}, but {want} is expected for a batch of {rows}")]
    Shape { state: String, got: Shape, want: String, rows: u64 },
    #[error("state output '{state}' was not produced")]
    Missing { state: String },
    #[error("state output '{state}' cannot be cut into its rows")]
    Torn { state: String },
    /// Rows whose states differ in shape were put into one batch: the scheduler's fault.
    #[error("the rows of a batch have states of different shapes for '{state}'")]
    Mixed { state: String },
}

/// The states of the slots of one instance. Belongs to that instance's thread.
#[derive(Debug)]
pub struct Store {
    device: Arc<dyn Device>,
    states: Vec<State>,
    arena: Arena,
    slots: Vec<SlotView>,
    terms: Terms,
    moves: Vec<RawMove>,
    /// Rows copied from one side to another, gathered or scattered so far; what it costs to have states.
    copied: u64,
}

#[derive(Debug)]
struct State {
    spec: StateSpec,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// In the arena, under this number. The buffers take the rows of a batch that cannot be bound.
    Fixed {
        index: usize,
        layout: Layout,
        given: Buffer,
        taken: Buffer,
        shape: Shape,
        row: Shape,
    },
    Loose {
        slots: Vec<Option<Loose>>,
        given: Owned,
        shape: Shape,
    },
}

/// How a batch was bound; to be handed back to [`Store::commit`].
#[derive(Debug)]
pub struct Bound {
    rows: Vec<Option<u32>>,
    way: Way,
}

/// Where a state's output goes.
#[derive(Debug)]
pub enum StateOut<'a> {
    Into {
        shape: &'a Shape,
        data: SpanMut<'a>,
    },
    /// The backend allocates.
    New,
}

/// A state's output in the backend's own memory.
#[derive(Debug)]
pub struct Fresh {
    pub shape: Shape,
    pub data: Owned,
}

impl Store {
    /// `sided` keeps two copies of every slot, so that a run can write where it does not read: worth its memory where rows are fixed to slots.
    pub fn new(device: &Arc<dyn Device>, specs: Vec<StateSpec>, slots: u32, sided: bool) -> Result<Store, DeviceError> {
        let mut layouts = Vec::new();
        let mut states = Vec::with_capacity(specs.len());
        for spec in specs {
            let kind = match (spec.layout(), spec.dims.fixed()) {
                (Some(layout), Some(row)) => {
                    layouts.push(layout);
                    let (given, taken) = (Buffer::new(device, 0)?, Buffer::new(device, 0)?);
                    Kind::Fixed { index: layouts.len() - 1, layout, given, taken, shape: Shape::default(), row }
                }
                _ => Kind::Loose {
                    slots: vec![None; slots as usize],
                    given: Owned::from_vec(Vec::new()),
                    shape: Shape::default(),
                },
            };
            states.push(State { spec, kind });
        }
        let sides = if sided { 2 } else { 1 };
        let leading = layouts.iter().all(|l| l.outer == 1);
        let as_kept = layouts.iter().all(|l| l.inner == l.kept);
        let arena = Arena::new(Arc::clone(device), layouts, slots, sides, sided);
        let terms = Terms { sides, per_chunk: arena.per_chunk, leading, as_kept };
        let slots = vec![SlotView::default(); slots as usize];
        Ok(Store { device: Arc::clone(device), states, arena, slots, terms, moves: Vec::new(), copied: 0 })
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
            if let Kind::Loose { slots, .. } = &mut state.kind
                && let Some(place) = slots.get_mut(slot as usize)
            {
                *place = Some(Loose::initial(&state.spec));
            }
        }
        Ok(())
    }

    /// Drops the slot's state and zeroes its memory.
    pub fn free(&mut self, slot: u32) -> Result<(), StateError> {
        let view = self.slots.get_mut(slot as usize).ok_or(StateError::NoSlot(slot))?;
        if !std::mem::take(view).live {
            return Ok(());
        }
        for state in &mut self.states {
            if let Kind::Loose { slots, .. } = &mut state.kind
                && let Some(place) = slots.get_mut(slot as usize)
            {
                *place = None;
            }
        }
        self.zero(slot)?;
        self.arena.vacate(slot);
        Ok(())
    }

    fn zero(&mut self, slot: u32) -> Result<(), StateError> {
        let mut moves = Vec::new();
        for (index, layout) in self.fixed() {
            for side in 0..self.terms.sides {
                if let Some(to) = self.arena.strip(index, slot, side) {
                    moves.push(Move { from: None, to, outer: 1, inner: layout.kept_row(), convert: Convert::No });
                }
            }
        }
        device::run(&*self.device, &moves, &mut self.moves)?;
        Ok(())
    }

    fn fixed(&self) -> impl Iterator<Item = (usize, Layout)> + '_ {
        self.states.iter().filter_map(|state| match state.kind {
            Kind::Fixed { index, layout, .. } => Some((index, layout)),
            Kind::Loose { .. } => None,
        })
    }

    // === a run ===

    /// Brings the states of these slots to where a run reads them: where they lie, or gathered. `None` is a padding row, of zeros.
    pub fn bind(&mut self, rows: Vec<Option<u32>>) -> Result<Bound, StateError> {
        if let Some(slot) = rows.iter().flatten().find(|slot| **slot as usize >= self.slots.len()) {
            return Err(StateError::NoSlot(*slot));
        }
        let way = choose(&rows, &self.slots, self.terms);
        match &way {
            Way::InPlace { side, carry, .. } => self.carry(&rows, *side, carry)?,
            Way::Moved => self.gather(&rows)?,
        }
        self.shape_batch(&rows)?;
        Ok(Bound { rows, way })
    }

    /// Copies the rows that lie on the other side, and writes first states where the run will read them.
    fn carry(&mut self, rows: &[Option<u32>], side: u8, carry: &[u32]) -> Result<(), StateError> {
        let mut moves = Vec::new();
        let fresh: Vec<u32> = rows.iter().flatten().copied().filter(|slot| self.view(*slot).fresh).collect();
        for (index, layout) in self.fixed() {
            let whole = |from, to| Move { from, to, outer: 1, inner: layout.kept_row(), convert: Convert::No };
            for slot in carry {
                let from = self.arena.strip(index, *slot, 1 - side);
                if let (Some(from), Some(to)) = (from, self.arena.strip(index, *slot, side)) {
                    moves.push(whole(Some(from), to));
                }
            }
        }
        device::run(&*self.device, &moves, &mut self.moves)?;
        self.copied += carry.len() as u64;
        for slot in carry {
            self.change(*slot, |view| view.side = side);
        }
        for slot in fresh {
            self.write_first(slot, side)?;
        }
        Ok(())
    }

    /// Writes a slot's first state on this side of the arena.
    fn write_first(&mut self, slot: u32, side: u8) -> Result<(), StateError> {
        let firsts = self.first_rows()?;
        let mut moves = Vec::new();
        for ((index, layout), first) in self.fixed().zip(&firsts) {
            if let Some(to) = self.arena.strip(index, slot, side) {
                let from = first.as_ref().map(|buffer| Strip::of(buffer, 0, layout.inner));
                moves.push(kept_row(layout, from, to));
            }
        }
        device::run(&*self.device, &moves, &mut self.moves)?;
        self.change(slot, |view| *view = SlotView { live: true, fresh: false, side });
        Ok(())
    }

    /// The initial rows of the fixed states, on the device; `None` is zeros.
    fn first_rows(&self) -> Result<Vec<Option<Buffer>>, DeviceError> {
        let mut rows = Vec::new();
        for state in &self.states {
            let Kind::Fixed { layout, .. } = state.kind else { continue };
            rows.push(match &state.spec.initial.data {
                None => None,
                Some(data) => Some(upload(&self.device, data, layout.row())?),
            });
        }
        Ok(rows)
    }

    /// Copies the rows of the batch into the buffers that the run reads.
    fn gather(&mut self, rows: &[Option<u32>]) -> Result<(), StateError> {
        let (count, slots) = (rows.len(), &self.slots);
        let firsts =
            if rows.iter().flatten().any(|slot| view_of(slots, *slot).fresh) { Some(self.first_rows()?) } else { None };
        for state in &mut self.states {
            if let Kind::Fixed { layout, given, taken, .. } = &mut state.kind {
                given.ensure(layout.row().saturating_mul(count))?;
                taken.ensure(layout.row().saturating_mul(count))?;
            }
        }
        let mut moves = Vec::new();
        for state in &self.states {
            let Kind::Fixed { index, layout, given, .. } = &state.kind else { continue };
            for (n, row) in rows.iter().enumerate() {
                let to = Strip::of(given, n * layout.inner, layout.inner * count);
                moves.push(match *row {
                    Some(slot) if !view_of(&self.slots, slot).fresh => {
                        let from = self.arena.strip(*index, slot, view_of(&self.slots, slot).side);
                        graph_row(*layout, from, to)
                    }
                    Some(_) => {
                        let first = firsts.as_ref().and_then(|f| f.get(*index)?.as_ref());
                        first_row(*layout, first.map(|buffer| Strip::of(buffer, 0, layout.inner)), to)
                    }
                    None => first_row(*layout, None, to),
                });
            }
        }
        device::run(&*self.device, &moves, &mut self.moves)?;
        self.copied += count as u64;
        Ok(())
    }

    /// Settles the shapes of the batch's tensors, and joins the states that are not in the arena.
    fn shape_batch(&mut self, rows: &[Option<u32>]) -> Result<(), StateError> {
        let count = rows.len() as u64;
        for state in &mut self.states {
            match &mut state.kind {
                Kind::Fixed { shape, row, .. } => *shape = state.spec.batched(row, count),
                Kind::Loose { slots, given, shape } => {
                    let of = |slot: &u32| slots.get(*slot as usize).and_then(Option::as_ref);
                    let batch: Vec<Option<&Loose>> = rows.iter().map(|row| row.as_ref().and_then(of)).collect();
                    let Some(first) = batch.iter().flatten().next() else { continue };
                    let row = first.shape.clone();
                    if batch.iter().flatten().any(|loose| loose.shape != row) {
                        return Err(StateError::Mixed { state: state.spec.input.clone() });
                    }
                    *given = match batch.as_slice() {
                        [Some(only)] => only.data.clone(),
                        _ => Owned::from_vec(loose::join(&state.spec, &row, &batch)),
                    };
                    *shape = state.spec.batched(&row, count);
                }
            }
        }
        Ok(())
    }

    /// A state as a run reads it, by its number.
    ///
    /// # Safety
    /// The span must not be used after the store was changed again.
    pub unsafe fn input(&self, bound: &Bound, state: usize) -> Result<(&Shape, Span<'_>), StateError> {
        let Some(State { kind, spec }) = self.states.get(state) else { return Err(StateError::NoSlot(0)) };
        match kind {
            Kind::Loose { given, shape, .. } => Ok((shape, given.span())),
            Kind::Fixed { index, layout, given, shape, .. } => {
                let size = layout.row() * bound.rows.len();
                let (buffer, at) = match bound.way {
                    Way::InPlace { first, side, .. } => self.arena.row(*index, first, side),
                    Way::Moved => Some((given, 0)),
                }
                .ok_or_else(|| StateError::Missing { state: spec.input.clone() })?;
                // SAFETY: nothing is moved into it before the store changes, which the caller waits for.
                Ok((shape, unsafe { buffer.read(at..at + size) }?))
            }
        }
    }

    /// Where a run writes a state, by its number.
    ///
    /// # Safety
    /// As for [`Store::input`].
    pub unsafe fn output(&self, bound: &Bound, state: usize) -> Result<StateOut<'_>, StateError> {
        let Some(State { kind, spec }) = self.states.get(state) else { return Err(StateError::NoSlot(0)) };
        let Kind::Fixed { index, layout, taken, shape, .. } = kind else { return Ok(StateOut::New) };
        let size = layout.row() * bound.rows.len();
        let (buffer, at) = match bound.way {
            Way::InPlace { first, side, .. } if self.terms.sides > 1 => self.arena.row(*index, first, 1 - side),
            _ => Some((taken, 0)),
        }
        .ok_or_else(|| StateError::Missing { state: spec.output.clone() })?;
        if buffer.len() < at + size {
            return Err(StateError::Device(DeviceError::OutOfBounds { at, len: size, size: buffer.len() }));
        }
        // SAFETY: the run writes here and reads elsewhere: the other side, or another buffer.
        Ok(StateOut::Into { shape, data: unsafe { buffer.write(at..at + size) }? })
    }

    /// What a run has written for a state, before it is committed: the batch's shape and bytes, rows first whatever the axis.
    /// `None` where the backend allocated.
    pub fn written(&self, bound: &Bound, state: usize) -> Result<Option<(Shape, Vec<u8>)>, StateError> {
        let Some(State { kind: Kind::Fixed { row, .. }, spec }) = self.states.get(state) else { return Ok(None) };
        // SAFETY: the run is over, and the bytes are copied at once.
        let StateOut::Into { data, .. } = unsafe { self.output(bound, state) }? else { return Ok(None) };
        let count = bound.rows.len();
        // SAFETY: as above; read where the run wrote.
        let span = unsafe { Span::from_raw(data.place(), data.address(), data.len()) };
        let bytes = span.as_host().unwrap_or_default();
        let axis = spec.batch_axis.unwrap_or(0);
        if spec.batch_axis.is_none() || axis == 0 {
            return Ok(Some((spec.batched(row, count as u64), bytes.to_vec())));
        }
        let parts = rows::split(spec.dtype, row, axis, count, bytes);
        let parts = parts.ok_or_else(|| StateError::Torn { state: spec.output.clone() })?;
        Ok(Some((row.with(0, count as u64), parts.concat())))
    }

    /// Makes room for what a run in place will scatter. Called before [`Store::output`].
    pub fn ready(&mut self, bound: &Bound) -> Result<(), StateError> {
        let count = bound.rows.len();
        for state in &mut self.states {
            if let Kind::Fixed { layout, taken, .. } = &mut state.kind {
                taken.ensure(layout.row().saturating_mul(count))?;
            }
        }
        Ok(())
    }

    /// Checks what a run has produced, without taking any of it: one entry a state, `None` where the run wrote where it was told.
    pub fn check(&self, bound: &Bound, fresh: &[Option<Fresh>]) -> Result<(), StateError> {
        let rows = bound.rows.len() as u64;
        for (state, produced) in self.states.iter().zip(fresh) {
            match (&state.kind, produced) {
                (Kind::Fixed { .. }, None) => {}
                (Kind::Loose { .. }, None) => return Err(StateError::Missing { state: state.spec.output.clone() }),
                (_, Some(produced)) if state.spec.row_of(&produced.shape, rows).is_some() => {}
                (_, Some(produced)) => {
                    let want = match state.spec.batch_axis {
                        Some(axis) => state.spec.dims.with(axis, sequor_core::Dim::Fixed(rows)),
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
        let takes = |n: usize| good.get(n).copied().unwrap_or(false);
        let taken: Vec<(usize, u32)> = bound
            .rows
            .iter()
            .enumerate()
            .filter_map(|(n, row)| row.map(|s| (n, s)))
            .filter(|(n, _)| takes(*n))
            .collect();
        // Whatever can fail comes before whatever changes a slot.
        let split = self.split(bound, fresh)?;
        let in_place = matches!(bound.way, Way::InPlace { .. });
        if in_place && self.terms.sides > 1 {
            for (_, slot) in &taken {
                self.change(*slot, |view| view.side = 1 - view.side);
            }
        } else {
            self.scatter(bound.rows.len(), &taken)?;
        }
        self.settle(split, &taken);
        for (_, slot) in &taken {
            self.change(*slot, |view| view.fresh = false);
        }
        Ok(())
    }

    fn split(&self, bound: &Bound, fresh: Vec<Option<Fresh>>) -> Result<Vec<Option<Vec<Loose>>>, StateError> {
        let count = bound.rows.len();
        let mut out = Vec::with_capacity(self.states.len());
        for (state, produced) in self.states.iter().zip(fresh) {
            out.push(match (&state.kind, produced) {
                (Kind::Loose { .. }, Some(Fresh { shape, data })) => {
                    let torn = || StateError::Torn { state: state.spec.output.clone() };
                    let row = state.spec.row_of(&shape, count as u64).ok_or_else(torn)?;
                    let one = count == 1;
                    Some(if one {
                        vec![Loose { shape: row, data }]
                    } else {
                        loose::split(&state.spec, &row, count, &data)?
                    })
                }
                _ => None,
            });
        }
        Ok(out)
    }

    fn scatter(&mut self, count: usize, taken: &[(usize, u32)]) -> Result<(), StateError> {
        let mut moves = Vec::new();
        for state in &self.states {
            let Kind::Fixed { index, layout, taken: buffer, .. } = &state.kind else { continue };
            for (n, slot) in taken {
                let from = Strip::of(buffer, n * layout.inner, layout.inner * count);
                if let Some(to) = self.arena.strip(*index, *slot, view_of(&self.slots, *slot).side) {
                    moves.push(kept_row(*layout, Some(from), to));
                }
            }
        }
        device::run(&*self.device, &moves, &mut self.moves)?;
        self.copied += taken.len() as u64;
        Ok(())
    }

    fn settle(&mut self, split: Vec<Option<Vec<Loose>>>, taken: &[(usize, u32)]) {
        for (state, rows) in self.states.iter_mut().zip(split) {
            let (Kind::Loose { slots, .. }, Some(rows)) = (&mut state.kind, rows) else { continue };
            let mut rows: Vec<Option<Loose>> = rows.into_iter().map(Some).collect();
            for (n, slot) in taken {
                if let (Some(place), Some(row)) = (slots.get_mut(*slot as usize), rows.get_mut(*n)) {
                    *place = row.take();
                }
            }
        }
    }

    // === what the host is told of a slot ===

    /// Class of the shapes of a slot's states that can change; equal classes batch together.
    pub fn shape_class(&self, slot: u32) -> u64 {
        let shapes = self.states.iter().filter_map(|state| match &state.kind {
            Kind::Loose { slots, .. } => slots.get(slot as usize)?.as_ref().map(|l| &l.shape),
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
            Kind::Loose { slots, .. } => slots.get(slot as usize).and_then(|s| s.as_ref()).map_or(0, |l| l.data.len()),
        };
        self.states.iter().map(of).sum::<usize>() as u64
    }

    /// The values of a slot's states, each as one row in the graph's own type, with its shape less the batch dimension.
    pub(super) fn values(&mut self, slot: u32) -> Result<Vec<(Shape, Vec<u8>)>, StateError> {
        let bound = self.bind_moved(slot)?;
        let mut values = Vec::with_capacity(self.states.len());
        for (n, state) in self.states.iter().enumerate() {
            // SAFETY: copied before anything else happens to the store.
            let (_, span) = unsafe { self.input(&bound, n) }?;
            let row = match &state.kind {
                Kind::Fixed { row, .. } => row.clone(),
                Kind::Loose { slots, .. } => {
                    slots.get(slot as usize).and_then(|s| s.as_ref()).map(|l| l.shape.clone()).unwrap_or_default()
                }
            };
            values.push((row, span.as_host().unwrap_or_default().to_vec()));
        }
        Ok(values)
    }

    /// Sets a slot's states to these values, each as [`Store::values`] gives it. Shapes were checked.
    pub(super) fn set_values(&mut self, slot: u32, values: Vec<(Shape, Vec<u8>)>) -> Result<(), StateError> {
        self.init(slot)?;
        let bound = self.bind_moved(slot)?;
        let mut fresh = Vec::new();
        for (state, (shape, bytes)) in self.states.iter_mut().zip(values) {
            fresh.push(match &mut state.kind {
                Kind::Fixed { taken, .. } => {
                    let place = taken.host().and_then(|b| b.get_mut(..bytes.len()));
                    place.ok_or(StateError::NoSlot(slot))?.copy_from_slice(&bytes);
                    None
                }
                Kind::Loose { .. } => {
                    Some(Fresh { shape: state.spec.batched(&shape, 1), data: Owned::from_vec(bytes) })
                }
            });
        }
        self.commit(&bound, fresh, &[true])
    }

    fn bind_moved(&mut self, slot: u32) -> Result<Bound, StateError> {
        let rows = vec![Some(slot)];
        if slot as usize >= self.slots.len() {
            return Err(StateError::NoSlot(slot));
        }
        self.gather(&rows)?;
        self.shape_batch(&rows)?;
        Ok(Bound { rows, way: Way::Moved })
    }

    fn view(&self, slot: u32) -> SlotView {
        view_of(&self.slots, slot)
    }

    fn change(&mut self, slot: u32, change: impl FnOnce(&mut SlotView)) {
        if let Some(view) = self.slots.get_mut(slot as usize) {
            change(view);
        }
    }
}

fn view_of(slots: &[SlotView], slot: u32) -> SlotView {
    slots.get(slot as usize).copied().unwrap_or_default()
}

/// A row on its way from how it is kept to how the graph has it.
fn graph_row<'a>(layout: Layout, from: Option<Strip<'a>>, to: Strip<'a>) -> Move<'a> {
    let convert = if layout.inner == layout.kept { Convert::No } else { Convert::Widen };
    match from {
        Some(_) => Move { from, to, outer: layout.outer, inner: layout.kept, convert },
        None => first_row(layout, None, to),
    }
}

/// A row in the graph's own form; zeros if there is none.
fn first_row<'a>(layout: Layout, from: Option<Strip<'a>>, to: Strip<'a>) -> Move<'a> {
    Move { from, to, outer: layout.outer, inner: layout.inner, convert: Convert::No }
}

/// A row on its way from how the graph has it to how it is kept; zeros if there is none.
fn kept_row<'a>(layout: Layout, from: Option<Strip<'a>>, to: Strip<'a>) -> Move<'a> {
    match (from, layout.inner == layout.kept) {
        (None, _) => Move { from, to, outer: layout.outer, inner: layout.kept, convert: Convert::No },
        (_, true) => Move { from, to, outer: layout.outer, inner: layout.inner, convert: Convert::No },
        (_, false) => Move { from, to, outer: layout.outer, inner: layout.inner, convert: Convert::Narrow },
    }
}

/// Bytes of the host on the device. Only the host's own device exists so far.
fn upload(device: &Arc<dyn Device>, data: &[u8], len: usize) -> Result<Buffer, DeviceError> {
    let mut buffer = Buffer::new(device, len)?;
    let place = buffer.place();
    let target = buffer.host().ok_or(DeviceError::WrongPlace { got: place, want: crate::device::Place::Host })?;
    for (to, from) in target.iter_mut().zip(data) {
        *to = *from;
    }
    Ok(buffer)
}
