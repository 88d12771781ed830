//! Types of elements, with the contract's codes.

use std::fmt;

/// The type of a tensor's elements: a code of the contract's table. Later servers may use codes that have no name here.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dtype(pub u32);

const NAMES: [&str; 14] = [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES",
    "BF16",
];

impl Dtype {
    pub const BOOL: Dtype = Dtype(1);
    pub const UINT8: Dtype = Dtype(2);
    pub const UINT16: Dtype = Dtype(3);
    pub const UINT32: Dtype = Dtype(4);
    pub const UINT64: Dtype = Dtype(5);
    pub const INT8: Dtype = Dtype(6);
    pub const INT16: Dtype = Dtype(7);
    pub const INT32: Dtype = Dtype(8);
    pub const INT64: Dtype = Dtype(9);
    pub const FP16: Dtype = Dtype(10);
    pub const FP32: Dtype = Dtype(11);
    pub const FP64: Dtype = Dtype(12);
    pub const BYTES: Dtype = Dtype(13);
    pub const BF16: Dtype = Dtype(14);

    /// Whether [`super::Tensor::floats`] accepts it.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::FP16 | Dtype::FP32 | Dtype::BF16)
    }

    /// Bytes of an element; `None` for `BYTES` and for codes without a name.
    #[must_use]
    pub fn size(self) -> Option<usize> {
        match self {
            Dtype::BOOL | Dtype::UINT8 | Dtype::INT8 => Some(1),
            Dtype::UINT16 | Dtype::INT16 | Dtype::FP16 | Dtype::BF16 => Some(2),
            Dtype::UINT32 | Dtype::INT32 | Dtype::FP32 => Some(4),
            Dtype::UINT64 | Dtype::INT64 | Dtype::FP64 => Some(8),
            _ => None,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get((self.0 as usize).wrapping_sub(1)) {
            Some(name) => f.pad(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

impl fmt::Debug for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A Rust type for elements of tensors.
pub trait Element: Copy + 'static {
    const DTYPE: Dtype;
    const SIZE: usize;

    /// Reads an element of [`Self::SIZE`] bytes.
    fn decode(bytes: &[u8]) -> Self;

    /// Writes an element of [`Self::SIZE`] bytes.
    fn encode(self, to: &mut [u8]);
}

macro_rules! elements {
    ($($type:ty: $dtype:ident),*) => {
        $(impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            const SIZE: usize = size_of::<$type>();

            fn decode(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }

            fn encode(self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

elements!(u8: UINT8, u16: UINT16, u32: UINT32, u64: UINT64, i8: INT8, i16: INT16, i32: INT32, i64: INT64, f32: FP32, f64: FP64);

impl Element for bool {
    const DTYPE: Dtype = Dtype::BOOL;
    const SIZE: usize = 1;

    fn decode(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|byte| *byte != 0)
    }

    fn encode(self, to: &mut [u8]) {
        to.fill(u8::from(self));
    }
}

/// Decodes the elements of these bytes. An incomplete last one is left out.
#[must_use]
pub fn decode<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::SIZE).map(T::decode).collect()
}

/// The bytes of these elements.
#[must_use]
pub fn encode<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * T::SIZE];
    for (to, value) in bytes.chunks_exact_mut(T::SIZE).zip(values) {
        value.encode(to);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_little_endian() {
        assert_eq!(encode(&[1i16, -2]), [1, 0, 0xfe, 0xff]);
        assert_eq!(decode::<i16>(&[1, 0, 0xfe, 0xff, 7]), [1, -2]);
        assert_eq!(decode::<f32>(&encode(&[0.5f32, f32::MIN])), [0.5, f32::MIN]);
        assert_eq!(encode(&[true, false]), [1, 0]);
    }

    #[test]
    fn codes_have_the_names_of_the_contract() {
        let all = (1..=14).map(|code| Dtype(code).to_string()).collect::<Vec<_>>();
        assert_eq!(all, NAMES);
        assert_eq!((Dtype(0).to_string(), Dtype(15).to_string()), ("type 0".to_owned(), "type 15".to_owned()));
        let contract = include_str!("../../wit/tensors.wit");
        assert!(NAMES.iter().all(|name| contract.contains(&format!("`{name}`"))));
    }
}
