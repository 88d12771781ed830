//! Lays out a batch's inputs: rows one after the other, aligned, in buffers that every run reuses.
//!
//! For an accelerator, the inputs are laid out in staging memory on the host and then copied.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{DataType, Id, Shape};

use crate::config::model::settings::{
    BatchInput, BatchInputKind, BatchSource, Constant, Control, ControlKind, ModelSettings, Padding, RaggedInput,
};
use crate::device::{Buffer, Device, DeviceId, MemorySpan};
use crate::tensor::{Tensor, rows};

use super::BatchError;
use super::describe::{Mask, describe, push};
use super::padded;
use super::wiring::{InputSource, Wiring, stateful};

/// Memory of an input above this size is released when the instance rests.
const LARGE: usize = 1 << 20;

/// Maximum bytes of a padded input, or this many times the bytes of its rows if that is more. Rows that are longer together run alone.
const MOST_PADDED: usize = 16 << 20;
const MOST_PADDED_TIMES: u64 = 4;

/// One request's part of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchRow<'a> {
    /// The client's inputs in the order of the settings; `None` for an optional one that was left out.
    pub inputs: &'a [Option<Tensor>],
    /// Number of rows; 1 for a request of a sequence.
    pub rows: u64,
    pub start: bool,
    pub end: bool,
    pub id: &'a Id,
}

/// The laid-out inputs of a batch.
#[derive(Debug)]
pub struct Staging {
    device: Arc<dyn Device>,
    batching: bool,
    controls: Vec<Control>,
    constants: Vec<(Constant, Staged)>,
    clients: Vec<Staged>,
    control_values: Vec<Staged>,
    /// By client input: the layout of rows of different shapes.
    ragged: Vec<Option<RaggedInput>>,
    /// By client input: the batch dimension, if it is not the first.
    batch_dims: Vec<Option<usize>>,
    batch_inputs: Vec<(BatchInput, Staged)>,
    /// By state: its padding, without the axis.
    state_paddings: Vec<Option<Padding>>,
}

#[derive(Debug)]
struct Staged {
    dtype: DataType,
    buffer: Buffer,
    /// The copy on an accelerator. BYTES inputs stay on the host.
    sent: Option<Buffer>,
    len: usize,
    shape: Shape,
    /// Buffer for values whose size is not known beforehand.
    scratch: Vec<u8>,
}

impl Staging {
    pub fn new(device: &Arc<dyn Device>, settings: &ModelSettings) -> Result<Staging, BatchError> {
        let (controls, states) = stateful(settings);
        let host = device.staging().unwrap_or_else(|| Arc::clone(device));
        let away = device.staging().is_some();
        let staged = |dtype: DataType| -> Result<Staged, BatchError> {
            let buffer = Buffer::new(&host, 0)?;
            let sent = (away && dtype != DataType::Bytes).then(|| Buffer::new(device, 0)).transpose()?;
            Ok(Staged { dtype, buffer, sent, len: 0, shape: Shape::default(), scratch: Vec::new() })
        };
        let mut constants = Vec::new();
        for constant in &settings.constants {
            let mut place = staged(constant.dtype)?;
            place.len = constant.data.len();
            place.buffer.ensure(place.len)?;
            fill(&mut place.buffer, &constant.data)?;
            place.shape = constant.shape.clone();
            place.send()?;
            constants.push((constant.clone(), place));
        }
        Ok(Staging {
            device: Arc::clone(device),
            batching: settings.max_batch_size > 0,
            controls: controls.to_vec(),
            constants,
            clients: settings.inputs.iter().map(|i| staged(i.dtype)).collect::<Result<_, _>>()?,
            ragged: settings.inputs.iter().map(|input| input.ragged.clone()).collect(),
            batch_dims: settings.inputs.iter().map(|input| input.batch_dim).collect(),
            batch_inputs: settings
                .batch_inputs
                .iter()
                .map(|input| Ok((input.clone(), staged(input.dtype)?)))
                .collect::<Result<_, BatchError>>()?,
            state_paddings: states
                .iter()
                .map(|state| Some(Padding { axis: 0, ..state.pad.as_ref()?.padding.clone() }))
                .collect(),
            control_values: controls.iter().map(|c| staged(type_of(&c.kind))).collect::<Result<_, _>>()?,
        })
    }

    /// Lays out the inputs of these rows. `None` is a padding row: zeros, and READY false. The run of the previous batch must have ended.
    pub fn fill(&mut self, batch: &[Option<BatchRow<'_>>]) -> Result<(), BatchError> {
        let batching = self.batching;
        let forms = self.ragged.iter().zip(&self.batch_dims);
        for ((n, staged), form) in self.clients.iter_mut().enumerate().zip(forms) {
            check_given(n, batch)?;
            match form {
                (_, Some(axis)) => staged.fill_on_axis(n, batch, *axis)?,
                (Some(RaggedInput::Padded(padding)), None) => staged.fill_padded(n, batch, batching, padding)?,
                (joined, None) => staged.fill_client(n, batch, batching, joined.is_some())?,
            }
            staged.send()?;
        }
        for (input, staged) in &mut self.batch_inputs {
            let BatchSource::Input(source) = input.source else { continue };
            let padding = self.ragged.get(source).and_then(|ragged| ragged.as_ref()?.padding());
            let sources = source_shapes(batch, source, self.batching);
            match input.kind {
                BatchInputKind::Mask => staged.set_mask(&Mask::new(&sources, padding))?,
                kind => staged.set(describe(kind, &sources, self.batching, padding))?,
            }
            staged.send()?;
        }
        for (control, staged) in self.controls.iter().zip(&mut self.control_values) {
            staged.fill_control(control, batch, self.batching)?;
            staged.send()?;
        }
        Ok(())
    }

    /// Lays out the inputs that describe padded states. `lengths` returns the length of each row of a state, by the state's number.
    pub fn fill_state_inputs<'a>(&mut self, lengths: impl Fn(usize) -> &'a [u64]) -> Result<(), BatchError> {
        for (input, staged) in &mut self.batch_inputs {
            let BatchSource::States { states, new_steps } = &input.source else { continue };
            let Some((first, others)) = states.split_first() else { continue };
            let rows = lengths(*first);
            if others.iter().any(|other| lengths(*other) != rows) {
                return Err(BatchError::Lengths { input: input.targets.join(", ") });
            }
            let shapes: Vec<Shape> = rows.iter().map(|length| Shape::new(&[1, *length])).collect();
            let padding = self.state_paddings.get(*first).and_then(Option::as_ref);
            let new = new_steps.and_then(|(at, axis)| self.clients.get(at)?.shape.0.get(axis + 1).copied());
            match input.kind {
                BatchInputKind::Mask => {
                    staged.set_mask(&Mask::new(&shapes, padding).with_new_steps(new.unwrap_or(0)))?;
                }
                kind => staged.set(describe(kind, &shapes, true, padding))?,
            }
            staged.send()?;
        }
        Ok(())
    }

    /// Releases large memory of a batch that is over. The next batch allocates what it needs. For an accelerator the memory stays, because
    /// releasing it stalls the accelerator's work.
    pub fn release_large(&mut self) {
        if self.device.place() != DeviceId::Host {
            return;
        }
        let described = self.batch_inputs.iter_mut().map(|(_, staged)| staged);
        self.clients.iter_mut().chain(described).for_each(|staged| staged.release_large(&self.device));
    }

    /// The laid-out input for this source; `None` for a state, because states are not staged here.
    ///
    /// # Safety
    /// The span must not be used after the staging is filled again or dropped.
    pub unsafe fn feed(&self, source: InputSource) -> Option<(DataType, &Shape, MemorySpan<'_>)> {
        let staged = match source {
            InputSource::Client(n) => self.clients.get(n)?,
            InputSource::Control(n) => self.control_values.get(n)?,
            InputSource::Batch(n) => self.batch_inputs.get(n).map(|(_, staged)| staged)?,
            InputSource::Constant(n) => self.constants.get(n).map(|(_, staged)| staged)?,
            InputSource::State(_) => return None,
        };
        let buffer = staged.sent.as_ref().unwrap_or(&staged.buffer);
        // SAFETY: nothing writes before the next fill, and the caller stops using the span before that.
        let span = unsafe { buffer.read(0..staged.len) }.ok()?;
        Some((staged.dtype, &staged.shape, span))
    }

    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// For each of the client's inputs: whether the request has it.
    pub fn given(inputs: &[Option<Tensor>]) -> Vec<bool> {
        inputs.iter().map(Option::is_some).collect()
    }
}

impl Wiring {
    /// Whether a request leaves out an input that this wiring feeds.
    pub fn lacks(&self, inputs: &[Option<Tensor>]) -> bool {
        self.inputs
            .iter()
            .any(|source| matches!(source, InputSource::Client(n) if inputs.get(*n).is_none_or(Option::is_none)))
    }
}

impl Staged {
    /// Submits the copy of the laid-out data to the accelerator, if there is one.
    fn send(&mut self) -> Result<(), BatchError> {
        if let Some(sent) = &mut self.sent {
            sent.ensure(self.len)?;
            // SAFETY: the laid-out data stays until the next fill, which comes after the run of this batch; both buffers live as long as
            // `self`.
            unsafe { sent.upload(&self.buffer, self.len) }?;
        }
        Ok(())
    }

    fn release_large(&mut self, device: &Arc<dyn Device>) {
        if self.buffer.len() > LARGE
            && let Ok(empty) = Buffer::new(device, 0)
        {
            (self.buffer, self.len) = (empty, 0);
        }
        if self.scratch.capacity() > LARGE {
            self.scratch = Vec::new();
        }
    }

    fn fill_client(
        &mut self,
        n: usize,
        batch: &[Option<BatchRow<'_>>],
        batching: bool,
        ragged: bool,
    ) -> Result<(), BatchError> {
        let Some(template) = batch.iter().flatten().find_map(|row| input(row, n)) else {
            self.len = 0;
            return Ok(());
        };
        let pad = if batch.iter().any(Option::is_none) { pad_of(template, batching) } else { Bytes::new() };
        let part = |row: &'_ Option<BatchRow<'_>>| match row {
            Some(row) => input(row, n).map_or(0, |t| t.data.len()),
            None => pad.len(),
        };
        self.len = batch.iter().map(part).sum();
        self.buffer.ensure(self.len)?;
        let mut at = 0;
        let target = self.buffer.host().unwrap_or_default();
        for row in batch {
            let part: &[u8] = match row {
                Some(row) => input(row, n).map_or(&[], |t| &t.data),
                None => &pad,
            };
            if let Some(place) = target.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
            at += part.len();
        }
        self.shape.0.clear();
        if ragged {
            let elements = source_shapes(batch, n, batching).iter().filter_map(|shape| shape.elements()).sum();
            self.shape.0.push(elements);
            return self.check(n);
        }
        self.shape.0.extend_from_slice(&template.shape.0);
        if let (true, Some(rows)) = (batching, self.shape.0.first_mut()) {
            *rows = batch.iter().map(|row| row.as_ref().map_or(1, |r| r.rows)).sum();
        }
        self.check(n)
    }

    /// Lays out rows whose batch dimension is at `axis` of an item. Clients send a 1 there, and another 1 in front.
    fn fill_on_axis(&mut self, n: usize, batch: &[Option<BatchRow<'_>>], axis: usize) -> Result<(), BatchError> {
        let Some(template) = batch.iter().flatten().find_map(|row| input(row, n)) else {
            self.len = 0;
            return Ok(());
        };
        let row = template.shape.without(0).without(axis);
        let pad = if batch.iter().any(Option::is_none) { pad_of(template, true) } else { Bytes::new() };
        let part = |of: &'_ Option<BatchRow<'_>>| -> Bytes {
            match of {
                Some(of) => input(of, n).map(|tensor| tensor.data.clone()).unwrap_or_default(),
                None => pad.clone(),
            }
        };
        let parts: Vec<Bytes> = batch.iter().map(part).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Bytes::as_ref).collect();
        let joined = rows::join(self.dtype, &row, axis, &parts);
        self.len = joined.len();
        self.buffer.ensure(self.len)?;
        fill(&mut self.buffer, &joined)?;
        self.shape = row.with(axis, batch.len() as u64);
        self.check(n)
    }

    fn fill_padded(
        &mut self,
        n: usize,
        batch: &[Option<BatchRow<'_>>],
        batching: bool,
        padding: &Padding,
    ) -> Result<(), BatchError> {
        let sources = source_shapes(batch, n, batching);
        self.shape = padded::shape(&sources, padding).unwrap_or_default();
        let elements = self.shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        self.len = if sources.is_empty() { 0 } else { elements.saturating_mul(padding.value.len()) };
        self.check_padding(n, batch, &sources)?;
        self.buffer.ensure(self.len)?;
        let target = self.buffer.host().and_then(|b| b.get_mut(..self.len)).unwrap_or_default();
        let data = batch.iter().map(|row| row.as_ref().and_then(|row| Some(input(row, n)?.data.as_ref())));
        padded::write(target, data.zip(sources.iter().map(Cow::as_ref)), &self.shape, padding);
        if sources.is_empty() { Ok(()) } else { self.check(n) }
    }

    /// Checks that rows which could run alone do not take much more memory together, because a few are long. Padding rows are as long as the
    /// first row, and belong to it.
    fn check_padding(
        &self,
        n: usize,
        batch: &[Option<BatchRow<'_>>],
        sources: &[Cow<'_, Shape>],
    ) -> Result<(), BatchError> {
        if self.len <= MOST_PADDED || batch.iter().flatten().count() < 2 {
            return Ok(());
        }
        let given = sources.iter().filter_map(|shape| shape.elements()).fold(0, u64::saturating_add);
        let size = self.dtype.size().unwrap_or(1) as u64;
        let limit = given.saturating_mul(size).saturating_mul(MOST_PADDED_TIMES);
        if self.len as u64 <= limit {
            return Ok(());
        }
        Err(BatchError::Padding { input: format!("#{n}"), rows: sources.len(), bytes: self.len as u64 })
    }

    /// Checks that the laid-out data has the size of the shape; otherwise the runtime would read beyond it.
    fn check(&self, n: usize) -> Result<(), BatchError> {
        let Some(size) = self.dtype.size() else { return Ok(()) };
        if self.shape.bytes(size) == Some(self.len as u64) {
            Ok(())
        } else {
            Err(BatchError::Unfit { input: format!("#{n}") })
        }
    }

    /// Lays out a batch input.
    fn set(&mut self, (shape, values): (Shape, Vec<u64>)) -> Result<(), BatchError> {
        self.shape = shape;
        self.scratch.clear();
        push(self.dtype, &values, &mut self.scratch);
        self.len = self.scratch.len();
        self.buffer.ensure(self.len)?;
        fill(&mut self.buffer, &self.scratch)
    }

    /// Lays out a mask, each value in its own type.
    fn set_mask(&mut self, mask: &Mask) -> Result<(), BatchError> {
        self.shape = mask.shape();
        self.scratch.clear();
        mask.push(self.dtype, &mut self.scratch);
        self.len = self.scratch.len();
        self.buffer.ensure(self.len)?;
        fill(&mut self.buffer, &self.scratch)
    }

    fn fill_control(
        &mut self,
        control: &Control,
        batch: &[Option<BatchRow<'_>>],
        batching: bool,
    ) -> Result<(), BatchError> {
        self.scratch.clear();
        for row in batch {
            push_control(&control.kind, row.as_ref(), &mut self.scratch);
        }
        self.len = self.scratch.len();
        self.buffer.ensure(self.len)?;
        fill(&mut self.buffer, &self.scratch)?;
        self.shape.0.clear();
        if batching {
            self.shape.0.push(batch.len() as u64);
        }
        self.shape.0.extend(std::iter::repeat_n(1, control.kind.ones()));
        Ok(())
    }
}

/// The tensor of a row for one of the client's inputs.
fn input<'a>(row: &BatchRow<'a>, n: usize) -> Option<&'a Tensor> {
    row.inputs.get(n)?.as_ref()
}

/// Checks that all requests of a batch have this input, or none. Otherwise some would run with the values of others.
fn check_given(n: usize, batch: &[Option<BatchRow<'_>>]) -> Result<(), BatchError> {
    let mut given = batch.iter().flatten().map(|row| input(row, n).is_some());
    match given.next() {
        Some(first) if given.any(|other| other != first) => Err(BatchError::Unfit { input: format!("#{n}") }),
        _ => Ok(()),
    }
}

/// The whole shape of an input in each request of a batch. A padding row has the shape of one row of the first request.
pub fn source_shapes<'a>(batch: &[Option<BatchRow<'a>>], n: usize, batching: bool) -> Vec<Cow<'a, Shape>> {
    let template = batch.iter().flatten().find_map(|row| input(row, n));
    let padding = |of: &Tensor| if batching { of.shape.without(0).with(0, 1) } else { of.shape.clone() };
    let shape = |row: &Option<BatchRow<'a>>| match row {
        Some(row) => input(row, n).map(|tensor| Cow::Borrowed(&tensor.shape)),
        None => template.map(|of| Cow::Owned(padding(of))),
    };
    batch.iter().filter_map(shape).collect()
}

/// A row of zeros, or of empty BYTES elements, with the template's shape.
fn pad_of(template: &Tensor, batching: bool) -> Bytes {
    let row = if batching { template.shape.without(0) } else { template.shape.clone() };
    let elements = row.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    Bytes::from(vec![0; elements.saturating_mul(template.dtype.zero_size())])
}

fn fill(buffer: &mut Buffer, data: &[u8]) -> Result<(), BatchError> {
    if let Some(place) = buffer.host().and_then(|b| b.get_mut(..data.len())) {
        place.copy_from_slice(data);
    }
    Ok(())
}

fn type_of(kind: &ControlKind) -> DataType {
    match kind {
        ControlKind::Start(v) | ControlKind::Ready(v) | ControlKind::End(v) => v.dtype,
        ControlKind::CorrelationId(dtype) => *dtype,
        ControlKind::Reset { .. } => DataType::Bool,
    }
}

/// Appends the value of a control for a row. A padding row is not ready and has no id.
fn push_control(kind: &ControlKind, row: Option<&BatchRow<'_>>, out: &mut Vec<u8>) {
    let (values, is) = match kind {
        ControlKind::Start(values) => (values, row.is_some_and(|r| r.start)),
        ControlKind::End(values) => (values, row.is_some_and(|r| r.end)),
        ControlKind::Ready(values) => (values, row.is_some()),
        ControlKind::Reset { .. } => return out.push(u8::from(row.is_none_or(|r| r.start))),
        ControlKind::CorrelationId(dtype) => return push_id(*dtype, row.map(|r| r.id), out),
    };
    out.extend_from_slice(if is { &values.yes } else { &values.no });
}

/// Appends a correlation id in the model's type; 32-bit types get the low half.
fn push_id(dtype: DataType, id: Option<&Id>, out: &mut Vec<u8>) {
    if dtype == DataType::Bytes {
        let text = id.map(ToString::to_string).unwrap_or_default();
        return rows::push_text(out, text.as_bytes());
    }
    let number = match id {
        Some(Id::Int(number)) => *number,
        _ => 0,
    };
    let bytes = number.to_le_bytes();
    out.extend_from_slice(bytes.get(..dtype.size().unwrap_or(8)).unwrap_or(&bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::settings::FalseTrue;

    #[test]
    fn only_large_memory_of_an_input_is_released_at_rest() {
        let device: Arc<dyn Device> = Arc::new(crate::device::Host);
        let (dtype, buffer) = (DataType::Uint8, Buffer::new(&device, 0).unwrap());
        let mut staged = Staged { dtype, buffer, sent: None, len: 0, shape: Shape::default(), scratch: Vec::new() };
        for (bytes, stays) in [(LARGE, true), (LARGE + 1, false), (100, true)] {
            staged.buffer.ensure(bytes).unwrap();
            staged.scratch = Vec::with_capacity(bytes);
            staged.release_large(&device);
            assert_eq!((staged.buffer.len() >= bytes, staged.scratch.capacity() >= bytes), (stays, stays), "{bytes}");
        }
    }

    #[test]
    fn control_inputs_distinguish_requests_from_padding() {
        let values = FalseTrue { dtype: DataType::Int32, no: vec![0, 0, 0, 0], yes: vec![1, 0, 0, 0] };
        let id = Id::Int(0x1_0000_0002);
        let row = BatchRow { inputs: &[], rows: 1, start: true, end: false, id: &id };
        let of = |kind: &ControlKind| {
            let mut out = Vec::new();
            push_control(kind, Some(&row), &mut out);
            push_control(kind, None, &mut out);
            out
        };
        assert_eq!(of(&ControlKind::Start(values.clone())), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(&ControlKind::End(values.clone())), [0; 8]);
        assert_eq!(of(&ControlKind::Ready(values)), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(&ControlKind::CorrelationId(DataType::Uint32)), [2, 0, 0, 0, 0, 0, 0, 0]);
        let texts = of(&ControlKind::CorrelationId(DataType::Bytes));
        assert_eq!(texts, [&[10, 0, 0, 0], "4294967298".as_bytes(), &[0; 4]].concat());
    }
}
