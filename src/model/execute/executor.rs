//! Runs the batches of one instance: states, contexts and outputs.
//!
//! A run has two halves. [`Executor::submit`] asks for the whole run, with the commit of its states. [`Submitted::wait`] waits for the device
//! and splits the outputs. On the host, the first half does all the work. This file knows no lock and no client.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::backend::{Fetch, Graph};
use crate::batch::crop::numbers;
use crate::batch::outputs::OutputSplit;
use crate::batch::{BatchError, Staging, Wiring};
use crate::config::model::settings::{ModelSettings, Output};
use crate::config::units::human;
use crate::device::{Device, DeviceError, Fence, Unfinished};
use crate::model::load::LoadedModel;
use crate::state::{Bound, Fresh, Store};

use super::contexts::Contexts;
use super::growth::{GrownStates, ReservedGrowth};
use super::placement::Placement;
use super::ports::{OutputMemory, RunMemory, feed};
use super::reply_shapes::{crop_by_lengths, cropped, flat_parts, reshape_output};
use super::run_error::RunError;
use super::slots::Slots;
use super::work::{CommittedRow, RowOutcome, RowWork, RunSize, RunTimes, StateNow};

#[derive(Debug)]
pub(in crate::model) struct Executor {
    load: Arc<LoadedModel>,
    pub(in crate::model) slots: Slots,
    outputs: OutputMemory,
    contexts: Contexts,
    graph: Arc<dyn Graph>,
    device: Arc<dyn Device>,
    lost: Arc<Lost>,
}

/// The error of a device that failed during its work. The slots of this instance then hold no sequence's state any more.
#[derive(Debug)]
struct Lost {
    /// The first error, which says more than those that follow from it.
    error: OnceLock<DeviceError>,
    /// Outputs that it may still write.
    memory: Unfinished,
}

impl Lost {
    /// Notes that the device failed, and keeps what it may still write.
    fn lose(&self, error: &DeviceError, held: RunMemory) {
        let _ = self.error.set(error.clone());
        self.memory.keep(held);
    }
}

/// A run that was asked for: what is left to do when the device has done it.
#[derive(Debug)]
pub(in crate::model) struct Submitted {
    load: Arc<LoadedModel>,
    device: Arc<dyn Device>,
    lost: Arc<Lost>,
    /// Behind all of it.
    fence: Fence,
    /// Each row of the batch: what its state is then, or padding.
    rows: Vec<Option<CommittedRow>>,
    pub(in crate::model) size: RunSize,
    at: Instant,
    /// What the device writes, and may still read.
    held: RunMemory,
}

/// Whether the first chunks of all instances fit into `limits.state`. They are there from the load on, with or without sequences.
fn check_first_chunks(load: &LoadedModel, slots: u32, limit: u64) -> Result<(), RunError> {
    let instances = u64::from(load.settings.instances.max(1));
    let wanted = load.state_bytes().saturating_mul(u64::from(slots)).saturating_mul(instances);
    if wanted <= limit {
        return Ok(());
    }
    let [wanted, limit] = [wanted, limit].map(human);
    let why =
        format!("{instances} x {slots} slots need {wanted} of state when the model loads, limits.state is {limit}");
    Err(RunError::FirstChunk(why))
}

impl Executor {
    pub(in crate::model) fn new(
        load: Arc<LoadedModel>,
        placement: Placement,
        slots: u32,
        sided: bool,
    ) -> Result<Executor, RunError> {
        let Placement { graph, device, pool, budget, chunk_cache, gpu } = placement;
        let mut store = Store::new(&device, load.states.clone(), slots, sided, chunk_cache.clone())?;
        if let Some(plan) = load.chunk_plan() {
            check_first_chunks(&load, plan.sizes.first, budget.limit())?;
            store.plan_chunks(plan).map_err(|error| RunError::FirstChunk(error.to_string()))?;
        }
        let context = graph.context(&load.wiring.input_names, &load.wiring.output_names)?;
        let contexts = Contexts::new(load.wiring.clone(), context);
        let outputs = OutputMemory::new(&device, pool, &load.settings)?;
        let memory = Unfinished::new(Arc::clone(&device));
        let grown = GrownStates::new(budget, chunk_cache, &load.states);
        let (slots, lost) = (Slots::new(store, grown, gpu), Arc::new(Lost { error: OnceLock::new(), memory }));
        Ok(Executor { load, slots, outputs, contexts, graph, device, lost })
    }

    /// Memory to lay out the inputs of a batch in. Each batch that is under way needs one of its own.
    pub(in crate::model) fn staging(&self) -> Result<Staging, RunError> {
        Ok(Staging::new(&self.device, &self.load.settings)?)
    }

    /// Runs a batch once, from beginning to end. All rows or none: an error leaves every state as it was.
    pub(in crate::model) fn run(
        &mut self,
        staging: &mut Staging,
        batch: &[Option<RowWork>],
        times: &mut RunTimes,
    ) -> Result<Vec<RowOutcome>, RunError> {
        let submitted = self.submit(staging, batch, times)?;
        let from = submitted.at;
        submitted.wait(from, times)
    }

    /// Asks for a run, and for everything that belongs to it. When this returns, its states are committed for everything that is
    /// submitted later. All rows or none: after an error nothing of it is under way, and every state is as it was.
    pub(in crate::model) fn submit(
        &mut self,
        staging: &mut Staging,
        batch: &[Option<RowWork>],
        times: &mut RunTimes,
    ) -> Result<Submitted, RunError> {
        if let Some(error) = self.lost.error.get() {
            return Err(error.clone().into());
        }
        let mut held = RunMemory::default();
        let asked = self.ask(staging, batch, times, &mut held).and_then(|(at, bound, ran)| {
            let rows = self.commit(at, batch, &bound, &mut held);
            let committed = Instant::now();
            times.state_out += committed - ran;
            Ok((rows?, committed))
        });
        match asked {
            Ok((rows, at)) => self.submitted(batch, rows, at, held),
            Err(error) => {
                // What was asked for is over before anything of it is used again.
                if let Err(failed) = self.device.fence().and_then(|fence| self.device.wait(fence)) {
                    self.lost.lose(&failed, held);
                }
                Err(error)
            }
        }
    }

    fn submitted(
        &self,
        batch: &[Option<RowWork>],
        rows: Vec<Option<CommittedRow>>,
        at: Instant,
        held: RunMemory,
    ) -> Result<Submitted, RunError> {
        let fence = match self.device.fence() {
            Ok(fence) => fence,
            // Without a fence it never becomes known when the states are there.
            Err(error) => {
                self.lost.lose(&error, held);
                return Err(error.into());
            }
        };
        let (load, device, lost) = (Arc::clone(&self.load), Arc::clone(&self.device), Arc::clone(&self.lost));
        Ok(Submitted { load, device, lost, fence, rows, size: RunSize::of(batch), at, held })
    }

    /// Lays out, binds and runs: by which context, with which states, and when that was done.
    fn ask(
        &mut self,
        staging: &mut Staging,
        batch: &[Option<RowWork>],
        times: &mut RunTimes,
        held: &mut RunMemory,
    ) -> Result<(usize, Bound, Instant), RunError> {
        let began = Instant::now();
        let bound = self.prepare(staging, batch)?;
        let at = self.context_for(batch)?;
        let ran = Instant::now();
        times.state_in += ran - began;
        self.run_context(at, staging, batch, &bound, held)?;
        let done = Instant::now();
        times.run += done - ran;
        Ok((at, bound, done))
    }

    fn prepare(&mut self, staging: &mut Staging, batch: &[Option<RowWork>]) -> Result<Bound, RunError> {
        let rows: Vec<_> = batch.iter().map(|row| row.as_ref().map(RowWork::row)).collect();
        staging.fill(&rows)?;
        let slots =
            if self.load.states.is_empty() { Vec::new() } else { batch.iter().map(|row| row.as_ref()?.slot).collect() };
        let store = &mut self.slots.store;
        let bound = store.bind(slots)?;
        staging.fill_state_inputs(|state| store.lengths(state))?;
        store.ready(&bound)?;
        Ok(bound)
    }

    /// The context whose inputs are those that this batch brings.
    fn context_for(&mut self, batch: &[Option<RowWork>]) -> Result<usize, RunError> {
        let Some(first) = batch.iter().flatten().next() else { return Ok(0) };
        if !self.load.wiring.lacks(&first.inputs) {
            return Ok(0);
        }
        let wiring = self.load.wiring.without(&Staging::given(&first.inputs));
        if let Some(at) = self.contexts.find(&wiring) {
            return Ok(at);
        }
        let context = self.graph.context(&wiring.input_names, &wiring.output_names)?;
        if self.contexts.is_full() {
            // The device may still be running the one that is removed.
            self.device.wait(self.device.fence()?)?;
        }
        Ok(self.contexts.add(wiring, context))
    }

    fn run_context(
        &mut self,
        at: usize,
        staging: &Staging,
        batch: &[Option<RowWork>],
        bound: &Bound,
        held: &mut RunMemory,
    ) -> Result<(), RunError> {
        let store = &self.slots.store;
        let Some((wiring, context)) = self.contexts.get_mut(at) else { return Ok(()) };
        let mut feeds = Vec::with_capacity(wiring.inputs.len());
        for (source, name) in wiring.inputs.iter().zip(&wiring.input_names) {
            feeds.push(feed(staging, store, bound, *source, name)?);
        }
        held.pooled = self.outputs.reserve(&self.load.settings, wiring, RunSize::of(batch).executed)?;
        let mut fetches = Vec::with_capacity(wiring.outputs.len());
        for (sink, place) in wiring.outputs.iter().zip(&mut held.pooled) {
            fetches.push(self.outputs.fetch(store, bound, *sink, place)?);
        }
        let ran = context.run(&feeds, &mut fetches);
        let produced = fetches.into_iter().map(|fetch| match fetch {
            Fetch::New(produced) => produced,
            Fetch::Into { .. } => None,
        });
        held.produced = produced.collect();
        Ok(ran?)
    }

    /// Checks everything, then asks for the outputs, then commits: a row's state is never taken without its answer. What each row's state is
    /// then.
    fn commit(
        &mut self,
        at: usize,
        batch: &[Option<RowWork>],
        bound: &Bound,
        held: &mut RunMemory,
    ) -> Result<Vec<Option<CommittedRow>>, RunError> {
        let store = &mut self.slots.store;
        let wiring = self.contexts.get(at).map_or(&self.load.wiring, |(wiring, _)| wiring);
        let fresh = fresh(&self.load.settings, store, wiring, held);
        store.check(bound, &fresh)?;
        self.outputs.room(store, bound, wiring, held)?;
        held.splits = splits(&self.load.settings, &self.outputs, store, (wiring, bound, &fresh), batch, held)?;
        self.outputs.send(store, bound, wiring, held)?;
        // A sequence that ends leaves no state. Where states grow, the last one is not taken, so it needs no memory.
        let grows = store.grows();
        let good: Vec<bool> = batch.iter().map(|row| row.as_ref().is_some_and(|work| !(work.end && grows))).collect();
        let reserved = reserve(store, &self.slots.grown, (bound, &fresh), batch)?;
        let sealed: Vec<bool> = batch.iter().map(|row| row.as_ref().is_some_and(|work| work.seal)).collect();
        let mut copies = store.commit_with_copies(bound, fresh, &good, &sealed)?.into_iter();
        if let Some(reserved) = reserved {
            self.slots.grown.apply(reserved);
        }
        let now = |slot: u32| StateNow { shape: store.shape_class(slot), bytes: store.bytes(slot) };
        let row = |row: &Option<RowWork>| {
            let copy = copies.next().flatten();
            row.as_ref().map(|work| CommittedRow { state: work.slot.map(now).unwrap_or_default(), copy })
        };
        Ok(batch.iter().map(row).collect())
    }
}

impl Submitted {
    /// How many requests it runs.
    pub(in crate::model) fn requests(&self) -> usize {
        self.rows.iter().flatten().count()
    }

    /// Waits until the device has done it: the outcome of each request. The wait counts from `from`. If it fails, the device is lost.
    pub(in crate::model) fn wait(self, from: Instant, times: &mut RunTimes) -> Result<Vec<RowOutcome>, RunError> {
        let Submitted { load, device, lost, fence, rows, held, .. } = self;
        let waited = device.wait(fence);
        let done = Instant::now();
        times.run += done.saturating_duration_since(from);
        if let Err(error) = waited {
            lost.lose(&error, held);
            return Err(error.into());
        }
        let outcomes = outcomes(&load.settings, rows, held.splits);
        times.state_out += done.elapsed();
        Ok(outcomes)
    }
}

fn outcomes(settings: &ModelSettings, rows: Vec<Option<CommittedRow>>, splits: Vec<OutputSplit>) -> Vec<RowOutcome> {
    let outcome = |CommittedRow { state, copy }: CommittedRow| {
        let outputs = Vec::with_capacity(splits.len());
        RowOutcome { outputs, state, copy }
    };
    let mut rows: Vec<Option<RowOutcome>> = rows.into_iter().map(|row| row.map(outcome)).collect();
    for (output, cut) in settings.outputs.iter().zip(splits) {
        for (row, mut tensor) in rows.iter_mut().zip(cut.tensors()) {
            let Some(row) = row else { continue };
            reshape_output(settings, output.reshape.as_ref(), &output.dims, &mut tensor);
            row.outputs.push(tensor);
        }
    }
    let mut rows: Vec<RowOutcome> = rows.into_iter().flatten().collect();
    rows.iter_mut().for_each(|row| crop_by_lengths(settings, row));
    rows
}

/// Memory for the states that this run lets grow, but for those of sequences that end with it.
fn reserve(
    store: &Store,
    grown: &GrownStates,
    (bound, fresh): (&Bound, &[Option<Fresh>]),
    batch: &[Option<RowWork>],
) -> Result<Option<ReservedGrowth>, RunError> {
    if !store.grows() {
        return Ok(None);
    }
    let after = store.growing_bytes_after(bound, fresh)?;
    let stay = |row: &Option<RowWork>| row.as_ref().filter(|work| !work.end)?.slot;
    let sizes = batch.iter().zip(after).filter_map(|(row, bytes)| Some((stay(row)?, bytes)));
    Ok(Some(grown.reserve(sizes)?))
}

/// The states that the backend allocated.
fn fresh(settings: &ModelSettings, store: &Store, wiring: &Wiring, held: &RunMemory) -> Vec<Option<Fresh>> {
    let mut fresh: Vec<Option<Fresh>> = store.specs().map(|_| None).collect();
    for (sink, produced) in wiring.outputs.iter().zip(&held.produced) {
        if let (Some(place), Some(p)) = (sink.state.and_then(|n| fresh.get_mut(n)), produced) {
            *place = Some(Fresh { shape: p.shape.clone(), data: p.data.clone(), lengths: None });
        }
    }
    for (output, state) in &wiring.new_lengths {
        if let Some(Some(produced)) = fresh.get_mut(*state) {
            produced.lengths = Some(new_lengths(settings, wiring, held, *output).unwrap_or_default());
        }
    }
    fresh
}

/// The numbers of an output (its place among those of the graph) that says how long the rows of a state are.
fn new_lengths(settings: &ModelSettings, wiring: &Wiring, held: &RunMemory, output: usize) -> Option<Vec<i64>> {
    if let Some(Some(produced)) = held.produced.get(output) {
        return numbers(produced.dtype, produced.data.as_ref());
    }
    let client = settings.outputs.get(wiring.outputs.get(output)?.client?)?;
    let (_, pooled) = held.pooled.get(output)?.as_ref()?;
    numbers(client.dtype, pooled.as_ref())
}

/// The clients' outputs, ready to be cut, in the order of the settings.
fn splits(
    settings: &ModelSettings,
    outputs: &OutputMemory,
    store: &Store,
    (wiring, bound, fresh): (&Wiring, &Bound, &[Option<Fresh>]),
    batch: &[Option<RowWork>],
    held: &mut RunMemory,
) -> Result<Vec<OutputSplit>, RunError> {
    let parts: Vec<u64> = batch.iter().map(|row| row.as_ref().map_or(1, |r| r.rows)).collect();
    let mut splits: Vec<Option<OutputSplit>> = std::iter::repeat_with(|| None).take(settings.outputs.len()).collect();
    for ((sink, pooled), produced) in wiring.outputs.iter().zip(&mut held.pooled).zip(&held.produced) {
        let Some(n) = sink.client else { continue };
        let (Some(output), Some(place)) = (settings.outputs.get(n), splits.get_mut(n)) else { continue };
        let Some((shape, data)) = outputs.written(store, bound, *sink, (pooled.take(), produced))? else { continue };
        if let Some(source) = output.cut_like {
            let shapes = flat_parts(settings, output, source, batch);
            *place = Some(OutputSplit::shapes(&output.name, output.dtype, data, shapes)?);
            continue;
        }
        if let Some(axis) = output.batch_dim {
            let rows = (batch.len() as u64, axis);
            *place = Some(OutputSplit::on_axis(&output.name, output.dtype, &shape, data, rows)?);
            continue;
        }
        let padded = sink.state.map(|state| store.lengths_after(bound, state, fresh)).transpose()?.flatten();
        if let Some((padding, lengths)) = padded {
            let split = OutputSplit::rows(&output.name, output.dtype, &shape, data, &parts)?;
            *place = Some(split.cropped(padding.axis + 1, padding.side, lengths));
            continue;
        }
        *place = Some(match settings.max_batch_size {
            0 => OutputSplit::whole(output.dtype, shape, data),
            _ => cropped(OutputSplit::rows(&output.name, output.dtype, &shape, data, &parts)?, output, batch),
        });
    }
    let whole = |(output, cut): (&Output, Option<OutputSplit>)| {
        cut.ok_or_else(|| RunError::Batch(BatchError::Missing { output: output.name.clone() }))
    };
    settings.outputs.iter().zip(splits).map(whole).collect()
}
