//! Converts between values and tensors.

use bytes::Bytes;
use sequor::model::Tensor;
use sequor_core::{DataType, Shape};

/// An element of a tensor.
pub trait Element: Sized {
    const DTYPE: DataType;
    fn put(&self, out: &mut Vec<u8>);
    /// All elements of a tensor's data.
    fn all(data: &[u8]) -> Vec<Self>;
}

macro_rules! numbers {
    ($($t:ty = $dtype:ident),*) => { $(
        impl Element for $t {
            const DTYPE: DataType = DataType::$dtype;
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn all(data: &[u8]) -> Vec<$t> {
                data.chunks_exact(size_of::<$t>()).map(|c| <$t>::from_le_bytes(c.try_into().unwrap())).collect()
            }
        }
    )* };
}
numbers!(
    i8 = Int8,
    i16 = Int16,
    i32 = Int32,
    i64 = Int64,
    u8 = Uint8,
    u16 = Uint16,
    u32 = Uint32,
    u64 = Uint64,
    f32 = Fp32,
    f64 = Fp64
);

impl Element for bool {
    const DTYPE: DataType = DataType::Bool;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn all(data: &[u8]) -> Vec<bool> {
        data.iter().map(|b| *b != 0).collect()
    }
}

/// A BYTES element, which may hold any bytes.
impl Element for String {
    const DTYPE: DataType = DataType::Bytes;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        out.extend_from_slice(self.as_bytes());
    }
    fn all(mut data: &[u8]) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some((length, rest)) = data.split_first_chunk::<4>() {
            let (text, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            texts.push(String::from_utf8(text.to_vec()).unwrap());
            data = rest;
        }
        texts
    }
}

pub fn bytes<E: Element>(values: &[E]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|v| v.put(&mut out));
    out
}

/// A tensor of this shape.
pub fn tensor<E: Element>(shape: &[u64], values: &[E]) -> Tensor {
    Tensor { dtype: E::DTYPE, shape: Shape::new(shape), data: Bytes::from(bytes(values)) }
}

/// A tensor of one row.
pub fn row<E: Element>(values: &[E]) -> Tensor {
    tensor(&[1, values.len() as u64], values)
}

pub fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}
