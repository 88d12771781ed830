//! Runs the batches of one instance: states, contexts and outputs.
//!
//! A run has two halves. [`Executor::submit`] submits the whole run, with the commit of its states. [`Submitted::wait`] waits for the device
//! and splits the outputs (`submitted`). On the host, the first half does all the work. This file knows no lock and no client.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::backend::{BackendError, Fetch, Graph};
use crate::batch::Staging;
use crate::config::model::settings::Scheduling;
use crate::config::units::human;
use crate::device::{Device, DeviceError};
use crate::model::load::LoadedModel;
use crate::state::{Bound, Fresh, Store, not_finite};

use super::contexts::Contexts;
use super::growth::{GrownStates, ReservedGrowth};
use super::placement::Placement;
use super::ports::{OutputMemory, RunMemory, feed};
use super::row_work::{CommittedRow, RowOutcome, RowWork, RunSize, RunTimes, StateNow};
use super::run_error::RunError;
use super::run_outputs::{fresh, splits};
use super::slots::InstanceSlots;
use super::submitted::{LostDevice, Submitted, UnfinishedRun};

#[derive(Debug)]
pub(in crate::model) struct Executor {
    load: Arc<LoadedModel>,
    pub(in crate::model) slots: InstanceSlots,
    outputs: OutputMemory,
    contexts: Contexts,
    graph: Arc<dyn Graph>,
    device: Arc<dyn Device>,
    lost: Arc<LostDevice>,
    /// Whether states are checked for NaN and infinity before they are committed.
    watches: bool,
}

/// Checks that the first chunks of all instances fit into `limits.state`. They exist from the load on, with or without sequences.
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
        let grown = GrownStates::new(budget, chunk_cache, &load.states, load.grown.clone());
        let (slots, lost) = (InstanceSlots::new(store, grown, gpu), Arc::new(LostDevice::new(&device)));
        let watches = matches!(&load.settings.scheduling, Scheduling::Sequence(sequence) if sequence.watch);
        Ok(Executor { load, slots, outputs, contexts, graph, device, lost, watches })
    }

    /// The failure of the device, if it is lost. After it, every run fails.
    pub(in crate::model) fn lost(&self) -> Option<&DeviceError> {
        self.lost.error()
    }

    /// Finds out whether the device is lost, if it failed while states were written to slots.
    pub(in crate::model) fn check_slots(&mut self) {
        if std::mem::take(&mut self.slots.has_failed_device) {
            drop(UnfinishedRun::new(&self.device, &self.lost));
        }
    }

    /// Memory for the inputs of a batch. Each batch in flight needs its own.
    pub(in crate::model) fn staging(&self) -> Result<Staging, RunError> {
        Ok(Staging::new(&self.device, &self.load.settings)?)
    }

    /// Runs a batch once and waits for it. All rows run or none. After an error every state is as it was, unless the device is lost.
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

    /// Submits a run with the commit of its states. Work that is submitted later sees the committed states. All rows run or none. After an
    /// error none of it is in flight and every state is as it was, unless the device is lost.
    pub(in crate::model) fn submit(
        &mut self,
        staging: &mut Staging,
        batch: &[Option<RowWork>],
        times: &mut RunTimes,
    ) -> Result<Submitted, RunError> {
        if let Some(error) = self.lost.error() {
            return Err(error.clone().into());
        }
        let mut run = UnfinishedRun::new(&self.device, &self.lost);
        let (at, bound, ran) = self.ask(staging, batch, times, &mut run.held)?;
        let rows = self.commit(at, batch, &bound, &mut run.held);
        let committed = Instant::now();
        times.state_out += committed - ran;
        self.submitted(batch, rows?, committed, run.finish())
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
            // Without a fence Sequor cannot know when the states are complete.
            Err(error) => {
                self.lost.lose(&error, held);
                return Err(error.into());
            }
        };
        let (load, device, lost) = (Arc::clone(&self.load), Arc::clone(&self.device), Arc::clone(&self.lost));
        Ok(Submitted { load, device, lost, fence, rows, size: RunSize::measure(batch), at, held })
    }

    /// Lays out the inputs, binds the states and runs. Returns the context's index, the bound states and the time after the run.
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

    /// The index of the context for the inputs that this batch contains.
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
            // The device may still run the context that is removed.
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
        held.pooled = self.outputs.reserve(&self.load.settings, wiring, RunSize::measure(batch).executed)?;
        let mut fetches = Vec::with_capacity(wiring.outputs.len());
        for (sink, place) in wiring.outputs.iter().zip(&mut held.pooled) {
            fetches.push(self.outputs.fetch(store, bound, *sink, place)?);
        }
        let ran = caught(|| context.run(&feeds, &mut fetches));
        let produced = fetches.into_iter().map(|fetch| match fetch {
            Fetch::New(produced) => produced,
            Fetch::Into { .. } => None,
        });
        held.produced = produced.collect();
        Ok(ran?)
    }

    /// Checks everything, then sends the outputs, then commits. So a row's state is never committed without its answer. Returns each row's
    /// state after the commit.
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
        let not_finite = if self.watches { not_finite(store, bound, &fresh)? } else { Vec::new() };
        self.outputs.room(store, bound, wiring, held)?;
        held.splits = splits(&self.load.settings, &self.outputs, store, (wiring, bound, &fresh), batch, held)?;
        self.outputs.send(store, bound, wiring, held)?;
        // A sequence that ends leaves no state. If states grow, its last state is not committed, so it needs no memory.
        let grows = store.grows();
        let is_finite = |n: usize| not_finite.get(n).is_none_or(Option::is_none);
        let rows: Vec<Option<&RowWork>> =
            batch.iter().enumerate().map(|(n, row)| row.as_ref().filter(|_| is_finite(n))).collect();
        let good: Vec<bool> = rows.iter().map(|row| row.is_some_and(|work| !(work.end && grows))).collect();
        let reserved = reserve(store, &self.slots.grown, (bound, &fresh), &rows)?;
        let sealed: Vec<bool> = rows.iter().map(|row| row.is_some_and(|work| work.seal)).collect();
        let mut copies = store.commit_with_copies(bound, fresh, &good, &sealed)?.into_iter();
        if let Some(reserved) = reserved {
            self.slots.grown.apply(reserved);
        }
        let now = |slot: u32| StateNow { shape: store.shape_class(slot), bytes: store.bytes(slot) };
        let mut not_finite = not_finite.into_iter();
        let row = |row: &Option<RowWork>| {
            let (copy, not_finite) = (copies.next().flatten(), not_finite.next().flatten());
            row.as_ref().map(|work| CommittedRow { state: work.slot.map(now).unwrap_or_default(), copy, not_finite })
        };
        Ok(batch.iter().map(row).collect())
    }
}

/// A panic in a backend is a failed run: nothing is committed yet, and a context keeps nothing from one run to the next.
fn caught(run: impl FnOnce() -> Result<(), BackendError>) -> Result<(), BackendError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
        let what = format!("the backend has panicked: {}", why.unwrap_or("see the server's log"));
        tracing::error!(what, "a fault of the server's own code: report it");
        Err(BackendError(what))
    })
}

/// Reserves memory for the states that grow in this run. Sequences that end with it need none. `rows` has one entry per row of the batch.
fn reserve(
    store: &Store,
    grown: &GrownStates,
    (bound, fresh): (&Bound, &[Option<Fresh>]),
    rows: &[Option<&RowWork>],
) -> Result<Option<ReservedGrowth>, RunError> {
    if !store.grows() {
        return Ok(None);
    }
    let after = store.growing_bytes_after(bound, fresh)?;
    let stay = |row: &Option<&RowWork>| row.filter(|work| !work.end)?.slot;
    let sizes = rows.iter().zip(after).filter_map(|(row, bytes)| Some((stay(row)?, bytes)));
    Ok(Some(grown.reserve(sizes)?))
}
