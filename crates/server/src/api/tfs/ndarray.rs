//! Parses a tensor from nested JSON arrays directly into the tensor's bytes. The arrays determine its shape. It builds no tree of values,
//! and does not round or truncate. An integer may be written as a double without a fraction.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use half::{bf16, f16};
use sequor_core::{DataType, Shape};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::model::Tensor;

/// Maximum depth of nested arrays.
const DEEPEST: usize = 64;

/// The part of a tensor that was parsed so far.
#[derive(Debug)]
pub(super) struct NdArray {
    dtype: DataType,
    /// The number of dimensions outside each parsed text.
    rows: usize,
    /// The size of each dimension. Known once the first array of that depth has ended.
    dims: Vec<Option<u64>>,
    /// The depth of the elements.
    leaf: Option<usize>,
    out: Vec<u8>,
}

/// Maximum bytes of memory that parsing this text allocates: each element takes at least two characters.
pub(super) fn memory(text: &RawValue, dtype: DataType) -> u64 {
    let text = text.get().len() as u64;
    (text / 2 + 1).saturating_mul(dtype.size().map_or(4, |size| size as u64)).saturating_add(text)
}

impl NdArray {
    /// `rows` is the number of dimensions outside each parsed text: 1 for a tensor that arrives row by row.
    pub(super) fn new(dtype: DataType, rows: usize) -> NdArray {
        NdArray { dtype, rows, dims: vec![None; rows], leaf: None, out: Vec::new() }
    }

    /// Parses a text as the next part of the outer arrays.
    pub(super) fn read(&mut self, text: &RawValue) -> Result<(), serde_json::Error> {
        let (depth, mut deserializer) = (self.rows, serde_json::Deserializer::from_str(text.get()));
        NdElement { into: self, depth }.deserialize(&mut deserializer)
    }

    /// Makes the tensor. If it arrived row by row, `rows` is the number of rows.
    pub(super) fn finish(self, rows: u64) -> Tensor {
        let dims = self.dims.into_iter().map(|dim| dim.unwrap_or(rows)).collect();
        Tensor { dtype: self.dtype, shape: Shape(dims), data: self.out.into() }
    }

    /// Begins an array at this depth.
    fn enter<E: Error>(&mut self, depth: usize) -> Result<(), E> {
        if depth >= DEEPEST {
            return Err(E::custom("the arrays are nested too deep"));
        }
        if self.leaf.is_some_and(|leaf| leaf <= depth) {
            return Err(E::custom("an array stands beside a value"));
        }
        if self.dims.len() == depth {
            self.dims.push(None);
        }
        Ok(())
    }

    /// Ends an array at this depth with `count` elements.
    fn leave<E: Error>(&mut self, depth: usize, count: u64) -> Result<(), E> {
        match self.dims.get_mut(depth) {
            Some(size @ None) => *size = Some(count),
            Some(Some(size)) if *size == count => {}
            _ => return Err(E::custom("arrays of one depth differ in length")),
        }
        Ok(())
    }

    /// Checks the depth of an element.
    fn element<E: Error>(&mut self, depth: usize) -> Result<(), E> {
        if *self.leaf.get_or_insert(depth) != depth || self.dims.len() > depth {
            return Err(E::custom("a value stands beside an array"));
        }
        Ok(())
    }

    fn integer<E: Error>(&mut self, n: i128) -> Result<(), E> {
        let wide = || E::custom(format!("{n} does not fit {}", self.dtype));
        match self.dtype {
            DataType::Bool => self.out.push(u8::from(match n {
                0 => false,
                1 => true,
                _ => return Err(wide()),
            })),
            DataType::Uint8 => self.out.extend(u8::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Uint16 => self.out.extend(u16::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Uint32 => self.out.extend(u32::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Uint64 => self.out.extend(u64::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Int8 => self.out.extend(i8::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Int16 => self.out.extend(i16::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Int32 => self.out.extend(i32::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Int64 => self.out.extend(i64::try_from(n).map_err(|_| wide())?.to_le_bytes()),
            DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => return self.float(n as f64),
            DataType::Bytes => return Err(E::custom(format!("{n} is no text"))),
        }
        Ok(())
    }

    fn float<E: Error>(&mut self, x: f64) -> Result<(), E> {
        let single = x as f32;
        match self.dtype {
            DataType::Fp64 => self.out.extend(x.to_le_bytes()),
            DataType::Fp32 if single.is_finite() => self.out.extend(single.to_le_bytes()),
            DataType::Fp16 if f16::from_f64(x).is_finite() => self.out.extend(f16::from_f64(x).to_le_bytes()),
            DataType::Bf16 if bf16::from_f64(x).is_finite() => self.out.extend(bf16::from_f64(x).to_le_bytes()),
            DataType::Fp32 | DataType::Fp16 | DataType::Bf16 => {
                return Err(E::custom(format!("{x:?} does not fit {}", self.dtype)));
            }
            // As in OVMS. Above 2^64, no type holds the value.
            _ if is_integer(self.dtype) && x.fract() == 0.0 && x.abs() <= 2f64.powi(64) => {
                return self.integer(x as i128);
            }
            dtype => return Err(E::custom(format!("{x:?} is no {dtype}"))),
        }
        Ok(())
    }

    fn text<E: Error>(&mut self, text: &[u8]) -> Result<(), E> {
        if self.dtype != DataType::Bytes {
            return Err(E::custom(format!("a text is no {}", self.dtype)));
        }
        let len = u32::try_from(text.len()).map_err(|_| E::custom("a text is too long"))?;
        self.out.extend(len.to_le_bytes());
        self.out.extend(text);
        Ok(())
    }
}

fn is_integer(dtype: DataType) -> bool {
    use DataType::{Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64};
    matches!(dtype, Int8 | Int16 | Int32 | Int64 | Uint8 | Uint16 | Uint32 | Uint64)
}

/// A value, or an array of values, at this depth.
struct NdElement<'e> {
    into: &'e mut NdArray,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for NdElement<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NdElement<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} or an array", self.into.dtype)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let NdElement { into, depth } = self;
        into.enter(depth)?;
        let mut count = 0;
        while items.next_element_seed(NdElement { into, depth: depth + 1 })?.is_some() {
            count += 1;
        }
        into.leave(depth, count)
    }

    /// `{"b64": TEXT}` is an element with any bytes.
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let entry: Option<(String, String)> = entries.next_entry()?;
        let text = entry.filter(|(key, _)| key == "b64").map(|(_, text)| text);
        let text = text.ok_or_else(|| A::Error::custom("an object that is not {\"b64\": TEXT}"))?;
        if entries.next_key::<String>()?.is_some() {
            return Err(A::Error::custom("an object of more than \"b64\""));
        }
        let bytes = STANDARD.decode(text).map_err(A::Error::custom)?;
        self.into.element(self.depth)?;
        self.into.text(&bytes)
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<(), E> {
        self.into.element(self.depth)?;
        self.into.integer(n.into())
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<(), E> {
        self.into.element(self.depth)?;
        self.into.integer(n.into())
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<(), E> {
        self.into.element(self.depth)?;
        self.into.float(x)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<(), E> {
        self.into.element(self.depth)?;
        match self.into.dtype {
            DataType::Bool => self.into.integer(flag.into()),
            dtype => Err(E::custom(format!("{flag} is no {dtype}"))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.into.element(self.depth)?;
        self.into.text(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, dtype: DataType) -> Option<(Vec<u64>, Vec<u8>)> {
        let raw: &RawValue = serde_json::from_str(text).expect("JSON");
        let mut array = NdArray::new(dtype, 0);
        array.read(raw).ok()?;
        let tensor = array.finish(0);
        Some((tensor.shape.0, tensor.data.to_vec()))
    }

    #[test]
    fn the_nesting_of_the_arrays_gives_the_shape() {
        assert_eq!(read("7", DataType::Uint8), Some((vec![], vec![7])));
        assert_eq!(read("[7, 8]", DataType::Uint8), Some((vec![2], vec![7, 8])));
        assert_eq!(read("[[1,2,3],[4,5,6]]", DataType::Uint8), Some((vec![2, 3], vec![1, 2, 3, 4, 5, 6])));
        assert_eq!(read("[[[]],[[]]]", DataType::Uint8), Some((vec![2, 1, 0], vec![])));
        assert_eq!(read("[]", DataType::Fp32), Some((vec![0], vec![])));
        assert_eq!(read("[true, 0]", DataType::Bool), Some((vec![2], vec![1, 0])));
        let texts = Some((vec![2], b"\x01\0\0\0a\x01\0\0\0\xff".to_vec()));
        assert_eq!(read(r#"["a", {"b64": "/w=="}]"#, DataType::Bytes), texts);
    }

    #[test]
    fn an_integer_may_be_written_as_a_double() {
        let bytes = |text, dtype| read(text, dtype).map(|(_, bytes)| bytes);
        assert_eq!(bytes("[1.0, -2.0, 3e2]", DataType::Int16), Some(vec![1, 0, 254, 255, 44, 1]));
        assert_eq!(bytes("[-0.0]", DataType::Uint8), Some(vec![0]));
        assert_eq!(bytes("[-9223372036854775808.0]", DataType::Int64), Some(i64::MIN.to_le_bytes().to_vec()));
    }

    #[test]
    fn an_invalid_json_tensor_is_refused() {
        let bad = [
            ("[1,[2]]", DataType::Uint8),
            ("[[2],1]", DataType::Uint8),
            ("[[1,2],[3]]", DataType::Uint8),
            ("[[],[1]]", DataType::Uint8),
            ("[-1]", DataType::Uint64),
            ("[1.5]", DataType::Int32),
            ("[256]", DataType::Uint8),
            ("[256.0]", DataType::Uint8),
            ("[18446744073709551616.0]", DataType::Uint64),
            ("[1e60]", DataType::Int64),
            ("[1.0]", DataType::Bool),
            ("[1e60]", DataType::Fp32),
            ("[\"a\"]", DataType::Fp32),
            ("[true]", DataType::Fp32),
            ("[null]", DataType::Fp32),
            ("[{}]", DataType::Bytes),
            ("[{\"b64\": \"AA==\", \"b65\": \"AA==\"}]", DataType::Bytes),
        ];
        for (text, dtype) in bad {
            assert_eq!(read(text, dtype), None, "{text}");
        }
        let deep = format!("{}1{}", "[".repeat(DEEPEST + 1), "]".repeat(DEEPEST + 1));
        assert_eq!(read(&deep, DataType::Uint8), None);
    }

    #[test]
    fn rows_are_joined_if_they_are_alike() {
        let rows = |texts: &[&str]| {
            let mut array = NdArray::new(DataType::Uint8, 1);
            for text in texts {
                array.read(serde_json::from_str(text).expect("JSON")).ok()?;
            }
            let tensor = array.finish(texts.len() as u64);
            Some((tensor.shape.0, tensor.data.to_vec()))
        };
        assert_eq!(rows(&["[1,2]", "[3,4]", "[5,6]"]), Some((vec![3, 2], vec![1, 2, 3, 4, 5, 6])));
        assert_eq!(rows(&["1", "2"]), Some((vec![2], vec![1, 2])));
        assert_eq!(rows(&["[1,2]", "[3]"]), None);
        assert_eq!(rows(&["[1]", "3"]), None);
    }
}
