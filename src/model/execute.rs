//! One instance's means of running batches: staging, states and a context. Validates, commits and cuts; knows no lock and no client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sequor_core::{Id, Req, Shape, SlotOp};

use crate::backend::{BackendError, Context, Feed, Fetch, Graph, Produced};
use crate::batch::outputs::{Written, split, whole};
use crate::batch::{BatchError, BatchRow, Sink, Source, Staging, Wiring};
use crate::config::model::settings::{ModelSettings, reshaped};
use crate::device::{Buffer, Device, DeviceError, Place, Pool, Pooled};
use crate::state::{Bound, Fresh, SnapshotError, StateError, StateOut, Store};
use crate::telemetry::GpuMetrics;
use crate::tensor::Tensor;

use super::loaded::Loaded;
use super::site::Site;

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
    Device(#[from] DeviceError),
    /// Its sequence could not be given state memory.
    #[error(transparent)]
    NoState(Arc<RunError>),
    #[error("the state that was kept is not taken: {0}")]
    Snapshot(#[from] Arc<SnapshotError>),
}

impl RunError {
    /// What was wanted and where, if it was memory and there is none.
    pub(super) fn no_room(&self) -> Option<(Place, usize)> {
        let device = match self {
            RunError::NoState(error) => return error.no_room(),
            RunError::Device(error)
            | RunError::State(StateError::Device(error))
            | RunError::Batch(BatchError::Device(error)) => error,
            RunError::Snapshot(error) => match &**error {
                SnapshotError::State(StateError::Device(error)) => error,
                _ => return None,
            },
            _ => return None,
        };
        match device {
            DeviceError::OutOfMemory { place, bytes } => Some((*place, *bytes)),
            _ => None,
        }
    }
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
    graph: Arc<dyn Graph>,
    device: Arc<dyn Device>,
    pool: Pool,
    /// The GPU's gauges, and what was last told of our states there.
    gpu: Option<(GpuMetrics, i64)>,
    /// Slots whose sequences could not be given state memory, until they are freed.
    roomless: BTreeMap<u32, RunError>,
    /// On an accelerator, where the clients' outputs are written before they are sent to the host; by their place in the settings.
    written: Vec<Buffer>,
}

impl Executor {
    pub(super) fn new(load: Arc<Loaded>, site: Site, slots: u32, sided: bool) -> Result<Executor, RunError> {
        let Site { graph, device, pool, gpu } = site;
        let staging = Staging::new(&device, &load.settings)?;
        let store = Store::new(&device, load.states.clone(), slots, sided)?;
        let context = graph.context(&load.wiring.input_names, &load.wiring.output_names)?;
        let contexts = vec![(load.wiring.clone(), context)];
        let away = device.place() != Place::Host;
        let outputs = load.settings.outputs.iter().filter(|_| away);
        let written = outputs.map(|_| Buffer::new(&device, 0)).collect::<Result<_, _>>()?;
        let (gpu, roomless) = (gpu.map(|gpu| (gpu, 0)), BTreeMap::new());
        Ok(Executor { load, staging, store, contexts, graph, device, pool, gpu, roomless, written })
    }

    /// Does what must be done to slots before a run, in order. `kept` finds the state that a request brought for its sequence.
    pub(super) fn slot_ops(&mut self, ops: &[SlotOp], kept: impl Fn(Req) -> Option<Bytes>) -> Result<(), RunError> {
        let done = self.each_op(ops, kept);
        if let (Some((gpu, told)), false) = (&mut self.gpu, ops.is_empty()) {
            let bytes = i64::try_from(self.store.allocated()).unwrap_or(i64::MAX);
            gpu.state_bytes.add(bytes - std::mem::replace(told, bytes));
        }
        done
    }

    fn each_op(&mut self, ops: &[SlotOp], kept: impl Fn(Req) -> Option<Bytes>) -> Result<(), RunError> {
        for op in ops {
            match op {
                SlotOp::Init(slot, _) => self.begin(slot.ix, None)?,
                SlotOp::Adopt(slot, req) => self.begin(slot.ix, kept(*req))?,
                // It had nothing to free.
                SlotOp::Free(slot) if self.roomless.remove(&slot.ix).is_some() => {}
                SlotOp::Free(slot) => self.store.free(slot.ix)?,
                // No load names the stage that leads here yet.
                SlotOp::Spill(..) => {}
            }
        }
        Ok(())
    }

    /// Gives a slot the first state of a sequence, or one that was kept. Where there is no room for it, that sequence alone is not served.
    fn begin(&mut self, slot: u32, kept: Option<Bytes>) -> Result<(), RunError> {
        let begun = match kept {
            Some(snapshot) => self.store.restore(slot, &snapshot).map_err(RunError::from),
            None => self.store.init(slot).map_err(RunError::from),
        };
        match begun {
            Err(error) if error.no_room().is_some() => {
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

    /// Why a row cannot run, if its sequence has no state memory.
    pub(super) fn roomless(&self, work: &Work) -> Option<&RunError> {
        self.roomless.get(&work.slot?)
    }

    /// The state of a slot as a file. Nothing of the instance may be running.
    pub(super) fn snapshot(&mut self, slot: u32, header: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError> {
        self.store.snapshot(slot, header)
    }

    /// Runs a batch once. All rows or none: an error leaves every state as it was.
    pub(super) fn run(&mut self, batch: &[Option<Work>], spent: &mut Spent) -> Result<Vec<Outcome>, RunError> {
        let ran = self.run_once(batch, spent);
        // What was asked of an accelerator for a batch that failed is over before anything of it is used again.
        if ran.is_err() && self.device.place() != Place::Host {
            let _ = self.device.mark().and_then(|mark| self.device.wait(mark));
        }
        ran
    }

    fn run_once(&mut self, batch: &[Option<Work>], spent: &mut Spent) -> Result<Vec<Outcome>, RunError> {
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
        let context = self.graph.context(&wiring.input_names, &wiring.output_names)?;
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
        make_room(&mut self.written, wiring, &mut pooled)?;
        let mut fetches = Vec::with_capacity(wiring.outputs.len());
        for (sink, place) in wiring.outputs.iter().zip(&mut pooled) {
            fetches.push(fetch(&self.store, bound, *sink, place, &self.written)?);
        }
        context.run(&feeds, &mut fetches)?;
        let produced: Vec<Option<Produced>> = fetches
            .into_iter()
            .map(|fetch| match fetch {
                Fetch::New(produced) => produced,
                Fetch::Into { .. } => None,
            })
            .collect();
        bring(&*self.device, &self.written, wiring, &mut pooled)?;
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

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some((gpu, told)) = &self.gpu {
            gpu.state_bytes.add(-told);
        }
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
    written: &'a [Buffer],
) -> Result<Fetch<'a>, RunError> {
    if let Some(n) = sink.state {
        // SAFETY: the store is not changed before the run is over.
        return Ok(match unsafe { store.output(bound, n) }? {
            StateOut::Into { shape, data } => Fetch::Into { shape, data },
            StateOut::New => Fetch::New(None),
        });
    }
    let Some((shape, pooled)) = place else { return Ok(Fetch::New(None)) };
    let data = match sink.client.and_then(|n| written.get(n)) {
        // SAFETY: nobody else reads or writes it before the run is over, and it has room for the output.
        Some(buffer) => unsafe { buffer.write(0..pooled.len()) }?,
        None => pooled.write()?,
    };
    Ok(Fetch::Into { shape, data })
}

/// Makes room on an accelerator for the outputs whose size is known.
fn make_room(written: &mut [Buffer], wiring: &Wiring, pooled: &mut [Option<(Shape, Pooled)>]) -> Result<(), RunError> {
    for (sink, place) in wiring.outputs.iter().zip(pooled) {
        let buffer = sink.client.and_then(|n| written.get_mut(n));
        if let (Some(buffer), Some((_, pooled))) = (buffer, place) {
            buffer.ensure(pooled.len())?;
        }
    }
    Ok(())
}

/// Brings the outputs from an accelerator to the host. The one wait of a run.
fn bring(
    device: &dyn Device,
    written: &[Buffer],
    wiring: &Wiring,
    pooled: &mut [Option<(Shape, Pooled)>],
) -> Result<(), RunError> {
    if device.place() == Place::Host {
        return Ok(());
    }
    let mut asked = Ok(());
    for (sink, place) in wiring.outputs.iter().zip(pooled) {
        if let (Some(buffer), Some((_, pooled))) = (sink.client.and_then(|n| written.get(n)), place) {
            // SAFETY: both live until the wait below, which comes even if another copy was refused; until then neither is touched.
            asked = asked.and_then(|()| unsafe { buffer.download(&pooled.write()?) });
        }
    }
    let waited = device.mark().and_then(|mark| device.wait(mark));
    Ok(asked.and(waited)?)
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
