//! The memory that one run reads inputs from and writes outputs to.
//!
//! Clients get host memory. On an accelerator, outputs are written to its memory first and sent to the host after the run.

use std::sync::Arc;

use sequor_core::Shape;

use crate::backend::{Feed, Fetch, Produced};
use crate::batch::outputs::{OutputBuffer, OutputSplit};
use crate::batch::{BatchError, InputSource, Sink, Staging, Wiring};
use crate::config::model::settings::ModelSettings;
use crate::device::{Buffer, Device, DeviceId, Pool, Pooled};
use crate::state::{Bound, StateError, StateOut, Store};

use super::run_error::RunError;

/// The data of one input source.
pub(super) fn feed<'a>(
    staging: &'a Staging,
    store: &'a Store,
    bound: &Bound,
    source: InputSource,
    name: &str,
) -> Result<Feed<'a>, RunError> {
    if let InputSource::State(n) = source {
        // SAFETY: the store is not changed before the run is over, or is changed in the device's order of work, after the run.
        let (shape, data) = unsafe { store.input(bound, n) }?;
        let dtype = store.specs().nth(n).map(|s| s.dtype).ok_or(StateError::Missing { state: name.to_owned() })?;
        return Ok(Feed { dtype, shape, data });
    }
    // SAFETY: the staging is not filled again before the run is over.
    let fed = unsafe { staging.feed(source) }.ok_or_else(|| BatchError::Unfit { input: name.to_owned() })?;
    Ok(Feed { dtype: fed.0, shape: fed.1, data: fed.2 })
}

/// The memory that one run writes for clients, by the graph's outputs. It is kept until the run is over, even if the run fails.
#[derive(Debug, Default)]
pub(super) struct RunMemory {
    /// Host memory, for outputs whose size is known in advance or from the run.
    pub(super) pooled: Vec<Option<(Shape, Pooled)>>,
    /// Outputs that the backend allocated.
    pub(super) produced: Vec<Option<Produced>>,
    /// The outputs of the settings, to be cut into rows.
    pub(super) splits: Vec<OutputSplit>,
}

/// The memory for outputs that clients get.
#[derive(Debug)]
pub(super) struct OutputMemory {
    device: Arc<dyn Device>,
    pool: Pool,
    /// On an accelerator, the device memory that outputs are written to, by their place in the settings. One buffer per output is enough:
    /// in the device's order of work, the transfer to the host precedes the next run.
    written: Vec<Buffer>,
}

impl OutputMemory {
    pub(in crate::model) fn new(
        device: &Arc<dyn Device>,
        pool: Pool,
        settings: &ModelSettings,
    ) -> Result<OutputMemory, RunError> {
        let away = device.place() != DeviceId::Host;
        let outputs = settings.outputs.iter().filter(|_| away);
        let written = outputs.map(|_| Buffer::new(device, 0)).collect::<Result<_, _>>()?;
        Ok(OutputMemory { device: Arc::clone(device), pool, written })
    }

    /// Reserves memory for the outputs whose size is known. `None` for a state, or if the backend must allocate.
    pub(in crate::model) fn reserve(
        &mut self,
        settings: &ModelSettings,
        wiring: &Wiring,
        rows: u64,
    ) -> Result<Vec<Option<(Shape, Pooled)>>, RunError> {
        let mut out = Vec::with_capacity(wiring.outputs.len());
        for sink in &wiring.outputs {
            out.push(match known(settings, *sink, rows) {
                Some((shape, bytes)) => {
                    if let Some(buffer) = sink.client.and_then(|n| self.written.get_mut(n)) {
                        buffer.ensure(bytes)?;
                    }
                    Some((shape, self.pool.take(bytes)?))
                }
                None => None,
            });
        }
        Ok(out)
    }

    /// The memory that a run writes an output to.
    pub(super) fn fetch<'a>(
        &'a self,
        store: &'a Store,
        bound: &Bound,
        sink: Sink,
        place: &'a mut Option<(Shape, Pooled)>,
    ) -> Result<Fetch<'a>, RunError> {
        if let Some(n) = sink.state {
            // SAFETY: the store is not changed before the run is over, or is changed after it in the device's order of work.
            return Ok(match unsafe { store.output(bound, n) }? {
                StateOut::Into { shape, data } => Fetch::Into { shape, data },
                StateOut::New => Fetch::New(None),
            });
        }
        let Some((shape, pooled)) = place else { return Ok(Fetch::New(None)) };
        let data = match sink.client.and_then(|n| self.written.get(n)) {
            // SAFETY: no other code reads or writes it before the run is over, and it has room for the output.
            Some(buffer) => unsafe { buffer.write(0..pooled.len()) }?,
            None => pooled.write()?,
        };
        Ok(Fetch::Into { shape, data })
    }

    /// On an accelerator, takes host memory for outputs whose size the run has shown, and for states that clients get too.
    pub(in crate::model) fn room(
        &self,
        store: &Store,
        bound: &Bound,
        wiring: &Wiring,
        held: &mut RunMemory,
    ) -> Result<(), RunError> {
        if self.written.is_empty() {
            return Ok(());
        }
        for ((sink, pooled), produced) in wiring.outputs.iter().zip(&mut held.pooled).zip(&held.produced) {
            let wanted = match (produced, sink.state) {
                _ if sink.client.is_none() || pooled.is_some() => None,
                (Some(p), _) => (p.data.place() != DeviceId::Host).then(|| (p.shape.clone(), p.data.len())),
                (None, Some(n)) => store.laid_out(bound, n),
                (None, None) => None,
            };
            if let Some((shape, len)) = wanted {
                *pooled = Some((shape, self.pool.take(len)?));
            }
        }
        Ok(())
    }

    /// On an accelerator, submits the transfer of every client output to the host, after the run.
    pub(in crate::model) fn send(
        &mut self,
        store: &mut Store,
        bound: &Bound,
        wiring: &Wiring,
        held: &mut RunMemory,
    ) -> Result<(), RunError> {
        for (sink, produced) in wiring.outputs.iter().zip(&held.produced) {
            let Some((n, buffer)) = sink.client.and_then(|n| Some((n, self.written.get_mut(n)?))) else { continue };
            let Some(room) = held.splits.get_mut(n).and_then(OutputSplit::room) else { continue };
            match (produced, sink.state) {
                // SAFETY: both are held until the run is over, and neither is touched before that.
                (Some(produced), _) => unsafe { produced.data.download(&*self.device, &room.write()?) }?,
                (None, state) => {
                    if let Some(n) = state {
                        store.lay_out(bound, n, buffer)?;
                    }
                    // SAFETY: the host memory is held until the run is over. In the device's order of work, the buffer is written again
                    // only after this.
                    unsafe { buffer.download(&room.write()?) }?;
                }
            }
        }
        Ok(())
    }

    /// The data held for a client's output, by the output's number in the graph.
    pub(in crate::model) fn written(
        &self,
        store: &Store,
        bound: &Bound,
        sink: Sink,
        (pooled, produced): (Option<(Shape, Pooled)>, &Option<Produced>),
    ) -> Result<Option<(Shape, OutputBuffer)>, RunError> {
        Ok(match (produced, pooled) {
            (_, Some((shape, pooled))) => Some((shape, OutputBuffer::Pooled(pooled))),
            (Some(p), None) => Some((p.shape.clone(), OutputBuffer::Owned(p.data.clone()))),
            (None, None) => match sink.state {
                Some(n) => store.written(bound, n)?.map(|(shape, bytes)| (shape, OutputBuffer::Copied(bytes.into()))),
                None => None,
            },
        })
    }
}

/// The shape and bytes of an output that is not a state, if they are known before the run.
fn known(settings: &ModelSettings, sink: Sink, rows: u64) -> Option<(Shape, usize)> {
    let output = sink.client.filter(|_| sink.state.is_none()).and_then(|n| settings.outputs.get(n))?;
    // The graph produces one flat list, and its shape is not that of the output.
    let output = Some(output).filter(|output| output.cut_like.is_none())?;
    let shape = match output.batch_dim {
        Some(axis) => output.dims.without(axis).fixed()?.with(axis, rows),
        None => {
            let shape = output.reshape.as_ref().unwrap_or(&output.dims).fixed()?;
            if settings.max_batch_size > 0 { shape.with(0, rows) } else { shape }
        }
    };
    let bytes = shape.bytes(output.dtype.size()?)?;
    Some((shape, usize::try_from(bytes).ok()?))
}
