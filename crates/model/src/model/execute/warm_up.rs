//! Runs the samples of `model_warmup` on an instance before its model is ready.
//!
//! As in Triton, no scheduler takes part: a sample sets its controls and states itself. A control that the sample omits has its value for a
//! sequence of one request. A state that it omits is zero.

use bytes::Bytes;
use sequor_core::{DataType, Shape};

use crate::backend::{Feed, Fetch};
use crate::batch::describe::{Mask, describe, push};
use crate::batch::padded;
use crate::batch::wiring::stateful;
use crate::batch::{InputSource, Wiring};
use crate::config::model::settings::{
    BatchInput, BatchInputKind, BatchSource, ControlKind, ModelSettings, RaggedInput, WarmupData, WarmupInput,
    WarmupSample,
};
use crate::device::{MemorySpan, Pooled};
use crate::tensor::{Tensor, rows};

use super::placement::Placement;

/// A failed sample: its place in the configuration, and the reason.
#[derive(Debug)]
pub(in crate::model) struct WarmupFailed {
    pub(in crate::model) sample: usize,
    pub(in crate::model) what: String,
}

/// Runs every sample in order, as often as its count.
pub(in crate::model) fn warm_up(placement: &Placement, settings: &ModelSettings) -> Result<(), WarmupFailed> {
    let wiring = Wiring::new(settings);
    for sample in settings.warmup.iter().filter(|sample| sample.batch_size > 0) {
        run(placement, settings, &wiring, sample).map_err(|what| WarmupFailed {
            sample: sample.index,
            what: format!("failed to run warmup sample '{}': {what}", sample.name),
        })?;
    }
    Ok(())
}

fn run(placement: &Placement, settings: &ModelSettings, wiring: &Wiring, sample: &WarmupSample) -> Result<(), String> {
    let given: Vec<bool> = settings.inputs.iter().map(|input| sample.input(&input.name).is_some()).collect();
    let wiring = wiring.without(&given);
    let inputs = wiring.inputs.iter().zip(&wiring.input_names);
    let tensors = inputs.map(|(source, name)| tensor(settings, sample, *source, name));
    let tensors = tensors.collect::<Result<Vec<Tensor>, String>>()?;
    let memory = tensors.iter().map(|tensor| aligned(placement, &tensor.data)).collect::<Result<Vec<_>, _>>()?;
    let feeds: Vec<Feed<'_>> = tensors
        .iter()
        .zip(&memory)
        .map(|(tensor, memory)| Feed {
            dtype: tensor.dtype,
            shape: &tensor.shape,
            data: MemorySpan::host(memory.as_ref()),
        })
        .collect();
    let mut context = placement.graph.context(&wiring.input_names, &wiring.output_names).map_err(|e| e.0)?;
    let once = || {
        let mut fetches: Vec<Fetch<'_>> = wiring.output_names.iter().map(|_| Fetch::New(None)).collect();
        context.run(&feeds, &mut fetches).map_err(|e| e.0)
    };
    let ran = std::iter::repeat_with(once).take(sample.count.max(1) as usize).collect::<Result<(), String>>();
    // An accelerator may read the inputs until it is done, and its failures show only now.
    let done = placement.device.fence().and_then(|fence| placement.device.wait(fence));
    ran.and(done.map_err(|e| e.to_string()))
}

/// Copies values into memory aligned for the backend.
fn aligned(placement: &Placement, bytes: &[u8]) -> Result<Pooled, String> {
    let mut memory = placement.pool.take(bytes.len()).map_err(|e| e.to_string())?;
    if let Some(place) = memory.write().map_err(|e| e.to_string())?.as_host_mut() {
        place.copy_from_slice(bytes);
    }
    Ok(memory)
}

/// The value of one input of the graph.
fn tensor(settings: &ModelSettings, sample: &WarmupSample, source: InputSource, name: &str) -> Result<Tensor, String> {
    let batch = (settings.max_batch_size > 0).then_some(u64::from(sample.batch_size));
    if let Some(input) = sample.input(name) {
        return given(settings, source, input, batch);
    }
    match source {
        InputSource::Constant(n) => {
            let constant = settings.constants.get(n).ok_or("a constant is missing")?;
            let (dtype, shape) = (constant.dtype, constant.shape.clone());
            Ok(Tensor { dtype, shape, data: Bytes::from(constant.data.clone()) })
        }
        InputSource::Control(n) => {
            let control = stateful(settings).0.get(n).ok_or("a control is missing")?;
            let (dtype, value) = match &control.kind {
                ControlKind::Start(values) | ControlKind::Ready(values) | ControlKind::End(values) => {
                    (values.dtype, values.yes.clone())
                }
                ControlKind::CorrelationId(dtype) => (*dtype, vec![0; dtype.zero_size()]),
                ControlKind::Reset { .. } => (DataType::Bool, vec![1]),
            };
            Ok(batched(dtype, &Shape(vec![1; control.kind.ones()]), 0, &value, batch))
        }
        InputSource::State(n) => {
            let state = stateful(settings).1.get(n).ok_or("a state is missing")?;
            let shape = &state.initial.shape;
            let zeros = zeros(bytes_of(state.dtype, shape)?)?;
            Ok(batched(state.dtype, shape, state.batch_axis, &zeros, batch))
        }
        InputSource::Batch(n) => described(settings, sample, n),
        InputSource::Client(_) => Err(format!("the sample has no input '{name}'")),
    }
}

/// An input that the sample contains.
fn given(
    settings: &ModelSettings,
    source: InputSource,
    input: &WarmupInput,
    batch: Option<u64>,
) -> Result<Tensor, String> {
    let (mut shape, mut axis, mut ragged) = (input.shape.clone(), 0, None);
    match source {
        InputSource::Client(n) => {
            if let Some(of) = settings.inputs.get(n) {
                shape = of.graph_shape(&shape);
                ragged = of.ragged.as_ref();
                if let Some(batch_dim) = of.batch_dim {
                    (shape, axis) = (shape.without(batch_dim), batch_dim);
                }
            }
        }
        InputSource::State(n) => {
            let states = stateful(settings).1;
            axis = states.get(n).map_or(0, |state| state.batch_axis);
        }
        // A batch input is one tensor for all items.
        InputSource::Batch(_) | InputSource::Constant(_) => {
            let item = item(input, &shape)?;
            return Ok(Tensor { dtype: input.dtype, shape, data: Bytes::from(item) });
        }
        InputSource::Control(_) => {}
    }
    let item = item(input, &shape)?;
    if let Some(RaggedInput::Padded(padding)) = ragged {
        let requests = vec![shape.with(0, 1); usize::try_from(batch.unwrap_or(1)).unwrap_or(1)];
        let whole = padded::shape(&requests, padding).unwrap_or_default();
        let mut data = zeros(bytes_of(input.dtype, &whole)?)?;
        padded::write(&mut data, requests.iter().map(|of| (Some(item.as_slice()), of)), &whole, padding);
        return Ok(Tensor { dtype: input.dtype, shape: whole, data: Bytes::from(data) });
    }
    if ragged.is_some() {
        let items = batch.unwrap_or(1);
        let elements = shape.elements().unwrap_or(0).saturating_mul(items);
        let data = item.repeat(usize::try_from(items).unwrap_or(1));
        return Ok(Tensor { dtype: input.dtype, shape: Shape(vec![elements]), data: Bytes::from(data) });
    }
    Ok(batched(input.dtype, &shape, axis, &item, batch))
}

/// The value repeated for each item, or once if the model does not batch.
fn batched(dtype: DataType, item: &Shape, axis: usize, value: &[u8], batch: Option<u64>) -> Tensor {
    let Some(count) = batch else {
        return Tensor { dtype, shape: item.clone(), data: Bytes::copy_from_slice(value) };
    };
    let items = vec![value; usize::try_from(count).unwrap_or(1)];
    Tensor { dtype, shape: item.with(axis, count), data: Bytes::from(rows::join(dtype, item, axis, &items)) }
}

fn described(settings: &ModelSettings, sample: &WarmupSample, n: usize) -> Result<Tensor, String> {
    let of = settings.batch_inputs.get(n).ok_or("a batch input is missing")?;
    let source = match &of.source {
        BatchSource::Input(source) => settings.inputs.get(*source).ok_or("its source is missing")?,
        BatchSource::States { states, new_steps } => return of_states(settings, sample, of, (states, *new_steps)),
    };
    let input = sample.input(&source.name).ok_or_else(|| format!("the sample has no input '{}'", source.name))?;
    let batching = settings.max_batch_size > 0;
    let item = source.graph_shape(&input.shape);
    let request = if batching { item.with(0, 1) } else { item };
    // Each item is a request.
    let requests = vec![request; sample.batch_size.max(1) as usize];
    let (shape, values) = describe(of.kind, &requests, batching, source.ragged.as_ref().and_then(RaggedInput::padding));
    let mut data = Vec::new();
    push(of.dtype, &values, &mut data);
    Ok(Tensor { dtype: of.dtype, shape, data: Bytes::from(data) })
}

/// The lengths or the mask of states at START, which all have the same length.
fn of_states(
    settings: &ModelSettings,
    sample: &WarmupSample,
    of: &BatchInput,
    (states, new_steps): (&[usize], Option<(usize, usize)>),
) -> Result<Tensor, String> {
    let state = states.first().and_then(|state| stateful(settings).1.get(*state)).ok_or("its state is missing")?;
    let axis = state.pad.as_ref().map_or(0, |pad| pad.padding.axis);
    let length = state.initial.shape.0.get(axis).copied().unwrap_or(0);
    let rows = vec![Shape::new(&[1, length]); sample.batch_size.max(1) as usize];
    let new = new_steps.and_then(|(at, axis)| sample.input(&settings.inputs.get(at)?.name)?.shape.0.get(axis).copied());
    let mut data = Vec::new();
    if of.kind == BatchInputKind::Mask {
        let mask = Mask::new(&rows, None).with_new_steps(new.unwrap_or(0));
        mask.push(of.dtype, &mut data);
        return Ok(Tensor { dtype: of.dtype, shape: mask.shape(), data: Bytes::from(data) });
    }
    let (shape, values) = describe(of.kind, &rows, true, None);
    push(of.dtype, &values, &mut data);
    Ok(Tensor { dtype: of.dtype, shape, data: Bytes::from(data) })
}

fn bytes_of(dtype: DataType, shape: &Shape) -> Result<usize, String> {
    let bytes = shape.bytes(dtype.zero_size());
    bytes.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| format!("{shape} is too large"))
}

/// The bytes of one item.
fn item(input: &WarmupInput, shape: &Shape) -> Result<Vec<u8>, String> {
    let len = bytes_of(input.dtype, shape)?;
    match &input.data {
        WarmupData::Random if input.dtype != DataType::Bytes => Ok(random(input.dtype, len)),
        WarmupData::Zero | WarmupData::Random => zeros(len),
        WarmupData::File(path) => {
            let mut bytes = fs_err::read(path).map_err(|e| e.to_string())?;
            let need = match input.dtype {
                DataType::Bytes => {
                    let count = shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
                    rows::texts_len(&bytes, count).map_err(|e| e.to_string())?
                }
                _ => len,
            };
            if bytes.len() < need {
                let (path, there) = (path.display(), bytes.len());
                return Err(format!(
                    "warmup setting expects {need} bytes, but the data provided from {path} only has {there} bytes"
                ));
            }
            bytes.truncate(need);
            Ok(bytes)
        }
    }
}

fn zeros(len: usize) -> Result<Vec<u8>, String> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(len).map_err(|_| format!("there is no memory for {len} bytes"))?;
    zeros.resize(len, 0);
    Ok(zeros)
}

/// Random numbers, the same at every load: from 0 to 1 for floating point, any bits for integers.
fn random(dtype: DataType, len: usize) -> Vec<u8> {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move || {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB)
    };
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        let bits = next();
        let unit = (bits >> 40) as f32 / (1u32 << 24) as f32;
        match dtype {
            DataType::Fp32 => out.extend(unit.to_le_bytes()),
            DataType::Fp64 => out.extend(f64::from(unit).to_le_bytes()),
            DataType::Fp16 => out.extend(half::f16::from_f32(unit).to_le_bytes()),
            DataType::Bf16 => out.extend(half::bf16::from_f32(unit).to_le_bytes()),
            DataType::Bool => out.push((bits & 1) as u8),
            _ => out.extend(bits.to_le_bytes()),
        }
    }
    out.truncate(len);
    out
}
