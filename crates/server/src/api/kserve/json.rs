//! Converts HTTP bodies to the host's requests: JSON, then tensors as bytes. Those tensors stay slices of the received buffer.

use bytes::Bytes;
use sequor_core::{Dialect, Id, Shape};
use serde_json::Value;

use super::data;
use super::decode::{Parameters, check_custom, data_type, shape, stand_in, text_id, to_priority, to_span};
use super::fault::DecodeError;
use super::json_body::{self, InferBody, JsonInput, JsonOutput, Object};
use super::model_inputs::ModelInputs;
use super::non_finite::NonFiniteWords;
use super::response_format::{self, ParameterValue, ResponseFormat};
use super::shared_memory::{Regions, Window};
use crate::api::queued::QueuedBytesPermit;
use crate::api::{ServerLimits, Status};
use crate::error::Invalid;
use crate::model::{InferRequest, Metadata, NamedTensor, Parameter, SequenceStep, Tensor, TensorMetadata};

/// The facts about a body from its headers and path.
#[derive(Clone, Copy)]
pub(crate) struct JsonRequestHead<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: &'a str,
    pub(crate) sequence: Option<&'a str>,
    /// `Inference-Header-Content-Length`, if it was sent.
    pub(crate) json_length: Option<usize>,
    pub(crate) regions: &'a Regions,
    pub(crate) inputs: &'a dyn ModelInputs,
    pub(crate) limits: &'a ServerLimits,
}

/// Decodes a body.
pub(crate) fn infer(
    head: JsonRequestHead<'_>,
    body: &Bytes,
    permit: &mut QueuedBytesPermit,
) -> Result<(InferRequest, ResponseFormat), Status> {
    let unnamed = |fault: DecodeError| fault.status(head.model, "");
    let length = head.json_length.unwrap_or(body.len());
    let json = body.get(..length).ok_or_else(|| unnamed(DecodeError::malformed(LENGTH_NEEDED)))?;
    let words;
    let (fields, words) = match json_body::parse(json, head.limits) {
        Ok(fields) => (fields, None),
        Err(error) => {
            words = NonFiniteWords::after(&error, json, permit).map_err(unnamed)?;
            (words.parse(|json| json_body::parse(json, head.limits), InferBody::data).map_err(unnamed)?, Some(&words))
        }
    };
    let mark = fields.id.clone().unwrap_or_default().into_owned();
    read(head, fields, words, body.slice(length..), permit).map_err(|fault| fault.status(head.model, &mark))
}

const LENGTH_NEEDED: &str = "must specify valid 'Infer-Header-Content-Length' in request header and 'binary_data_size' \
    when passing inputs in binary data format";

fn read(
    head: JsonRequestHead<'_>,
    body: InferBody<'_>,
    words: Option<&NonFiniteWords<'_>>,
    mut blobs: Bytes,
    permit: &mut QueuedBytesPermit,
) -> Result<(InferRequest, ResponseFormat), DecodeError> {
    let mut parameters = read_parameters(body.parameters)?;
    stand_in(&mut parameters.sequence.id, head.sequence)?;
    let inputs = body.inputs.ok_or_else(|| {
        DecodeError::malformed("Unable to parse 'inputs': attempt to access non-existing object member 'inputs'")
    })?;
    if !inputs.is_empty() {
        let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
        head.inputs.check_names(&names)?;
    }
    let windows = inputs.iter().map(|input| read_window(head, input)).collect::<Result<Vec<_>, _>>()?;
    head.regions.charge(windows.iter().flatten(), permit)?;
    let inputs = inputs
        .into_iter()
        .zip(windows)
        .map(|(input, window)| read_input(head, input, words, window, &mut blobs, permit));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    if !blobs.is_empty() {
        return Err(DecodeError::malformed(format!("unexpected additional input data for model '{}'", head.model)));
    }
    let mut form = parameters.form;
    let outputs = body
        .outputs
        .into_iter()
        .map(|output| read_output(output, &mut form, head.regions))
        .collect::<Result<_, _>>()?;
    let request = InferRequest {
        model: head.model.to_owned(),
        version: head.version.to_owned(),
        id: body.id.unwrap_or_default().into_owned(),
        sequence: parameters.sequence,
        priority: parameters.priority,
        timeout: parameters.timeout,
        inputs,
        outputs,
        parameters: parameters.custom,
        dialect: Dialect::TRITON,
    };
    Ok((request, form))
}

// === parameters ===

pub(super) fn read_parameters(parameters: Object) -> Result<Parameters, DecodeError> {
    let mut read = Parameters::default();
    for (key, value) in parameters {
        match key.as_str() {
            "sequence_id" => read.sequence.id = sequence_id(&key, &value)?,
            "sequence_from" => read.sequence.from = Some(sequence_id(&key, &value)?),
            "sequence_start" => read.sequence.start = flag(&key, &value)?,
            "sequence_end" => read.sequence.end = flag(&key, &value)?,
            "sequence_step" => read.sequence.step = Some(unsigned(&key, &value)?),
            "sequence_idle_us" => read.sequence.idle = to_span(unsigned(&key, &value)?),
            "priority" => read.priority = to_priority(unsigned(&key, &value)?),
            "timeout" => read.timeout = to_span(unsigned(&key, &value)?),
            "binary_data_output" => read.form.binary = flag(&key, &value)?,
            // Neither has an effect: JSON answers are always typed, and no final answer follows them.
            "sequor_typed" | "triton_enable_empty_final_response" => {
                flag(&key, &value)?;
            }
            _ => read.custom.push(custom(key, value)?),
        }
    }
    Ok(read)
}

fn wrong_kind(key: &str, kind: &str) -> DecodeError {
    DecodeError::malformed(format!("Unable to parse '{key}': attempt to access JSON non-{kind} as {kind}"))
}

fn sequence_id(key: &str, value: &Value) -> Result<Id, DecodeError> {
    match (value.as_u64(), value.as_str()) {
        (Some(id), _) => Ok(Id::from(id)),
        (_, Some(id)) => text_id(id),
        _ => {
            let text = format!("Unable to parse '{key}': attempt to access JSON non-string as string");
            Err(DecodeError::malformed(text + " (it is a whole number from 1 to 2^64-1, or a text)"))
        }
    }
}

fn flag(key: &str, value: &Value) -> Result<bool, DecodeError> {
    value.as_bool().ok_or_else(|| wrong_kind(key, "boolean"))
}

fn unsigned(key: &str, value: &Value) -> Result<u64, DecodeError> {
    value.as_u64().ok_or_else(|| wrong_kind(key, "unsigned-integer"))
}

fn custom(key: String, value: Value) -> Result<(String, Parameter), DecodeError> {
    check_custom(&key)?;
    let value = match value {
        Value::Bool(b) => Parameter::Bool(b),
        Value::String(text) => Parameter::Text(text),
        Value::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), _, _) => Parameter::Int(n),
            (_, Some(n), _) => Parameter::Uint(n),
            (_, _, x) => Parameter::Double(x.unwrap_or_default()),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(DecodeError::malformed(format!("parameter '{key}' must be a string, a number or a boolean")));
        }
    };
    Ok((key, value))
}

// === tensors ===

/// The part of a shared memory region that holds an input, if its parameters name one.
fn read_window(head: JsonRequestHead<'_>, input: &JsonInput<'_>) -> Result<Option<Window>, DecodeError> {
    let JsonInput { name, parameters, data, .. } = input;
    check_source(data.is_some(), parameters)?;
    if parameters.is_empty() {
        return Ok(None);
    }
    response_format::window(&format!("input '{name}'"), |key| given(parameters, key), head.regions)
}

fn read_input(
    head: JsonRequestHead<'_>,
    input: JsonInput<'_>,
    words: Option<&NonFiniteWords<'_>>,
    window: Option<Window>,
    blobs: &mut Bytes,
    permit: &mut QueuedBytesPermit,
) -> Result<NamedTensor, DecodeError> {
    let JsonInput { name, shape: dims, datatype, parameters, data } = input;
    let dtype = data_type(&name, &datatype, head.inputs)?;
    let shape = shape(&name, dims)?;
    if let Some(window) = window {
        let data = window.read().map_err(DecodeError::Status)?;
        return Ok(NamedTensor { name, tensor: Tensor { dtype, shape, data } });
    }
    let data = match (parameters.get("binary_data_size"), data) {
        (Some(size), None) => take(head, blobs, unsigned("binary_data_size", size)?, &name)?,
        (None, Some(raw)) => {
            permit.grow(data::memory(raw, dtype, &shape))?;
            data::read(raw, words.and_then(|words| words.within(raw)), dtype, &shape, &name)?
        }
        // Checked above.
        (Some(_), Some(_)) | (None, None) => return Err(Invalid::NoData { input: name }.into()),
    };
    Ok(NamedTensor { name, tensor: Tensor { dtype, shape, data } })
}

/// Checks that an input has only one source of data.
fn check_source(has_data: bool, parameters: &Object) -> Result<(), DecodeError> {
    let sources = [
        ("data", has_data),
        ("binary_data_size", parameters.contains_key("binary_data_size")),
        ("shared_memory_region", parameters.contains_key("shared_memory_region")),
    ];
    let set: Vec<String> = sources.iter().filter(|(_, is_set)| *is_set).map(|(key, _)| format!(" '{key}'")).collect();
    let set = match set.len() {
        0 => " no field is set".to_owned(),
        1 => return Ok(()),
        _ => format!(" set{}", set.concat()),
    };
    Err(DecodeError::malformed(format!(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', \
         'shared_memory_region' in 'parameters'. But{set}"
    )))
}

fn take(head: JsonRequestHead<'_>, blobs: &mut Bytes, size: u64, input: &str) -> Result<Bytes, DecodeError> {
    if head.json_length.is_none() {
        return Err(DecodeError::malformed(LENGTH_NEEDED));
    }
    let left = blobs.len() as u64;
    match usize::try_from(size) {
        Ok(len) if len <= blobs.len() => Ok(blobs.split_to(len)),
        _ => Err(DecodeError::malformed(format!(
            "unexpected size for input '{input}', expecting {} additional bytes for model '{}'",
            size.saturating_sub(left),
            head.model
        ))),
    }
}

fn read_output(output: JsonOutput, form: &mut ResponseFormat, regions: &Regions) -> Result<String, DecodeError> {
    let binary = output.parameters.get("binary_data").map(|value| flag("binary_data", value)).transpose()?;
    form.read(&output.name, binary, |key| given(&output.parameters, key), regions)?;
    Ok(output.name)
}

fn given<'a>(parameters: &'a Object, key: &str) -> Option<ParameterValue<'a>> {
    Some(match parameters.get(key)? {
        Value::Number(n) => n.as_i64().map_or(ParameterValue::Other, ParameterValue::Number),
        Value::String(text) => ParameterValue::Text(text),
        _ => ParameterValue::Other,
    })
}

// === a body that is the data of the only input ===

/// Decodes a body of raw bytes for a model's only input. The answer's outputs are raw bytes too.
pub(crate) fn raw(
    head: JsonRequestHead<'_>,
    body: Bytes,
    metadata: &Metadata,
    batching: bool,
) -> Result<(InferRequest, ResponseFormat), Status> {
    let read = || -> Result<_, DecodeError> {
        let [input] = metadata.inputs.as_slice() else {
            return Err(DecodeError::malformed(format!(
                "raw request must only have 1 input (found {}) to be deduced but got {} inputs in '{}' model configuration",
                metadata.inputs.len(),
                metadata.inputs.len(),
                head.model
            )));
        };
        let mut sequence = SequenceStep::default();
        stand_in(&mut sequence.id, head.sequence)?;
        Ok((raw_input(input, body, batching)?, sequence))
    };
    let (input, sequence) = read().map_err(|fault| fault.status(head.model, ""))?;
    let request = InferRequest {
        model: head.model.to_owned(),
        version: head.version.to_owned(),
        id: String::new(),
        sequence,
        priority: 0,
        timeout: None,
        inputs: vec![input],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    };
    Ok((request, ResponseFormat { binary: true, ..ResponseFormat::default() }))
}

/// Makes a tensor of the bytes: one row. If one dimension is open, its size follows from the number of bytes.
fn raw_input(input: &TensorMetadata, body: Bytes, batching: bool) -> Result<NamedTensor, DecodeError> {
    let row: Vec<Option<u64>> = input.dims.0.iter().skip(usize::from(batching)).map(|dim| dim.fixed()).collect();
    let name = input.name.clone();
    let (dims, data) = match input.dtype.size() {
        None => (vec![1; row.len()], one_text(&body)?),
        Some(size) => {
            let open = row.iter().filter(|dim| dim.is_none()).count();
            let known: u64 = row.iter().flatten().product::<u64>().saturating_mul(size as u64);
            let rest = (body.len() as u64).checked_div(known).unwrap_or(0);
            if open > 1 {
                let text = format!(
                    "the shape of the raw input '{name}' can not be deduced because there are more than one variable-sized dimension"
                );
                return Err(DecodeError::malformed(text));
            }
            (row.into_iter().map(|dim| dim.unwrap_or(rest)).collect(), body)
        }
    };
    let shape = Shape(dims);
    let shape = if batching { shape.with(0, 1) } else { shape };
    Ok(NamedTensor { name, tensor: Tensor { dtype: input.dtype, shape, data } })
}

/// Prefixes a text with its length, as BYTES elements need it. Clients send the text alone.
fn one_text(body: &Bytes) -> Result<Bytes, DecodeError> {
    let length = u32::try_from(body.len()).map_err(|_| DecodeError::malformed("a text is too long"))?;
    Ok([length.to_le_bytes().as_slice(), body].concat().into())
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
