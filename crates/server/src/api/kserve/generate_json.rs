//! The JSON of `generate`: from an object to a request, and from an answer to an object.
//!
//! A key that names an input becomes that tensor: a scalar, a flat list, or lists nested like the tensor. `id` is the request's id. The
//! members of `parameters` and all other keys are parameters. If an input is missing, the refusal names those other keys. An answer has one
//! key per output; a single element is written without a list.

use std::fmt;

use bytes::Bytes;
use sequor_core::{Dialect, Dim, Shape};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::{member, parameter};
use super::data;
use super::decode::{Parameters, stand_in};
use super::fault::DecodeError;
use super::json::read_parameters;
use super::json_body::{self, Object};
use super::non_finite::{NonFiniteWords, Words};
use crate::api::queued::QueuedBytesPermit;
use crate::api::refusal::{BAD_INPUT, unsent};
use crate::api::{Code, ServerLimits, Status, json_elements};
use crate::model::{InferAnswer, InferRequest, Metadata, NamedTensor, Tensor, TensorMetadata};

/// Maximum depth of nested lists.
const DEEPEST: usize = 64;

/// The facts about a body from its path, its headers and the model.
#[derive(Clone, Copy)]
pub(super) struct GenerateHead<'a> {
    pub(super) model: &'a str,
    pub(super) version: &'a str,
    pub(super) sequence: Option<&'a str>,
    pub(super) metadata: &'a Metadata,
    pub(super) batching: bool,
    pub(super) limits: &'a ServerLimits,
}

impl GenerateHead<'_> {
    fn has_input(&self, name: &str) -> bool {
        self.metadata.inputs.iter().any(|input| input.name == name)
    }

    /// The sentence that these keys are not inputs, with the names of the inputs.
    fn no_inputs(&self, keys: &str) -> String {
        let inputs: Vec<&str> = self.metadata.inputs.iter().map(|input| input.name.as_str()).collect();
        format!(" [no input of model '{}' is named {keys}; its inputs: {}]", self.model, inputs.join(", "))
    }
}

/// A parsed body.
#[derive(Debug)]
pub(super) struct GenerateRequest {
    pub(super) request: InferRequest,
    /// A note for a refusal, if an input is missing and the body has keys that are not inputs.
    pub(super) note: Option<String>,
}

// === from an object to a request ===

/// Parses a body.
pub(super) fn request(
    head: GenerateHead<'_>,
    body: &Bytes,
    permit: &mut QueuedBytesPermit,
) -> Result<GenerateRequest, Status> {
    let unnamed = |fault: DecodeError| fault.status(head.model, "");
    let words;
    let (parsed, words) = match parse(head, body) {
        Ok(parsed) => (parsed, None),
        Err(error) => {
            words = NonFiniteWords::after(&error, body, permit).map_err(unnamed)?;
            (words.parse(|json| parse(head, json), GenerateBody::data).map_err(unnamed)?, Some(&words))
        }
    };
    let GenerateBody { id, tensors, parameters, others } = parsed;
    let lacks = |input: &TensorMetadata| tensors.iter().all(|(key, _)| *key != input.name);
    let lacks_one = head.metadata.inputs.iter().any(lacks);
    let read = read(head, id.clone(), (tensors, words), parameters, permit);
    let request = read.map_err(|fault| fault.status(head.model, &id))?;
    // Keys that the server itself reads are not reported as unknown inputs.
    let is_custom = |key: &&String| request.parameters.iter().any(|(name, _)| name == *key);
    let others: Vec<String> = others.iter().filter(is_custom).map(|key| format!("'{key}'")).collect();
    let note = (lacks_one && !others.is_empty()).then(|| head.no_inputs(&others.join(", ")));
    Ok(GenerateRequest { request, note })
}

type Members<'b> = Vec<(String, &'b RawValue)>;

#[derive(Default)]
struct GenerateBody<'b> {
    id: String,
    tensors: Members<'b>,
    parameters: Object,
    /// Keys other than the inputs, `id` and `parameters`.
    others: Vec<String>,
}

impl<'b> GenerateBody<'b> {
    /// The data of each input.
    fn data(&self) -> Vec<&'b RawValue> {
        self.tensors.iter().map(|(_, raw)| *raw).collect()
    }
}

fn parse<'b>(head: GenerateHead<'_>, body: &'b [u8]) -> Result<GenerateBody<'b>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let members = MembersSeed(head.limits).deserialize(&mut deserializer)?;
    deserializer.end()?;
    let mut parsed = GenerateBody::default();
    for (key, raw) in members {
        match key.as_str() {
            name if head.has_input(name) => parsed.tensors.push((key, raw)),
            "id" => parsed.id = serde_json::from_str::<String>(raw.get())?,
            "parameters" => parsed.parameters.extend(json_body::parameters(raw, head.limits)?),
            _ => {
                let wrong =
                    |error: serde_json::Error| Error::custom(format!("{error}{}", head.no_inputs(&format!("'{key}'"))));
                let value = json_body::scalar(&key, raw).map_err(wrong)?;
                parsed.others.push(key.clone());
                parsed.parameters.insert(key, value);
            }
        }
    }
    if parsed.parameters.len() > head.limits.parameters {
        let limit = head.limits.parameters;
        return Err(Error::custom(format!("the request has more than {limit} parameters (limits.parameters)")));
    }
    Ok(parsed)
}

/// The members of an object, up to the limits of a request.
struct MembersSeed<'l>(&'l ServerLimits);

impl<'de> DeserializeSeed<'de> for MembersSeed<'_> {
    type Value = Members<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Members<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MembersSeed<'_> {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let most = self.0.inputs.saturating_add(self.0.parameters);
        let mut members = Members::new();
        while let Some(key) = map.next_key::<String>()? {
            if members.len() >= most {
                return Err(A::Error::custom(format!(
                    "the request has more than {most} members (limits.inputs and limits.parameters)"
                )));
            }
            if members.iter().any(|(of, _)| *of == key) {
                return Err(A::Error::custom(format!("duplicate field `{key}`")));
            }
            members.push((key, map.next_value()?));
        }
        Ok(members)
    }
}

fn read(
    head: GenerateHead<'_>,
    id: String,
    (members, words): (Members<'_>, Option<&NonFiniteWords<'_>>),
    parameters: Object,
    permit: &mut QueuedBytesPermit,
) -> Result<InferRequest, DecodeError> {
    let Parameters { mut sequence, priority, timeout, custom, .. } = read_parameters(parameters)?;
    stand_in(&mut sequence.id, head.sequence)?;
    let mut inputs = Vec::with_capacity(members.len());
    for (name, raw) in members {
        if let Some(input) = head.metadata.inputs.iter().find(|input| input.name == name) {
            let words = words.and_then(|words| words.within(raw));
            inputs.push(tensor(input, raw, words, head.batching, permit)?);
        }
    }
    Ok(InferRequest {
        model: head.model.to_owned(),
        version: head.version.to_owned(),
        id,
        sequence,
        priority,
        timeout,
        inputs,
        outputs: Vec::new(),
        parameters: custom,
        dialect: Dialect::TRITON,
    })
}

fn tensor(
    input: &TensorMetadata,
    raw: &RawValue,
    words: Option<Words<'_>>,
    batching: bool,
    permit: &mut QueuedBytesPermit,
) -> Result<NamedTensor, DecodeError> {
    let TensorMetadata { name, dtype, .. } = input;
    let wrong = |why: &dyn fmt::Display| DecodeError::malformed(format!("Unable to parse '{name}': {why}"));
    let nesting = Nesting::measure(raw).map_err(|error| wrong(&error))?;
    let shape = shape(input, &nesting, batching).ok_or_else(|| {
        let dims = input.dims.to_wire();
        let row = elements_of_row(input, batching);
        let row = row.map(|count| format!(", or send {count} for one row")).unwrap_or_default();
        wrong(&format!("{} elements do not say which shape of {dims:?} they have; nest the lists{row}", nesting.count))
    })?;
    permit.grow(data::memory(raw, *dtype, &shape))?;
    let list = if nesting.dims.is_empty() { Some(in_a_list(raw).map_err(|error| wrong(&error))?) } else { None };
    let data = data::read(list.as_deref().unwrap_or(raw), words, *dtype, &shape, name)?;
    Ok(NamedTensor { name: name.clone(), tensor: Tensor { dtype: *dtype, shape, data } })
}

fn in_a_list(raw: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    RawValue::from_string(format!("[{}]", raw.get()))
}

/// The shape of a value: that of its nested lists, or the input's dimensions if they fit the number of elements. For a batching model the
/// value is one row, unless its lists are nested one level deeper.
fn shape(input: &TensorMetadata, nesting: &Nesting, batching: bool) -> Option<Shape> {
    let row: Vec<Dim> = input.dims.0.iter().skip(usize::from(batching)).copied().collect();
    let fits = |dims: &[Dim]| {
        dims.len() == nesting.dims.len()
            && dims.iter().zip(&nesting.dims).all(|(dim, n)| dim.fixed().is_none_or(|d| d == *n))
    };
    if batching && fits(&input.dims.0) {
        return Some(Shape::new(&nesting.dims));
    }
    let dims = if fits(&row) {
        nesting.dims.clone()
    } else {
        let known = row.iter().filter_map(|dim| dim.fixed()).try_fold(1u64, u64::checked_mul)?;
        let open = row.iter().filter(|dim| dim.fixed().is_none()).count();
        let rest = nesting.count.checked_div(known)?;
        if (open > 1 && rest != 1) || known.checked_mul(rest)? != nesting.count || (open == 0 && rest != 1) {
            return None;
        }
        row.iter().map(|dim| dim.fixed().unwrap_or(rest)).collect()
    };
    let shape = Shape(dims);
    Some(if batching { shape.with(0, 1) } else { shape })
}

/// The number of elements of one row of a model with a batch dimension, if its configuration fixes it.
fn elements_of_row(input: &TensorMetadata, batching: bool) -> Option<u64> {
    let mut row = input.dims.0.iter().skip(1).map(|dim| dim.fixed());
    batching.then(|| row.try_fold(1u64, |count, dim| count.checked_mul(dim?))).flatten()
}

/// The nesting of a value's lists: the length of the first list of each depth, and the number of elements.
#[derive(Debug, Default)]
struct Nesting {
    dims: Vec<u64>,
    count: u64,
}

impl Nesting {
    fn measure(raw: &RawValue) -> Result<Nesting, serde_json::Error> {
        let mut nesting = Nesting::default();
        let mut deserializer = serde_json::Deserializer::from_str(raw.get());
        NestedValue { nesting: &mut nesting, depth: 0 }.deserialize(&mut deserializer)?;
        Ok(nesting)
    }
}

/// A value at this depth.
struct NestedValue<'n> {
    nesting: &'n mut Nesting,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for NestedValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl NestedValue<'_> {
    fn element<E>(self) -> Result<(), E> {
        self.nesting.count += 1;
        Ok(())
    }
}

impl<'de> Visitor<'de> for NestedValue<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a boolean, a string or a list of them")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let NestedValue { nesting, depth } = self;
        if depth >= DEEPEST {
            return Err(A::Error::custom("the lists are nested too deep"));
        }
        let is_first = nesting.dims.len() == depth;
        if is_first {
            nesting.dims.push(0);
        }
        let mut length = 0;
        while items.next_element_seed(NestedValue { nesting: &mut *nesting, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        if let Some(dim) = nesting.dims.get_mut(depth).filter(|_| is_first) {
            *dim = length;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Err(A::Error::custom("an object is no tensor"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.element()
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.element()
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.element()
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.element()
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.element()
    }
}

// === from an answer to an object ===

/// Writes an answer.
pub(super) fn write(out: &mut Vec<u8>, answer: InferAnswer) -> Result<(), Status> {
    write_object(out, answer).map_err(unsent)
}

fn write_object(out: &mut Vec<u8>, answer: InferAnswer) -> Result<(), Status> {
    out.push(b'{');
    if !answer.id.is_empty() {
        member(out, "id", &answer.id.into());
        out.push(b',');
    }
    member(out, "model_name", &answer.model.into());
    out.push(b',');
    member(out, "model_version", &answer.version.to_string().into());
    for (key, value) in answer.parameters {
        out.push(b',');
        member(out, &key, &parameter(value));
    }
    for NamedTensor { name, tensor } in answer.outputs {
        out.push(b',');
        key(out, &name);
        let begin = out.len();
        json_elements::write(out, tensor.dtype, &tensor.data).map_err(|why| {
            let text = format!("output '{name}' cannot be sent as JSON: {why}. Use infer with the binary data format");
            Status::new(Code::InvalidArgument, BAD_INPUT, text)
        })?;
        // A single element is written without a list.
        if tensor.shape.elements() == Some(1) {
            out.remove(begin);
            out.pop();
        }
    }
    out.push(b'}');
    Ok(())
}

fn key(out: &mut Vec<u8>, name: &str) {
    // Writing to a `Vec` cannot fail.
    let _ = serde_json::to_writer(&mut *out, &Value::from(name));
    out.push(b':');
}

#[cfg(test)]
#[path = "generate_json_tests.rs"]
mod tests;
