//! Converts messages of the gRPC service to the host's requests. Tensor data stays a slice of the received buffer. Checks against the
//! model's configuration are elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{DataType, Dialect, Id, Shape};
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use sequor_proto::{InferParameter, ModelInferRequest};

use super::fault::DecodeError;
use super::model_inputs::ModelInputs;
use super::response_format::{self, ParameterValue, ResponseFormat};
use super::shared_memory::{Regions, Window};
use super::{LONGEST_ID, contents};
use crate::api::Status;
use crate::api::queued::QueuedBytesPermit;
use crate::error::Invalid;
use crate::model::{InferRequest, NamedTensor, Parameter, SequenceStep, Tensor};

/// The parameters of a request. Those with a meaning to the server are separate from the others.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) sequence: SequenceStep,
    pub(crate) priority: u32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) custom: Vec<(String, Parameter)>,
    pub(crate) form: ResponseFormat,
}

/// Decodes a request. `sequence_header` is the sequence id from the metadata.
pub(crate) fn infer(
    message: ModelInferRequest,
    sequence_header: Option<&str>,
    regions: &Regions,
    model: &dyn ModelInputs,
    permit: &mut QueuedBytesPermit,
) -> Result<(InferRequest, ResponseFormat), Status> {
    let is_raw = !message.raw_input_contents.is_empty();
    let ModelInferRequest { model_name, model_version, id, parameters, inputs, outputs, raw_input_contents } = message;
    let read = || -> Result<_, DecodeError> {
        let mut parameters = read_parameters(parameters)?;
        stand_in(&mut parameters.sequence.id, sequence_header)?;
        parameters.form.typed &= !is_raw;
        let source = InputContext { name: &model_name, model, regions };
        let inputs = read_inputs(inputs, raw_input_contents, source, permit)?;
        let outputs = read_outputs(outputs, &mut parameters.form, regions)?;
        Ok((parameters, inputs, outputs))
    };
    let (parameters, inputs, outputs) = read().map_err(|fault| fault.status(&model_name, &id))?;
    let request = InferRequest {
        model: model_name,
        version: model_version,
        id,
        sequence: parameters.sequence,
        priority: parameters.priority,
        timeout: parameters.timeout,
        inputs,
        outputs,
        parameters: parameters.custom,
        dialect: Dialect::TRITON,
    };
    Ok((request, parameters.form))
}

// === parameters ===

fn read_parameters(parameters: BTreeMap<String, InferParameter>) -> Result<Parameters, DecodeError> {
    let mut read = Parameters::default();
    for (key, value) in parameters {
        let value = value.parameter_choice;
        match key.as_str() {
            "sequence_id" => read.sequence.id = sequence_id(&key, value)?,
            "sequence_from" => read.sequence.from = Some(sequence_id(&key, value)?),
            "sequence_start" => read.sequence.start = flag(&key, value.as_ref())?,
            "sequence_end" => read.sequence.end = flag(&key, value.as_ref())?,
            "sequence_step" => read.sequence.step = Some(unsigned(&key, value.as_ref())?),
            "sequence_idle_us" => read.sequence.idle = to_span(unsigned(&key, value.as_ref())?),
            "priority" => read.priority = to_priority(unsigned(&key, value.as_ref())?),
            "timeout" => read.timeout = timeout(&key, value.as_ref())?,
            "sequor_typed" => read.form.typed = flag(&key, value.as_ref())?,
            "triton_enable_empty_final_response" => read.form.mark_final = flag(&key, value.as_ref())?,
            _ => read.custom.push(custom(key, value)?),
        }
    }
    Ok(read)
}

fn wrong_kind(key: &str, expected: &str) -> DecodeError {
    DecodeError::malformed(format!("invalid value type for '{key}' parameter, expected {expected}."))
}

/// The correlation id. Clients send it as a signed integer, whose bits are the id.
fn sequence_id(key: &str, value: Option<ParameterChoice>) -> Result<Id, DecodeError> {
    match value {
        Some(ParameterChoice::Int64Param(id)) => Ok(Id::from(id.cast_unsigned())),
        Some(ParameterChoice::Uint64Param(id)) => Ok(Id::from(id)),
        Some(ParameterChoice::StringParam(id)) => text_id(&id),
        _ => Err(wrong_kind(key, "int64_param or string_param")),
    }
}

pub(crate) fn text_id(id: &str) -> Result<Id, DecodeError> {
    if id.len() > LONGEST_ID { Err(Invalid::IdTooLong { limit: LONGEST_ID }.into()) } else { Ok(Id::from(id)) }
}

fn flag(key: &str, value: Option<&ParameterChoice>) -> Result<bool, DecodeError> {
    match value {
        Some(ParameterChoice::BoolParam(flag)) => Ok(*flag),
        _ => Err(wrong_kind(key, "bool_param")),
    }
}

fn unsigned(key: &str, value: Option<&ParameterChoice>) -> Result<u64, DecodeError> {
    match value {
        Some(ParameterChoice::Uint64Param(n)) => Ok(*n),
        Some(ParameterChoice::Int64Param(n)) => u64::try_from(*n)
            .map_err(|_| DecodeError::malformed(format!("invalid value for '{key}', expected value >= 0."))),
        _ => Err(wrong_kind(key, "int64_param or uint64_param")),
    }
}

/// Converts a priority. 0 is the default level. A number too large for `u32` counts as 0.
pub(crate) fn to_priority(n: u64) -> u32 {
    u32::try_from(n).unwrap_or_default()
}

fn timeout(key: &str, value: Option<&ParameterChoice>) -> Result<Option<Duration>, DecodeError> {
    match value {
        Some(ParameterChoice::Int64Param(_)) => Ok(to_span(unsigned(key, value)?)),
        _ => Err(wrong_kind(key, "int64_param")),
    }
}

/// A span of time in microseconds; 0 is none.
pub(crate) fn to_span(micros: u64) -> Option<Duration> {
    (micros > 0).then(|| Duration::from_micros(micros))
}

fn custom(key: String, value: Option<ParameterChoice>) -> Result<(String, Parameter), DecodeError> {
    check_custom(&key)?;
    let value = match value {
        Some(ParameterChoice::BoolParam(b)) => Parameter::Bool(b),
        Some(ParameterChoice::Int64Param(n)) => Parameter::Int(n),
        Some(ParameterChoice::StringParam(text)) => Parameter::Text(text),
        Some(ParameterChoice::DoubleParam(x)) => Parameter::Double(x),
        Some(ParameterChoice::Uint64Param(_)) | None => {
            return Err(wrong_kind(&key, "bool_param, int64_param, string_param or double_param"));
        }
    };
    Ok((key, value))
}

pub(crate) fn check_custom(key: &str) -> Result<(), DecodeError> {
    if key.starts_with("triton_") {
        return Err(DecodeError::malformed(
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with \
             'triton_' are allowed: triton_enable_empty_final_response",
        ));
    }
    Ok(())
}

/// If the request has no id, takes it from the header that proxies hash; digits are an integer id. If it has one, both must agree.
pub(crate) fn stand_in(id: &mut Id, header: Option<&str>) -> Result<(), DecodeError> {
    let Some(header) = header else { return Ok(()) };
    if *id == Id::None {
        *id = match header.parse::<u64>() {
            Ok(number) => Id::from(number),
            Err(_) => text_id(header)?,
        };
        return Ok(());
    }
    if id.to_string() == header {
        return Ok(());
    }
    Err(DecodeError::malformed(format!(
        "'sequence_id' {id} and {} {header} are not the same sequence",
        crate::api::context::SEQUENCE_HEADER
    )))
}

// === tensors ===

/// The context for decoding the inputs of a request.
#[derive(Clone, Copy)]
struct InputContext<'a> {
    name: &'a str,
    model: &'a dyn ModelInputs,
    regions: &'a Regions,
}

fn read_inputs(
    inputs: Vec<InferInputTensor>,
    raw: Vec<Bytes>,
    source: InputContext<'_>,
    permit: &mut QueuedBytesPermit,
) -> Result<Vec<NamedTensor>, DecodeError> {
    let InputContext { name: model, regions, .. } = source;
    let is_raw = !raw.is_empty();
    let (mut raw, count) = (raw.into_iter(), inputs.len());
    if !inputs.is_empty() {
        let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
        source.model.check_names(&names)?;
    }
    let windows = inputs.iter().map(|input| read_window(input, regions)).collect::<Result<Vec<_>, _>>()?;
    regions.charge(windows.iter().flatten(), permit)?;
    let mut read = Vec::with_capacity(count);
    for (input, window) in inputs.into_iter().zip(windows) {
        let dtype = data_type(&input.name, &input.datatype, source.model)?;
        let data = match (window, is_raw, input.contents) {
            (Some(window), _, None) => window.read().map_err(DecodeError::Status)?,
            (Some(_), _, Some(_)) => return Err(both(&input.name, model)),
            (None, true, Some(_)) => {
                let name = &input.name;
                return Err(DecodeError::malformed(format!(
                    "contents field must not be specified when using raw_input_contents for '{name}' for model '{model}'"
                )));
            }
            (None, true, None) => raw.next().ok_or_else(|| Invalid::NoData { input: input.name.clone() })?,
            (None, false, Some(list)) => contents::to_bytes(&list, dtype, &input.name, model)?,
            (None, false, None) => return Err(Invalid::NoData { input: input.name }.into()),
        };
        let shape = shape(&input.name, input.shape)?;
        read.push(NamedTensor { name: input.name, tensor: Tensor { dtype, shape, data } });
    }
    match raw.len() {
        0 => Ok(read),
        more => Err(DecodeError::malformed(format!(
            "expected {count} entries of raw_input_contents for model '{model}', got {}",
            count + more
        ))),
    }
}

fn both(input: &str, model: &str) -> DecodeError {
    DecodeError::malformed(format!(
        "unexpected 'content' provided when using shared memory for input tensor '{input}' for model '{model}'"
    ))
}

fn read_window(input: &InferInputTensor, regions: &Regions) -> Result<Option<Window>, DecodeError> {
    if input.parameters.is_empty() {
        return Ok(None);
    }
    response_format::window(&format!("input '{}'", input.name), |key| given(&input.parameters, key), regions)
}

fn given<'a>(parameters: &'a BTreeMap<String, InferParameter>, key: &str) -> Option<ParameterValue<'a>> {
    Some(match parameters.get(key)?.parameter_choice.as_ref()? {
        ParameterChoice::Int64Param(n) => ParameterValue::Number(*n),
        ParameterChoice::StringParam(text) => ParameterValue::Text(text),
        _ => ParameterValue::Other,
    })
}

pub(crate) fn data_type(input: &str, name: &str, model: &dyn ModelInputs) -> Result<DataType, DecodeError> {
    let unknown = || match model.data_type(input) {
        Some(want) => Invalid::UnknownDataType { input: input.to_owned(), got: name.to_owned(), want },
        None => Invalid::UnknownInput { input: input.to_owned(), known: Vec::new() },
    };
    Ok(DataType::from_name(name).ok_or_else(unknown)?)
}

pub(crate) fn shape(input: &str, dims: Vec<i64>) -> Result<Shape, DecodeError> {
    if dims.iter().any(|d| *d < 0) {
        return Err(Invalid::NegativeDim { input: input.to_owned(), got: dims }.into());
    }
    Ok(Shape(dims.into_iter().map(i64::cast_unsigned).collect()))
}

fn read_outputs(
    outputs: Vec<InferRequestedOutputTensor>,
    form: &mut ResponseFormat,
    regions: &Regions,
) -> Result<Vec<String>, DecodeError> {
    for output in outputs.iter().filter(|output| !output.parameters.is_empty()) {
        form.read(&output.name, None, |key| given(&output.parameters, key), regions)?;
    }
    Ok(outputs.into_iter().map(|output| output.name).collect())
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
