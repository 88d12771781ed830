//! Parses tensor data in JSON: nested or flat arrays of numbers, booleans or texts, written directly into the tensor's bytes. It builds no
//! tree of values, and does not round or truncate.

use std::fmt;

use bytes::Bytes;
use sequor_core::{DataType, Shape};
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Unexpected, Visitor};
use serde_json::value::RawValue;

use super::fault::DecodeError;
use super::non_finite::Words;

/// Maximum depth of nested arrays.
const DEEPEST: usize = 64;

/// Parses the `data` of an input. `words` are those for NaN and infinity, which `raw` has as zeros.
pub(super) fn read(
    raw: &RawValue,
    words: Option<Words<'_>>,
    dtype: DataType,
    shape: &Shape,
    input: &str,
) -> Result<Bytes, DecodeError> {
    if matches!(dtype, DataType::Fp16 | DataType::Bf16) {
        return Err(DecodeError::malformed(format!(
            "receiving {dtype} data via JSON is not supported. Please use the binary data format for input '{input}'"
        )));
    }
    if let Some(word) = words.and_then(Words::first).filter(|_| !matches!(dtype, DataType::Fp32 | DataType::Fp64)) {
        return Err(DecodeError::malformed(format!(
            "Unable to parse 'data' of input '{input}' as {dtype} of shape {shape}: {word} is no {dtype}"
        )));
    }
    let room = room(raw, dtype, shape);
    let mut elements = Elements { dtype, count: 0, expected: shape.elements(), out: Vec::with_capacity(room) };
    let depth = shape.rank().clamp(1, DEEPEST);
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    Array { into: &mut elements, depth }.deserialize(&mut deserializer).map_err(|e| {
        DecodeError::malformed(format!("Unable to parse 'data' of input '{input}' as {dtype} of shape {shape}: {e}"))
    })?;
    match shape.elements() {
        Some(count) if count == elements.count => {
            if let Some(words) = words {
                words.write_over(dtype, &mut elements.out);
            }
            Ok(elements.out.into())
        }
        want => Err(DecodeError::malformed(format!(
            "Unable to parse 'data' of input '{input}': shape {shape} has {} elements, but {} are given",
            want.map_or_else(|| "too many".to_owned(), |n| n.to_string()),
            elements.count
        ))),
    }
}

/// Bytes to reserve for the elements. Each element takes at least two characters, so the text's length limits them.
fn room(raw: &RawValue, dtype: DataType, shape: &Shape) -> usize {
    let most = raw.get().len() / 2 + 1;
    let count = shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(most);
    count.min(most).saturating_mul(dtype.size().unwrap_or(4))
}

/// Bytes of memory that parsing allocates.
pub(crate) fn memory(raw: &RawValue, dtype: DataType, shape: &Shape) -> u64 {
    let texts = if dtype == DataType::Bytes { raw.get().len() } else { 0 };
    room(raw, dtype, shape).saturating_add(texts) as u64
}

/// The elements that were parsed so far.
struct Elements {
    dtype: DataType,
    count: u64,
    /// The number of elements of the shape. Further ones are counted for the refusal, but not kept.
    expected: Option<u64>,
    out: Vec<u8>,
}

impl Elements {
    fn put<E>(&mut self, bytes: &[u8]) -> Result<(), E> {
        if self.is_expected() {
            self.out.extend_from_slice(bytes);
        }
        self.count += 1;
        Ok(())
    }

    /// Whether the shape has another element.
    fn is_expected(&self) -> bool {
        self.expected.is_some_and(|expected| self.count < expected)
    }

    fn integer<E: Error>(&mut self, n: i128) -> Result<(), E> {
        let wide = || E::custom(format!("{n} does not fit {}", self.dtype));
        match self.dtype {
            DataType::Uint8 => self.put(&[u8::try_from(n).map_err(|_| wide())?]),
            DataType::Uint16 => self.put(&u16::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Uint32 => self.put(&u32::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Uint64 => self.put(&u64::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Int8 => self.put(&i8::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Int16 => self.put(&i16::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Int32 => self.put(&i32::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Int64 => self.put(&i64::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Fp32 | DataType::Fp64 => self.float(n as f64),
            DataType::Bool | DataType::Bytes | DataType::Fp16 | DataType::Bf16 => {
                Err(E::custom(format!("{n} is no {}", self.dtype)))
            }
        }
    }

    fn float<E: Error>(&mut self, x: f64) -> Result<(), E> {
        match self.dtype {
            DataType::Fp64 => self.put(&x.to_le_bytes()),
            DataType::Fp32 if (x as f32).is_finite() => self.put(&(x as f32).to_le_bytes()),
            DataType::Fp32 => Err(E::custom(format!("{x:?} does not fit FP32"))),
            dtype => Err(E::custom(format!("{x:?} is no {dtype}"))),
        }
    }

    fn boolean<E: Error>(&mut self, b: bool) -> Result<(), E> {
        match self.dtype {
            DataType::Bool => self.put(&[u8::from(b)]),
            _ => Err(E::invalid_type(Unexpected::Bool(b), &self.dtype.name())),
        }
    }

    fn text<E: Error>(&mut self, text: &str) -> Result<(), E> {
        if self.dtype != DataType::Bytes {
            return Err(E::invalid_type(Unexpected::Str(text), &self.dtype.name()));
        }
        let len = u32::try_from(text.len()).map_err(|_| E::custom("a text is too long"))?;
        if self.is_expected() {
            self.out.extend_from_slice(&len.to_le_bytes());
        }
        self.put(text.as_bytes())
    }
}

/// An array whose elements may be arrays, nested up to `depth`.
struct Array<'e> {
    into: &'e mut Elements,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Array<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Array<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Item { into: self.into, depth: self.depth - 1 })?.is_some() {}
        Ok(())
    }
}

/// An element, or an array of elements if `depth` allows one.
struct Item<'e> {
    into: &'e mut Elements,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Item<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.into.dtype.name())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        if self.depth == 0 {
            return Err(A::Error::custom("the arrays are nested deeper than the shape"));
        }
        Array { into: self.into, depth: self.depth }.visit_seq(items)
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<(), E> {
        self.into.integer(n.into())
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<(), E> {
        self.into.integer(n.into())
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<(), E> {
        self.into.float(x)
    }

    fn visit_bool<E: Error>(self, b: bool) -> Result<(), E> {
        self.into.boolean(b)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.into.text(text)
    }
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
