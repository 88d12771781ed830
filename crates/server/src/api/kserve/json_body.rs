//! Parses the JSON of an inference request without a tree of values. Parameters that are arrays or objects are refused at their start.
//! Inputs, outputs, parameters and dimensions are counted while they are parsed.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::ServerLimits;

/// Parameters by name. Values are null, booleans, numbers or texts.
pub(super) type Object = serde_json::Map<String, Value>;

/// Maximum number of dimensions of a tensor.
const MOST_DIMENSIONS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct InferBody<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) parameters: Object,
    pub(super) inputs: Option<Vec<JsonInput<'a>>>,
    pub(super) outputs: Vec<JsonOutput>,
}

impl<'a> InferBody<'a> {
    /// The data of each input that has some.
    pub(super) fn data(&self) -> Vec<&'a RawValue> {
        self.inputs.iter().flatten().filter_map(|input| input.data).collect()
    }
}

#[derive(Debug)]
pub(super) struct JsonInput<'a> {
    pub(super) name: String,
    pub(super) shape: Vec<i64>,
    pub(super) datatype: Cow<'a, str>,
    pub(super) parameters: Object,
    pub(super) data: Option<&'a RawValue>,
}

#[derive(Debug)]
pub(super) struct JsonOutput {
    pub(super) name: String,
    pub(super) parameters: Object,
}

/// Parses a body.
pub(super) fn parse<'a>(json: &'a [u8], limits: &ServerLimits) -> Result<InferBody<'a>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let body = BodySeed(&mut Counts { limits, parameters: 0 }).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(body)
}

/// Counts of a request's parts so far, and their limits.
struct Counts<'l> {
    limits: &'l ServerLimits,
    parameters: usize,
}

fn too_many<E: Error>(what: &str, limit: usize, setting: &str) -> E {
    E::custom(format!("the request has more than {limit} {what} ({setting})"))
}

/// A text that borrows from the body if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Sets a field, which must not be set yet.
fn set<T, E: Error>(field: &mut Option<T>, name: &'static str, value: T) -> Result<(), E> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(name)),
    }
}

/// Implements [`DeserializeSeed`] for a visitor of any value.
macro_rules! seed {
    ($seed:ident => $value:ty) => {
        impl<'de> DeserializeSeed<'de> for $seed<'_, '_> {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
    };
}

// === the body ===

/// Parameters that other requests of the sequence depend on. Beside "parameters" they would be ignored like every unknown key, and the step
/// would be one of no sequence.
const OF_SEQUENCES: [&str; 4] = ["sequence_id", "sequence_start", "sequence_end", "sequence_step"];

struct BodySeed<'c, 'l>(&'c mut Counts<'l>);

seed!(BodySeed => InferBody<'de>);

impl<'de> Visitor<'de> for BodySeed<'_, '_> {
    type Value = InferBody<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<InferBody<'de>, A::Error> {
        let (mut id, mut parameters, mut inputs, mut outputs) = (None, None, None, None);
        while let Some(Text(key)) = map.next_key()? {
            match &*key {
                "id" => set(&mut id, "id", map.next_value::<Option<Text<'de>>>()?.map(|Text(id)| id))?,
                "parameters" => set(&mut parameters, "parameters", map.next_value_seed(ParametersSeed(self.0))?)?,
                "inputs" => set(&mut inputs, "inputs", map.next_value_seed(InputsSeed(self.0))?)?,
                "outputs" => set(&mut outputs, "outputs", map.next_value_seed(OutputsSeed(self.0))?)?,
                misplaced if OF_SEQUENCES.contains(&misplaced) => {
                    return Err(A::Error::custom(format_args!("\"{misplaced}\" belongs in \"parameters\"")));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(InferBody {
            id: id.flatten(),
            parameters: parameters.unwrap_or_default(),
            inputs: inputs.flatten(),
            outputs: outputs.unwrap_or_default(),
        })
    }
}

// === tensors ===

struct InputsSeed<'c, 'l>(&'c mut Counts<'l>);

seed!(InputsSeed => Option<Vec<JsonInput<'de>>>);

impl<'de> Visitor<'de> for InputsSeed<'_, '_> {
    type Value = Option<Vec<JsonInput<'de>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of inputs")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut inputs = Vec::new();
        while let Some(input) = items.next_element_seed(InputSeed(self.0))? {
            if inputs.len() >= self.0.limits.inputs {
                return Err(too_many("inputs", self.0.limits.inputs, "limits.inputs"));
            }
            inputs.push(input);
        }
        Ok(Some(inputs))
    }
}

struct InputSeed<'c, 'l>(&'c mut Counts<'l>);

seed!(InputSeed => JsonInput<'de>);

impl<'de> Visitor<'de> for InputSeed<'_, '_> {
    type Value = JsonInput<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an input")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonInput<'de>, A::Error> {
        let (mut name, mut shape, mut datatype, mut parameters, mut data) = (None, None, None, None, None);
        while let Some(Text(key)) = map.next_key()? {
            match &*key {
                "name" => set(&mut name, "name", map.next_value()?)?,
                "shape" => set(&mut shape, "shape", map.next_value_seed(ShapeSeed)?)?,
                "datatype" => set(&mut datatype, "datatype", map.next_value::<Text<'de>>()?.0)?,
                "parameters" => set(&mut parameters, "parameters", map.next_value_seed(ParametersSeed(self.0))?)?,
                "data" => set(&mut data, "data", map.next_value::<Option<&'de RawValue>>()?)?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(JsonInput {
            name: name.ok_or_else(|| A::Error::missing_field("name"))?,
            shape: shape.ok_or_else(|| A::Error::missing_field("shape"))?,
            datatype: datatype.ok_or_else(|| A::Error::missing_field("datatype"))?,
            parameters: parameters.unwrap_or_default(),
            data: data.flatten(),
        })
    }
}

struct ShapeSeed;

impl<'de> DeserializeSeed<'de> for ShapeSeed {
    type Value = Vec<i64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<i64>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ShapeSeed {
    type Value = Vec<i64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a shape")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<i64>, A::Error> {
        let mut dims = Vec::new();
        while let Some(dim) = items.next_element()? {
            if dims.len() >= MOST_DIMENSIONS {
                return Err(A::Error::custom(format!("a shape has more than {MOST_DIMENSIONS} dimensions")));
            }
            dims.push(dim);
        }
        Ok(dims)
    }
}

struct OutputsSeed<'c, 'l>(&'c mut Counts<'l>);

seed!(OutputsSeed => Vec<JsonOutput>);

impl<'de> Visitor<'de> for OutputsSeed<'_, '_> {
    type Value = Vec<JsonOutput>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of outputs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<JsonOutput>, A::Error> {
        let mut outputs = Vec::new();
        while let Some(output) = items.next_element_seed(OutputSeed(self.0))? {
            if outputs.len() >= self.0.limits.outputs {
                return Err(too_many("outputs", self.0.limits.outputs, "limits.outputs"));
            }
            outputs.push(output);
        }
        Ok(outputs)
    }
}

struct OutputSeed<'c, 'l>(&'c mut Counts<'l>);

seed!(OutputSeed => JsonOutput);

impl<'de> Visitor<'de> for OutputSeed<'_, '_> {
    type Value = JsonOutput;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an output")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonOutput, A::Error> {
        let (mut name, mut parameters) = (None, None);
        while let Some(Text(key)) = map.next_key()? {
            match &*key {
                "name" => set(&mut name, "name", map.next_value()?)?,
                "parameters" => set(&mut parameters, "parameters", map.next_value_seed(ParametersSeed(self.0))?)?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
        Ok(JsonOutput { name, parameters: parameters.unwrap_or_default() })
    }
}

// === parameters ===

struct ParametersSeed<'c, 'l>(&'c mut Counts<'l>);

seed!(ParametersSeed => Object);

impl<'de> Visitor<'de> for ParametersSeed<'_, '_> {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut parameters = Object::new();
        while let Some(key) = map.next_key::<String>()? {
            self.0.parameters += 1;
            if self.0.parameters > self.0.limits.parameters {
                return Err(too_many("parameters", self.0.limits.parameters, "limits.parameters"));
            }
            let value = map.next_value_seed(ScalarSeed(&key))?;
            parameters.insert(key, value);
        }
        Ok(parameters)
    }
}

/// Parses a single object of parameters.
pub(super) fn parameters(raw: &RawValue, limits: &ServerLimits) -> Result<Object, serde_json::Error> {
    let mut counts = Counts { limits, parameters: 0 };
    ParametersSeed(&mut counts).deserialize(&mut serde_json::Deserializer::from_str(raw.get()))
}

/// Parses the value of the parameter with this name.
pub(super) fn scalar(name: &str, raw: &RawValue) -> Result<Value, serde_json::Error> {
    ScalarSeed(name).deserialize(&mut serde_json::Deserializer::from_str(raw.get()))
}

/// The value of the parameter with this name.
struct ScalarSeed<'k>(&'k str);

impl<'de> DeserializeSeed<'de> for ScalarSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number or a boolean")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(A::Error::custom(format!("parameter '{}' must be a string, a number or a boolean", self.0)))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(A::Error::custom(format!("parameter '{}' must be a string, a number or a boolean", self.0)))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }
}
