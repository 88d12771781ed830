//! Files in the safetensors format: a length of 8 bytes, a header in JSON, and the bytes of the tensors.

use std::collections::BTreeMap;

use sequor_plugin::initializer::{Dtype, Port, Tensor};
use serde::Deserialize;
use serde_json::Value;

/// Maximum bytes of a header.
const HEADER: u64 = 16 << 20;

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub state: String,
    dtype: Dtype,
    shape: Vec<u64>,
    at: u64,
    len: u64,
}

/// A tensor in the header.
#[derive(Debug, Deserialize)]
struct Described {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The tensors of a file, each with its tenant.
pub fn entries(file: &Tensor) -> Result<Vec<(String, Entry)>, String> {
    let wrong = || "it is no file in the format safetensors".to_owned();
    let size = file.size();
    let len = (size >= 8).then(|| file.read(0, 8)).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let len = len.filter(|len| *len <= HEADER.min(size - 8)).ok_or_else(wrong)?;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&file.read(8, len)).map_err(|_| wrong())?;
    let mut all = Vec::new();
    for (name, described) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
        let Described { dtype, shape, data_offsets: [begin, end] } =
            Described::deserialize(described).map_err(|_| wrong())?;
        let (tenant, state) = name.rsplit_once('/').ok_or_else(|| format!("\"{name}\" is not named TENANT/STATE"))?;
        let dtype = named(&dtype).ok_or_else(|| format!("\"{name}\" is {dtype}, which is no type of tensors here"))?;
        let outside = || format!("\"{name}\" lies outside the file");
        let len_of = end.checked_sub(begin).ok_or_else(outside)?;
        let at = begin.checked_add(8 + len).filter(|at| at.checked_add(len_of).is_some_and(|end| end <= size));
        let at = at.ok_or_else(outside)?;
        all.push((tenant.to_owned(), Entry { state: state.to_owned(), dtype, shape, at, len: len_of }));
    }
    Ok(all)
}

impl Entry {
    /// Checks that it can be this state. The error begins with the name of the state.
    pub fn check(&self, port: &Port) -> Result<(), String> {
        let Entry { state, dtype, shape, .. } = self;
        if *dtype != port.dtype {
            return Err(format!("{state} is {dtype}; the state is {}", port.dtype));
        }
        let fits = |(want, is): (&i64, &u64)| u64::try_from(*want).map_or(true, |want| want == *is);
        if shape.len() != port.shape.len() || !port.shape.iter().zip(shape).all(fits) {
            return Err(format!("{state} is {shape:?}; the state is {:?}", port.shape));
        }
        let elements = shape.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim));
        let bytes = elements.and_then(|all| all.checked_mul(dtype.size()? as u64));
        if bytes != Some(self.len) {
            return Err(format!("{state} {shape:?} has {} bytes", self.len));
        }
        Ok(())
    }

    /// The tensor, from the file that contains it.
    pub fn of(&self, file: &Tensor) -> Tensor {
        file.part(self.at, self.len, &[self.len]).cast(self.dtype, &self.shape)
    }
}

fn named(dtype: &str) -> Option<Dtype> {
    Some(match dtype {
        "BOOL" => Dtype::BOOL,
        "U8" => Dtype::UINT8,
        "U16" => Dtype::UINT16,
        "U32" => Dtype::UINT32,
        "U64" => Dtype::UINT64,
        "I8" => Dtype::INT8,
        "I16" => Dtype::INT16,
        "I32" => Dtype::INT32,
        "I64" => Dtype::INT64,
        "F16" => Dtype::FP16,
        "F32" => Dtype::FP32,
        "F64" => Dtype::FP64,
        "BF16" => Dtype::BF16,
        _ => return None,
    })
}
