//! Bodies of predictions over HTTP. In column format `inputs` holds a whole tensor for each input; in row format `instances` holds one row of
//! each input, item after item.

use std::collections::BTreeMap;
use std::fmt;

use sequor_core::DataType;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::ndarray::{NdArray, memory};
use super::refusal;
use super::request::{PredictRequestParts, check_names, invalid};
use super::special::{self, AnswerId, CONTROL, SEQUENCE_ID, SpecialInputFault};
use crate::api::queued::QueuedBytesPermit;
use crate::api::refusal::limit;
use crate::api::{Code, ServerLimits, Status};
use crate::error::{ExceededLimit, Invalid};
use crate::model::{ModelHandle, NamedTensor, SequenceStep, Tensor};

/// How the body and its answer are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLayout {
    Row,
    Column,
}

/// What a body is read with.
#[derive(Debug)]
pub(crate) struct PredictBodyHead<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    pub(crate) model: &'a ModelHandle,
    /// The header that proxies hash.
    pub(crate) sequence: Option<&'a str>,
    pub(crate) limits: &'a ServerLimits,
}

/// A request, and what its answer needs.
#[derive(Debug)]
pub(crate) struct ParsedBody {
    pub(crate) parts: PredictRequestParts,
    pub(crate) layout: BodyLayout,
    pub(crate) id: AnswerId,
}

#[derive(Debug, serde::Deserialize)]
struct PredictBody<'b> {
    #[serde(borrow)]
    instances: Option<&'b RawValue>,
    #[serde(borrow)]
    inputs: Option<&'b RawValue>,
}

const NO_ARRAY: &str = "Could not parse input content. Not valid ndarray detected";

/// Reads a body. The memory of its tensors is counted before it is taken.
pub(crate) fn parse(
    head: &PredictBodyHead<'_>,
    body: &[u8],
    permit: &mut QueuedBytesPermit,
) -> Result<ParsedBody, Status> {
    let (layout, text) = match top(body)? {
        PredictBody { instances: Some(rows), inputs: None } => (BodyLayout::Row, rows),
        PredictBody { instances: None, inputs: Some(columns) } => (BodyLayout::Column, columns),
        _ => return Err(refusal::bad_input("Invalid JSON structure. Could not detect row or column format")),
    };
    let mut tensors = BodyTensors { head, permit, arrays: BTreeMap::new(), id: None, control: None };
    let rows = match layout {
        BodyLayout::Column => tensors.columns(text).map(|()| 0)?,
        BodyLayout::Row => tensors.rows(text)?,
    };
    let BodyTensors { arrays, id, control, .. } = tensors;
    let is_stateful = head.model.is_stateful();
    let step = match is_stateful {
        true => step(id, control, head.sequence).map_err(|fault| refusal::special(&fault))?,
        false => SequenceStep::default(),
    };
    let names: Vec<&str> = arrays.keys().map(String::as_str).collect();
    check_names(head.model, head.name, &names, &step)?;
    let mut inputs = Vec::with_capacity(arrays.len());
    for (name, (array, count)) in arrays {
        if layout == BodyLayout::Row && count != rows {
            return Err(refusal::bad_input("Invalid JSON structure. Request inputs have different batch sizes"));
        }
        let tensor = array.finish(rows);
        head.model.check_form(&name, tensor.dtype, &tensor.shape).map_err(|what| invalid(head.name, what))?;
        inputs.push(NamedTensor { name, tensor });
    }
    let id = AnswerId::of(is_stateful, &step);
    let (model, version) = (head.name.to_owned(), head.version.to_owned());
    Ok(ParsedBody {
        parts: PredictRequestParts { model, version, sequence: step, inputs, outputs: Vec::new() },
        layout,
        id,
    })
}

/// The members of a body that say what its layout is.
fn top(body: &[u8]) -> Result<PredictBody<'_>, Status> {
    serde_json::from_slice(body).map_err(|error| {
        if !error.is_data() {
            let text = format!("The file is not valid json ({error})");
            return Status::new(Code::FailedPrecondition, crate::api::refusal::BAD_INPUT, text);
        }
        refusal::bad_input(format!("Request body should be JSON object ({error})"))
    })
}

fn step(
    id: Option<SpecialValues<u64>>,
    control: Option<SpecialValues<u32>>,
    header: Option<&str>,
) -> Result<SequenceStep, SpecialInputFault> {
    let id = id.map_or(Ok(0), |id| id.single(SEQUENCE_ID))?;
    let control = control.map_or(Ok(0), |control| control.single(CONTROL))?;
    special::step(id, control, header)
}

/// The tensors of a body that were read so far.
struct BodyTensors<'a, 'p> {
    head: &'a PredictBodyHead<'a>,
    permit: &'p mut QueuedBytesPermit,
    /// By input: what was read of it, and how many rows.
    arrays: BTreeMap<String, (NdArray, u64)>,
    id: Option<SpecialValues<u64>>,
    control: Option<SpecialValues<u32>>,
}

impl BodyTensors<'_, '_> {
    fn columns(&mut self, text: &RawValue) -> Result<(), Status> {
        if text.get().starts_with('{') {
            return self.members(text, Some, 0);
        }
        let name = self.only_input()?;
        self.input(name, text, 0)
    }

    /// Reads the instances; how many there are.
    fn rows(&mut self, text: &RawValue) -> Result<u64, Status> {
        if !text.get().starts_with('[') {
            return Err(refusal::bad_input("Invalid JSON structure. Nonamed instance is not an array."));
        }
        let (mut count, mut is_named) = (0, None);
        each(text, &mut |instance: &RawValue| {
            let named = instance.get().starts_with('{');
            if *is_named.get_or_insert(named) != named {
                return Err(refusal::bad_input("Invalid JSON structure. One of instances is not an object."));
            }
            count += 1;
            if named {
                // Only the first instance speaks for the sequence.
                let first = count == 1;
                return self.members(instance, |special| Some(special).filter(|_| first), 1);
            }
            let name = self.only_input()?;
            self.input(name, instance, 1)
        })?;
        if count == 0 {
            return Err(refusal::bad_input("Invalid JSON structure. Missing instances in row format"));
        }
        Ok(count)
    }

    /// Reads the members of an object. `special` says whether the special inputs may stand here.
    fn members(
        &mut self,
        text: &RawValue,
        special: impl Fn(&'static str) -> Option<&'static str>,
        rows: usize,
    ) -> Result<(), Status> {
        let is_stateful = self.head.model.is_stateful();
        entries(text, &mut |name: String, value: &RawValue| {
            let input = [SEQUENCE_ID, CONTROL].into_iter().find(|special| is_stateful && *special == name);
            match input {
                None => self.input(name, value, rows),
                Some(input) if special(input).is_none() => Err(refusal::special(&SpecialInputFault::Size(input))),
                Some(SEQUENCE_ID) => {
                    self.id = Some(SpecialValues::parse(value, rows == 1)?);
                    Ok(())
                }
                Some(_) => {
                    self.control = Some(SpecialValues::parse(value, rows == 1)?);
                    Ok(())
                }
            }
        })
    }

    /// The input of a tensor that has no name.
    fn only_input(&self) -> Result<String, Status> {
        let metadata = self.head.model.metadata();
        match metadata.inputs.as_slice() {
            [input] => Ok(input.name.clone()),
            inputs => {
                let (required, all) = (inputs.len(), inputs.len());
                let what = Invalid::InputCount { required, all, got: vec!["unnamed".to_owned()], missing: Vec::new() };
                Err(invalid(self.head.name, what))
            }
        }
    }

    /// Reads a tensor, or the next row of it.
    fn input(&mut self, name: String, text: &RawValue, rows: usize) -> Result<(), Status> {
        // An input that the model does not have is refused by its name, once all names are known.
        let dtype = self.head.model.input_type(&name).unwrap_or(DataType::Fp64);
        self.permit.grow(memory(text, dtype)).map_err(|exceeded| limit(&exceeded))?;
        let most = self.head.limits.inputs;
        if !self.arrays.contains_key(&name) && self.arrays.len() >= most {
            let exceeded = ExceededLimit::Parts { what: "inputs", limit: most, setting: "limits.inputs" };
            return Err(limit(&exceeded));
        }
        let (array, count) = self.arrays.entry(name).or_insert_with(|| (NdArray::new(dtype, rows), 0));
        if rows == 0 && *count > 0 {
            return Err(refusal::bad_input(format!("{NO_ARRAY} (an input comes twice)")));
        }
        *count += 1;
        array.read(text).map_err(|error| refusal::bad_input(format!("{NO_ARRAY} ({error})")))
    }
}

// === special inputs ===

/// The values of a special input.
#[derive(Debug)]
struct SpecialValues<T>(Vec<T>);

impl<T: Copy> SpecialValues<T> {
    /// A flat array of numbers that are not negative; in row format also a single number.
    fn parse<'t>(text: &'t RawValue, is_row: bool) -> Result<SpecialValues<T>, Status>
    where
        T: serde::Deserialize<'t>,
    {
        let no_array = || refusal::bad_input(NO_ARRAY);
        if is_row && let Ok(value) = serde_json::from_str(text.get()) {
            return Ok(SpecialValues(vec![value]));
        }
        // More values than two are as wrong as two.
        if text.get().len() > 256 {
            return Err(no_array());
        }
        let values: Vec<T> = serde_json::from_str(text.get()).map_err(|_| no_array())?;
        if values.is_empty() { Err(no_array()) } else { Ok(SpecialValues(values)) }
    }

    fn single(&self, input: &'static str) -> Result<T, SpecialInputFault> {
        match self.0.as_slice() {
            [value] => Ok(*value),
            _ => Err(SpecialInputFault::Size(input)),
        }
    }
}

// === arrays and objects, item by item ===

/// Does something with each item of an array, which is not held in memory as a whole.
fn each(text: &RawValue, take: &mut dyn FnMut(&RawValue) -> Result<(), Status>) -> Result<(), Status> {
    let mut status = None;
    let mut deserializer = serde_json::Deserializer::from_str(text.get());
    let items = JsonItems { take: &mut |_, item| take(item), status: &mut status };
    let read = items.deserialize(&mut deserializer);
    status.map_or_else(|| read.map_err(|error| refusal::bad_input(format!("{NO_ARRAY} ({error})"))), Err)
}

/// Does something with each member of an object.
fn entries(text: &RawValue, take: &mut dyn FnMut(String, &RawValue) -> Result<(), Status>) -> Result<(), Status> {
    let mut status = None;
    let mut deserializer = serde_json::Deserializer::from_str(text.get());
    let items = JsonItems { take, status: &mut status };
    let read = items.deserialize(&mut deserializer);
    status.map_or_else(|| read.map_err(|error| refusal::bad_input(format!("{NO_ARRAY} ({error})"))), Err)
}

struct JsonItems<'t> {
    take: &'t mut dyn FnMut(String, &RawValue) -> Result<(), Status>,
    /// Why an item was refused.
    status: &'t mut Option<Status>,
}

impl JsonItems<'_> {
    fn item<E: Error>(&mut self, name: String, item: &RawValue) -> Result<(), E> {
        (self.take)(name, item).map_err(|status| {
            *self.status = Some(status);
            E::custom("refused")
        })
    }
}

impl<'de> DeserializeSeed<'de> for JsonItems<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonItems<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<&RawValue>()? {
            self.item(String::new(), item)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some((name, item)) = items.next_entry::<String, &RawValue>()? {
            self.item(name, item)?;
        }
        Ok(())
    }
}

/// Whether this tensor has rows, which an answer in row format needs.
pub(super) fn rows(tensor: &Tensor) -> Option<u64> {
    tensor.shape.0.first().copied()
}
