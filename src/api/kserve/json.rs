//! From HTTP bodies to the host's requests: JSON, followed by the tensors that come as bytes. Those stay slices of the received buffer.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use sequor_core::{Dialect, Id};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::data;
use super::decode::{
    Fault, Parameters, check_custom, check_output, data_type, shape, stand_in, text_id, to_priority, to_timeout,
};
use crate::api::Status;
use crate::error::Invalid;
use crate::model::{InferRequest, Named, Parameter, Tensor};

type Object = serde_json::Map<String, Value>;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default)]
    parameters: Object,
    #[serde(borrow)]
    inputs: Option<Vec<Input<'a>>>,
    #[serde(default)]
    outputs: Vec<Output>,
}

#[derive(Deserialize)]
struct Input<'a> {
    name: String,
    shape: Vec<i64>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    #[serde(default)]
    parameters: Object,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Output {
    name: String,
    #[serde(default)]
    parameters: Object,
}

/// What the headers and the path say of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: &'a str,
    pub(crate) sequence: Option<&'a str>,
    /// `Inference-Header-Content-Length`, if it was sent.
    pub(crate) json_length: Option<usize>,
}

/// Which outputs the client wants as bytes behind the JSON.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Binary {
    by_default: bool,
    by_name: HashMap<String, bool>,
}

impl Binary {
    pub(crate) fn wants(&self, output: &str) -> bool {
        self.by_name.get(output).copied().unwrap_or(self.by_default)
    }
}

/// Reads a body.
pub(crate) fn infer(head: Head<'_>, body: &Bytes) -> Result<(InferRequest, Binary), Status> {
    let parsed = parse(head, body).map_err(|fault| fault.status(head.model, ""))?;
    let (fields, blobs) = parsed;
    let mark = fields.id.clone().unwrap_or_default().into_owned();
    read(head, fields, blobs).map_err(|fault| fault.status(head.model, &mark))
}

fn parse<'b>(head: Head<'_>, body: &'b Bytes) -> Result<(Body<'b>, Bytes), Fault> {
    let length = head.json_length.unwrap_or(body.len());
    if length == 0 && head.json_length.is_some() {
        return Err(Fault::Unserved(
            "a body of raw tensor data alone is not served here; send JSON before it".to_owned(),
        ));
    }
    let json = body.get(..length).ok_or_else(|| Fault::malformed(LENGTH_NEEDED))?;
    let fields = serde_json::from_slice(json)
        .map_err(|e| Fault::malformed(format!("failed to parse the request JSON buffer: {e}")))?;
    Ok((fields, body.slice(length..)))
}

const LENGTH_NEEDED: &str = "must specify valid 'Infer-Header-Content-Length' in request header and 'binary_data_size' \
    when passing inputs in binary data format";

fn read(head: Head<'_>, body: Body<'_>, mut blobs: Bytes) -> Result<(InferRequest, Binary), Fault> {
    let mut binary = Binary::default();
    let mut parameters = read_parameters(body.parameters, &mut binary)?;
    stand_in(&mut parameters.sequence.id, head.sequence)?;
    let inputs = body.inputs.ok_or_else(|| {
        Fault::malformed("Unable to parse 'inputs': attempt to access non-existing object member 'inputs'")
    })?;
    let inputs = inputs.into_iter().map(|input| read_input(head, input, &mut blobs)).collect::<Result<Vec<_>, _>>()?;
    if !blobs.is_empty() {
        return Err(Fault::malformed(format!("unexpected additional input data for model '{}'", head.model)));
    }
    let outputs = body.outputs.into_iter().map(|output| read_output(output, &mut binary)).collect::<Result<_, _>>()?;
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
    Ok((request, binary))
}

// === parameters ===

fn read_parameters(parameters: Object, binary: &mut Binary) -> Result<Parameters, Fault> {
    let mut read = Parameters::default();
    for (key, value) in parameters {
        match key.as_str() {
            "sequence_id" => read.sequence.id = sequence_id(&value)?,
            "sequence_start" => read.sequence.start = flag(&key, &value)?,
            "sequence_end" => read.sequence.end = flag(&key, &value)?,
            "sequence_step" => read.sequence.step = Some(unsigned(&key, &value)?),
            "priority" => read.priority = to_priority(unsigned(&key, &value)?)?,
            "timeout" => read.timeout = to_timeout(unsigned(&key, &value)?),
            "binary_data_output" => binary.by_default = flag(&key, &value)?,
            "triton_enable_empty_final_response" => {
                flag(&key, &value)?;
            }
            _ => read.custom.push(custom(key, value)?),
        }
    }
    Ok(read)
}

fn wrong_kind(key: &str, kind: &str) -> Fault {
    Fault::malformed(format!("Unable to parse '{key}': attempt to access JSON non-{kind} as {kind}"))
}

fn sequence_id(value: &Value) -> Result<Id, Fault> {
    match (value.as_u64(), value.as_str()) {
        (Some(id), _) => Ok(Id::from(id)),
        (_, Some(id)) => text_id(id),
        _ => Err(wrong_kind("sequence_id", "string")),
    }
}

fn flag(key: &str, value: &Value) -> Result<bool, Fault> {
    value.as_bool().ok_or_else(|| wrong_kind(key, "boolean"))
}

fn unsigned(key: &str, value: &Value) -> Result<u64, Fault> {
    value.as_u64().ok_or_else(|| wrong_kind(key, "unsigned-integer"))
}

fn custom(key: String, value: Value) -> Result<(String, Parameter), Fault> {
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
            return Err(Fault::malformed(format!("parameter '{key}' must be a string, a number or a boolean")));
        }
    };
    Ok((key, value))
}

// === tensors ===

fn read_input(head: Head<'_>, input: Input<'_>, blobs: &mut Bytes) -> Result<Named, Fault> {
    let Input { name, shape: dims, datatype, parameters, data } = input;
    if parameters.keys().any(|key| key.starts_with("shared_memory_")) {
        return Err(Fault::Unserved(format!(
            "shared memory is not served here; send the data of input '{name}' itself"
        )));
    }
    let dtype = data_type(&name, &datatype)?;
    let shape = shape(&name, dims)?;
    let data = match (parameters.get("binary_data_size"), data) {
        (Some(size), None) => take(head, blobs, unsigned("binary_data_size", size)?, &name)?,
        (None, Some(raw)) => data::read(raw, dtype, &shape, &name)?,
        (Some(_), Some(_)) => {
            return Err(Fault::malformed(format!("input '{name}' has both 'data' and 'binary_data_size'")));
        }
        (None, None) => return Err(Invalid::NoData { input: name }.into()),
    };
    Ok(Named { name, tensor: Tensor { dtype, shape, data } })
}

fn take(head: Head<'_>, blobs: &mut Bytes, size: u64, input: &str) -> Result<Bytes, Fault> {
    if head.json_length.is_none() {
        return Err(Fault::malformed(LENGTH_NEEDED));
    }
    let left = blobs.len() as u64;
    match usize::try_from(size) {
        Ok(len) if len <= blobs.len() => Ok(blobs.split_to(len)),
        _ => Err(Fault::malformed(format!(
            "unexpected size for input '{input}', expecting {} additional bytes for model '{}'",
            size.saturating_sub(left),
            head.model
        ))),
    }
}

fn read_output(output: Output, binary: &mut Binary) -> Result<String, Fault> {
    check_output(&output.name, output.parameters.keys())?;
    if let Some(value) = output.parameters.get("binary_data") {
        binary.by_name.insert(output.name.clone(), flag("binary_data", value)?);
    }
    Ok(output.name)
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
