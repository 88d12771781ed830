//! Bodies of predictions over HTTP. In column format, `inputs` holds a whole tensor for each input. In row format, each item of `instances`
//! holds one row of each input.

use std::collections::BTreeMap;
use std::fmt;

use sequor_core::DataType;
use serde_json::value::RawValue;

use super::json_items::{Form, entries};
use super::ndarray::{NdArray, memory};
use super::refusal;
use super::request::{PredictRequestParts, check_names, invalid};
use super::special::{self, AnswerId, CONTROL, SEQUENCE_ID, SpecialInputFault};
use crate::api::body::parse_object;
use crate::api::queued::QueuedBytesPermit;
use crate::api::refusal::limit;
use crate::api::{Code, ServerLimits, Status};
use crate::error::{ExceededLimit, Invalid};
use crate::model::{ModelHandle, NamedTensor, SequenceStep, Tensor};

/// The layout of a body and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLayout {
    Row,
    Column,
}

impl BodyLayout {
    /// OVMS's message about a tensor that it cannot parse.
    const fn no_array(self) -> &'static str {
        match self {
            BodyLayout::Row => "Could not parse instance content. Not valid ndarray detected",
            BodyLayout::Column => "Could not parse input content. Not valid ndarray detected",
        }
    }

    fn unparsed(self, why: impl fmt::Display) -> Status {
        refusal::bad_input(format!("{} ({why})", self.no_array()))
    }
}

/// The facts that parsing a body needs.
#[derive(Debug)]
pub(crate) struct PredictBodyHead<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    pub(crate) model: &'a ModelHandle,
    /// The value of the header that proxies hash.
    pub(crate) sequence: Option<&'a str>,
    pub(crate) limits: &'a ServerLimits,
}

/// A parsed request, with the facts that its answer needs.
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

/// Parses a body. The permit counts the memory of its tensors before it is allocated.
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
    let mut tensors = BodyTensors { head, layout, permit, arrays: BTreeMap::new(), id: None, control: None };
    let rows = match layout {
        BodyLayout::Column => tensors.columns(text).map(|()| 0)?,
        BodyLayout::Row => tensors.rows(text)?,
    };
    let BodyTensors { arrays, id, control, .. } = tensors;
    // As in OVMS, the whole body is parsed before anything is checked.
    if layout == BodyLayout::Row && arrays.values().any(|(_, count)| *count != rows) {
        return Err(refusal::bad_input("Invalid JSON structure. Request inputs have different batch sizes"));
    }
    let is_stateful = head.model.is_stateful();
    let step = match is_stateful {
        true => step(id, control, head.sequence).map_err(|fault| refusal::special(&fault))?,
        false => SequenceStep::default(),
    };
    let names: Vec<&str> = arrays.keys().map(String::as_str).collect();
    check_names(head.model, head.name, &names, &step)?;
    let mut inputs = Vec::with_capacity(arrays.len());
    for (name, (array, _)) in arrays {
        let tensor = array.finish(rows);
        head.model.check_form(&name, tensor.dtype, &tensor.shape).map_err(|what| invalid(head.name, what))?;
        inputs.push(NamedTensor { name, tensor });
    }
    let id = AnswerId::new(is_stateful, &step);
    let (model, version) = (head.name.to_owned(), head.version.to_owned());
    Ok(ParsedBody {
        parts: PredictRequestParts { model, version, sequence: step, inputs, outputs: Vec::new() },
        layout,
        id,
    })
}

/// The members of a body that decide its layout.
fn top(body: &[u8]) -> Result<PredictBody<'_>, Status> {
    parse_object(body).map_err(|error| {
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

/// The tensors of a body that were parsed so far.
struct BodyTensors<'a, 'p> {
    head: &'a PredictBodyHead<'a>,
    layout: BodyLayout,
    permit: &'p mut QueuedBytesPermit,
    /// For each input: the parsed array, and its number of rows.
    arrays: BTreeMap<String, (NdArray, u64)>,
    id: Option<SpecialValues<u64>>,
    control: Option<SpecialValues<u32>>,
}

impl BodyTensors<'_, '_> {
    fn columns(&mut self, text: &RawValue) -> Result<(), Status> {
        match Form::detect(text) {
            Form::Array => {
                let name = self.only_input()?;
                self.input(name, text)
            }
            Form::Object | Form::Base64 => match self.members(text, true)? {
                0 => Err(refusal::bad_input("Invalid JSON structure, missing inputs")),
                _ => Ok(()),
            },
            Form::Value | Form::Word => {
                Err(refusal::bad_input("Invalid JSON structure. One of inputs is not a JSON object."))
            }
        }
    }

    /// Parses the instances and returns their number. The first one decides whether all are objects of named tensors.
    fn rows(&mut self, text: &RawValue) -> Result<u64, Status> {
        if !text.get().starts_with('[') {
            return Err(refusal::bad_input("Invalid JSON structure. Nonamed instance is not an array."));
        }
        let (mut count, mut is_named, mut only) = (0, None, None);
        entries(text, |error| BodyLayout::Row.unparsed(error), &mut |_, instance: &RawValue| {
            let form = Form::detect(instance);
            if count == 0 && form == Form::Word {
                return Err(refusal::bad_input("Could not detect neither named or nonamed format"));
            }
            count += 1;
            if !*is_named.get_or_insert(form == Form::Object) {
                if only.is_none() {
                    only = Some(self.only_input()?);
                }
                return self.input(only.clone().unwrap_or_default(), instance);
            }
            if !matches!(form, Form::Object | Form::Base64) {
                let text = "Invalid JSON structure. One of named instances is not a JSON object.";
                return Err(refusal::bad_input(text));
            }
            // Only the first instance may have the special inputs.
            match self.members(instance, count == 1)? {
                0 => Err(self.layout.unparsed("an instance without inputs")),
                _ => Ok(()),
            }
        })?;
        if count == 0 {
            return Err(refusal::bad_input("Invalid JSON structure. Missing instances in row format"));
        }
        Ok(count)
    }

    /// Parses the members of an object and returns their number. `is_first`: whether special inputs are allowed.
    fn members(&mut self, text: &RawValue, is_first: bool) -> Result<usize, Status> {
        let (is_stateful, layout, mut count) = (self.head.model.is_stateful(), self.layout, 0);
        entries(text, |error| layout.unparsed(error), &mut |name: String, value: &RawValue| {
            count += 1;
            let input = [SEQUENCE_ID, CONTROL].into_iter().find(|special| is_stateful && *special == name);
            match input {
                None => self.input(name, value)?,
                Some(input) if !is_first => return Err(refusal::special(&SpecialInputFault::Rank(input))),
                Some(SEQUENCE_ID) => self.id = Some(SpecialValues::parse(value, layout)?),
                Some(_) => self.control = Some(SpecialValues::parse(value, layout)?),
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// The input for a tensor without a name.
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

    /// Parses a tensor, or its next row.
    fn input(&mut self, name: String, text: &RawValue) -> Result<(), Status> {
        let layout = self.layout;
        let rows = usize::from(layout == BodyLayout::Row);
        // An unknown input is refused later, once all names are known.
        let dtype = self.head.model.input_type(&name).unwrap_or(DataType::Fp64);
        self.permit.grow(memory(text, dtype)).map_err(|exceeded| limit(&exceeded))?;
        let most = self.head.limits.inputs;
        if !self.arrays.contains_key(&name) && self.arrays.len() >= most {
            let exceeded = ExceededLimit::Parts { what: "inputs", limit: most, setting: "limits.inputs" };
            return Err(limit(&exceeded));
        }
        let (array, count) = self.arrays.entry(name).or_insert_with(|| (NdArray::new(dtype, rows), 0));
        if rows == 0 && *count > 0 {
            return Err(layout.unparsed("an input comes twice"));
        }
        *count += 1;
        array.read(text).map_err(|error| layout.unparsed(error))
    }
}

// === special inputs ===

/// The values of a special input.
#[derive(Debug)]
struct SpecialValues<T> {
    values: Vec<T>,
    layout: BodyLayout,
}

impl<T: Copy> SpecialValues<T> {
    /// Parses a flat array of non-negative numbers. In row format, also a single number.
    fn parse<'t>(text: &'t RawValue, layout: BodyLayout) -> Result<SpecialValues<T>, Status>
    where
        T: serde::Deserialize<'t>,
    {
        let no_array = || refusal::bad_input(layout.no_array());
        if layout == BodyLayout::Row
            && let Ok(value) = serde_json::from_str(text.get())
        {
            return Ok(SpecialValues { values: vec![value], layout });
        }
        // More than two values are as wrong as two.
        if text.get().len() > 256 {
            return Err(no_array());
        }
        let values: Vec<T> = serde_json::from_str(text.get()).map_err(|_| no_array())?;
        if values.is_empty() { Err(no_array()) } else { Ok(SpecialValues { values, layout }) }
    }

    fn single(&self, input: &'static str) -> Result<T, SpecialInputFault> {
        match (self.values.as_slice(), self.layout) {
            ([value], _) => Ok(*value),
            (_, BodyLayout::Column) => Err(SpecialInputFault::Size(input)),
            // OVMS adds a batch dimension.
            (_, BodyLayout::Row) => Err(SpecialInputFault::Rank(input)),
        }
    }
}

/// The number of rows of a tensor, which an answer in row format needs. `None` for a scalar.
pub(super) fn rows(tensor: &Tensor) -> Option<u64> {
    tensor.shape.0.first().copied()
}
