//! One instance's means of running batches: staging, states and a context. Validates, commits and cuts; knows no lock and no client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sequor_core::{Id, Req, Shape, SlotOp};

use crate::backend::{BackendError, Context, Feed, Fetch, Produced};
use crate::batch::outputs::{Written, split, whole};
use crate::batch::{BatchError, BatchRow, Sink, Source, Staging, Wiring};
use crate::config::model::settings::{ModelSettings, reshaped};
use crate::device::{Device, Pool, Pooled};
use crate::state::{Bound, Fresh, SnapshotError, StateError, StateOut, Store};
use crate::tensor::Tensor;

use super::loaded::Loaded;

/// Why a run gave nothing. Clients read the text.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RunError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
    #[error("the state that was kept is not taken: {0}")]
    Snapshot(#[from] Arc<SnapshotError>),
}

impl From<SnapshotError> for RunError {
    fn from(error: SnapshotError) -> RunError {
        RunError::Snapshot(Arc::new(error))
    }
}

/// A row to run; `None` in a batch is padding.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) inputs: Vec<Option<Tensor>>,
    pub(super) rows: u64,
    pub(super) start: bool,
    pub(super) end: bool,
    pub(super) id: Id,
    pub(super) slot: Option<u32>,
}

/// What a row's run has left: its outputs in the order of the settings, and what its state is like now.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) outputs: Vec<Tensor>,
    pub(super) state_shape: u64,
    pub(super) state_bytes: u64,
}

/// How long the parts of one run took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spent {
    pub(super) state_in: Duration,
    pub(super) run: Duration,
    pub(super) state_out: Duration,
}

#[derive(Debug)]
pub(super) struct Executor {
    load: Arc<Loaded>,
    staging: Staging,
    store: Store,
    /// By the optional inputs that are there.
    contexts: Vec<(Wiring, Box<dyn Context>)>,
    pool: Pool,
}

impl Executor {
    pub(super) fn new(
        load: Arc<Loaded>,
        device: &Arc<dyn Device>,
        pool: Pool,
        slots: u32,
        sided: bool,
    ) -> Result<Executor, RunError> {
        let staging = Staging::new(device, &load.settings)?;
        let store = Store::new(device, load.states.clone(), slots, sided)?;
        let context = load.graph.context(&load.wiring.input_names, &load.wiring.output_names)?;
        let contexts = vec![(load.wiring.clone(), context)];
        Ok(Executor { load, staging, store, contexts, pool })
    }

    /// Does what must be done to slots before a run, in order. `kept` finds the state that a request brought for its sequence.
    pub(super) fn slot_ops(&mut self, ops: &[SlotOp], kept: impl Fn(Req) -> Option<Bytes>) -> Result<(), RunError> {
        for op in ops {
            match op {
                SlotOp::Init(slot, _) => self.store.init(slot.ix)?,
                SlotOp::Free(slot) => self.store.free(slot.ix)?,
                SlotOp::Adopt(slot, req) => match kept(*req) {
                    Some(snapshot) => self.store.restore(slot.ix, &snapshot)?,
                    None => self.store.init(slot.ix)?,
                },
                // No load names the stage that leads here yet.
                SlotOp::Spill(..) => {}
            }
        }
        Ok(())
    }

    /// The state of a slot as a file. Nothing of the instance may be running.
    pub(super) fn snapshot(&mut self, slot: u32, header: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError> {
        self.store.snapshot(slot, header)
    }

    /// Runs a batch once. All rows or none: an error leaves every state as it was.
    pub(super) fn run(&mut self, batch: &[Option<Work>], spent: &mut Spent) -> Result<Vec<Outcome>, RunError> {
        let began = Instant::now();
        let bound = self.prepare(batch)?;
        let at = self.context_for(batch)?;
        let ran = Instant::now();
        spent.state_in += ran - began;
        let (outputs, fresh) = self.run_context(at, batch, &bound)?;
        let done = Instant::now();
        spent.run += done - ran;
        let outcomes = self.finish(batch, &bound, outputs, fresh);
        spent.state_out += done.elapsed();
        outcomes
    }

    fn prepare(&mut self, batch: &[Option<Work>]) -> Result<Bound, RunError> {
        let rows: Vec<Option<BatchRow<'_>>> = batch.iter().map(|row| row.as_ref().map(Work::row)).collect();
        self.staging.fill(&rows)?;
        let slots =
            if self.load.states.is_empty() { Vec::new() } else { batch.iter().map(|row| row.as_ref()?.slot).collect() };
        let bound = self.store.bind(slots)?;
        self.store.ready(&bound)?;
        Ok(bound)
    }

    /// The context whose inputs are those that this batch brings.
    fn context_for(&mut self, batch: &[Option<Work>]) -> Result<usize, RunError> {
        let Some(first) = batch.iter().flatten().next() else { return Ok(0) };
        if !self.load.wiring.lacks(&first.inputs) {
            return Ok(0);
        }
        let wiring = self.load.wiring.without(&Staging::given(&first.inputs));
        if let Some(at) = self.contexts.iter().position(|(w, _)| *w == wiring) {
            return Ok(at);
        }
        let context = self.load.graph.context(&wiring.input_names, &wiring.output_names)?;
        self.contexts.push((wiring, context));
        Ok(self.contexts.len() - 1)
    }

    /// Runs the graph; the clients' outputs by their place in the settings, and the states that the backend allocated.
    fn run_context(&mut self, at: usize, batch: &[Option<Work>], bound: &Bound) -> Result<Collected, RunError> {
        let settings = &self.load.settings;
        let rows = batch_rows(batch);
        let Some((wiring, context)) = self.contexts.get_mut(at) else { return Ok(Default::default()) };
        let mut feeds = Vec::with_capacity(wiring.inputs.len());
        for (source, name) in wiring.inputs.iter().zip(&wiring.input_names) {
            feeds.push(feed(&self.staging, &self.store, bound, *source, name)?);
        }
        let mut pooled = pooled_outputs(settings, wiring, &self.pool, rows)?;
        let mut fetches = Vec::with_capacity(wiring.outputs.len());
        for (sink, place) in wiring.outputs.iter().zip(&mut pooled) {
            fetches.push(fetch(&self.store, bound, *sink, place)?);
        }
        context.run(&feeds, &mut fetches)?;
        let produced: Vec<Option<Produced>> = fetches
            .into_iter()
            .map(|fetch| match fetch {
                Fetch::New(produced) => produced,
                Fetch::Into { .. } => None,
            })
            .collect();
        collect(&self.store, bound, wiring, pooled, produced, settings.outputs.len(), self.load.states.len())
    }

    /// Checks everything, then commits, then cuts: a row's state is never taken without its answer.
    fn finish(
        &mut self,
        batch: &[Option<Work>],
        bound: &Bound,
        outputs: Vec<Option<(Shape, Written)>>,
        fresh: Vec<Option<Fresh>>,
    ) -> Result<Vec<Outcome>, RunError> {
        self.store.check(bound, &fresh)?;
        let tensors = self.cut(batch, outputs)?;
        let good: Vec<bool> = batch.iter().map(Option::is_some).collect();
        self.store.commit(bound, fresh, &good)?;
        let outcome = |(row, outputs): (&Work, Vec<Tensor>)| {
            let slot = row.slot;
            Outcome {
                outputs,
                state_shape: slot.map_or(0, |slot| self.store.shape_class(slot)),
                state_bytes: slot.map_or(0, |slot| self.store.bytes(slot)),
            }
        };
        Ok(batch.iter().flatten().zip(tensors).map(outcome).collect())
    }

    /// The outputs of each real row, in the order of the settings.
    fn cut(
        &self,
        batch: &[Option<Work>],
        outputs: Vec<Option<(Shape, Written)>>,
    ) -> Result<Vec<Vec<Tensor>>, RunError> {
        let settings = &self.load.settings;
        let mut rows: Vec<Vec<Tensor>> = batch.iter().flatten().map(|_| Vec::with_capacity(outputs.len())).collect();
        let parts: Vec<u64> = batch.iter().map(|row| row.as_ref().map_or(1, |r| r.rows)).collect();
        for (output, written) in settings.outputs.iter().zip(outputs) {
            let missing = || BatchError::Missing { output: output.name.clone() };
            let (shape, data) = written.ok_or_else(missing)?;
            let cut = match settings.max_batch_size {
                0 => vec![whole(output.dtype, shape, data)],
                _ => split(&output.name, output.dtype, &shape, data, &parts)?,
            };
            let real = cut.into_iter().zip(batch).filter(|(_, row)| row.is_some()).map(|(tensor, _)| tensor);
            for (row, mut tensor) in rows.iter_mut().zip(real) {
                reshape_output(settings, output.reshape.as_ref(), &output.dims, &mut tensor);
                row.push(tensor);
            }
        }
        Ok(rows)
    }
}

impl Work {
    fn row(&self) -> BatchRow<'_> {
        BatchRow { inputs: &self.inputs, rows: self.rows, start: self.start, end: self.end, id: &self.id }
    }
}

/// Rows the graph is run with, padding included.
fn batch_rows(batch: &[Option<Work>]) -> u64 {
    batch.iter().map(|row| row.as_ref().map_or(1, |r| r.rows)).sum()
}

fn feed<'a>(
    staging: &'a Staging,
    store: &'a Store,
    bound: &Bound,
    source: Source,
    name: &str,
) -> Result<Feed<'a>, RunError> {
    if let Source::State(n) = source {
        // SAFETY: the store is not changed before the run is over.
        let (shape, data) = unsafe { store.input(bound, n) }?;
        let dtype = store.specs().nth(n).map(|s| s.dtype).ok_or(StateError::Missing { state: name.to_owned() })?;
        return Ok(Feed { dtype, shape, data });
    }
    // SAFETY: the staging is not filled again before the run is over.
    let fed = unsafe { staging.feed(source) }.ok_or_else(|| BatchError::Unfit { input: name.to_owned() })?;
    Ok(Feed { dtype: fed.0, shape: fed.1, data: fed.2 })
}

/// Memory for the outputs whose size is known; `None` where the backend shall allocate, or a state is written.
fn pooled_outputs(
    settings: &ModelSettings,
    wiring: &Wiring,
    pool: &Pool,
    rows: u64,
) -> Result<Vec<Option<(Shape, Pooled)>>, RunError> {
    let mut out = Vec::with_capacity(wiring.outputs.len());
    for sink in &wiring.outputs {
        let output = sink.client.filter(|_| sink.state.is_none()).and_then(|n| settings.outputs.get(n));
        let known = output.and_then(|o| {
            let shape = o.reshape.as_ref().unwrap_or(&o.dims).fixed()?;
            let shape = if settings.max_batch_size > 0 { shape.with(0, rows) } else { shape };
            let bytes = shape.elements()?.checked_mul(o.dtype.size()? as u64)?;
            Some((shape, usize::try_from(bytes).ok()?))
        });
        out.push(match known {
            Some((shape, bytes)) => Some((shape, pool.take(bytes)?)),
            None => None,
        });
    }
    Ok(out)
}

fn fetch<'a>(
    store: &'a Store,
    bound: &Bound,
    sink: Sink,
    place: &'a mut Option<(Shape, Pooled)>,
) -> Result<Fetch<'a>, RunError> {
    if let Some(n) = sink.state {
        // SAFETY: the store is not changed before the run is over.
        return Ok(match unsafe { store.output(bound, n) }? {
            StateOut::Into { shape, data } => Fetch::Into { shape, data },
            StateOut::New => Fetch::New(None),
        });
    }
    Ok(match place {
        Some((shape, pooled)) => Fetch::Into { shape, data: pooled.write()? },
        None => Fetch::New(None),
    })
}

type Collected = (Vec<Option<(Shape, Written)>>, Vec<Option<Fresh>>);

/// Sorts what a run has produced into clients' outputs and states.
fn collect(
    store: &Store,
    bound: &Bound,
    wiring: &Wiring,
    pooled: Vec<Option<(Shape, Pooled)>>,
    produced: Vec<Option<Produced>>,
    outputs: usize,
    states: usize,
) -> Result<Collected, RunError> {
    let mut clients: Vec<Option<(Shape, Written)>> = std::iter::repeat_with(|| None).take(outputs).collect();
    let mut fresh: Vec<Option<Fresh>> = std::iter::repeat_with(|| None).take(states).collect();
    for ((sink, pooled), produced) in wiring.outputs.iter().zip(pooled).zip(produced) {
        let written = match (&produced, pooled) {
            (_, Some((shape, pooled))) => Some((shape, Written::Pooled(pooled))),
            (Some(p), None) => Some((p.shape.clone(), Written::Owned(p.data.clone()))),
            (None, None) => match sink.state.filter(|_| sink.client.is_some()) {
                Some(n) => store.written(bound, n)?.map(|(shape, bytes)| (shape, Written::Copied(bytes.into()))),
                None => None,
            },
        };
        if let Some(place) = sink.client.and_then(|n| clients.get_mut(n)) {
            *place = written;
        }
        if let (Some(place), Some(p)) = (sink.state.and_then(|n| fresh.get_mut(n)), produced) {
            *place = Some(Fresh { shape: p.shape, data: p.data });
        }
    }
    Ok((clients, fresh))
}

/// Gives a client the shape it was promised, where the graph's differs.
fn reshape_output(
    settings: &ModelSettings,
    reshape: Option<&sequor_core::Dims>,
    dims: &sequor_core::Dims,
    tensor: &mut Tensor,
) {
    let Some(from) = reshape else { return };
    let batching = settings.max_batch_size > 0;
    let row = if batching { tensor.shape.without(0) } else { tensor.shape.clone() };
    if let Some(shape) = reshaped(from, dims, &row) {
        tensor.shape = match tensor.shape.0.first() {
            Some(rows) if batching => shape.with(0, *rows),
            _ => shape,
        };
    }
}
