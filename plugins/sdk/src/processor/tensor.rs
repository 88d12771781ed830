//! Tensors: small ones as bytes, large ones as handles of tensors that the server keeps.

use std::borrow::Cow;
use std::fmt;

use super::dtype::{Dtype, Element, decode, encode};
use super::half;
use super::held::{Held, HeldBuffer};
use super::refusal::{Refusal, code, refuse};

/// A tensor. It is row-major, little-endian and without padding.
///
/// The server passes a tensor of up to `by-value` bytes (plugin.toml) as bytes and a larger one as a handle. [`Tensor::bytes`] and
/// [`Tensor::values`] copy a handle's bytes into the plug-in. [`Tensor::read`] and [`Tensor::part`] do not need all of them. Passing a
/// tensor on copies nothing.
#[derive(Debug)]
pub struct Tensor(Content);

#[derive(Debug)]
pub(super) enum Content {
    Flat { dtype: Dtype, shape: Vec<u64>, bytes: Vec<u8> },
    Held(Held),
}

impl Tensor {
    /// A tensor of these values. Panics if the shape has a different number of elements.
    #[must_use]
    pub fn new<T: Element>(shape: &[u64], values: &[T]) -> Tensor {
        let elements: u64 = shape.iter().product();
        assert!(elements == values.len() as u64, "{} values do not fill the shape {shape:?}", values.len());
        Tensor::from_bytes(T::DTYPE, shape, encode(values))
    }

    /// A tensor without elements: a dimension of the shape is 0.
    #[must_use]
    pub fn empty(dtype: Dtype, shape: &[u64]) -> Tensor {
        Tensor::from_bytes(dtype, shape, Vec::new())
    }

    /// A tensor of these bytes, in the contract's layout.
    #[must_use]
    pub fn from_bytes(dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> Tensor {
        Tensor(Content::Flat { dtype, shape: shape.to_vec(), bytes })
    }

    /// A tensor of type `FP32`, `FP16` or `BF16` with these values. Panics for any other type, or if the shape has a different number of
    /// elements.
    #[must_use]
    pub fn of_floats(dtype: Dtype, shape: &[u64], values: &[f32]) -> Tensor {
        let elements: u64 = shape.iter().product();
        assert!(elements == values.len() as u64, "{} values do not fill the shape {shape:?}", values.len());
        let halves = |half: fn(f32) -> u16| encode(&values.iter().map(|value| half(*value)).collect::<Vec<u16>>());
        let bytes = match dtype {
            Dtype::FP32 => encode(values),
            Dtype::FP16 => halves(half::to_fp16),
            Dtype::BF16 => halves(half::to_bf16),
            other => panic!("{other} is no type of floats"),
        };
        Tensor::from_bytes(dtype, shape, bytes)
    }

    /// A tensor of type `BYTES` with these texts.
    #[must_use]
    pub fn texts<T: AsRef<[u8]>>(shape: &[u64], texts: &[T]) -> Tensor {
        let mut bytes = Vec::new();
        for text in texts {
            let text = text.as_ref();
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text);
        }
        Tensor::from_bytes(Dtype::BYTES, shape, bytes)
    }

    #[must_use]
    pub fn dtype(&self) -> Dtype {
        match &self.0 {
            Content::Flat { dtype, .. } => *dtype,
            Content::Held(held) => held.dtype(),
        }
    }

    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        match &self.0 {
            Content::Flat { shape, .. } => shape.clone(),
            Content::Held(held) => held.shape(),
        }
    }

    /// The number of bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.0 {
            Content::Flat { bytes, .. } => bytes.len() as u64,
            Content::Held(held) => held.size(),
        }
    }

    /// Whether this is a handle of a tensor that the server keeps.
    #[must_use]
    pub fn is_handle(&self) -> bool {
        matches!(self.0, Content::Held(_))
    }

    /// All bytes. A handle's bytes are copied.
    #[must_use]
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.0 {
            Content::Flat { bytes, .. } => Cow::Borrowed(bytes),
            Content::Held(held) => Cow::Owned(held.read(0, held.size())),
        }
    }

    /// `len` bytes from byte `at` on. Traps unless all of them are within the tensor.
    #[must_use]
    pub fn read(&self, at: u64, len: u64) -> Vec<u8> {
        match &self.0 {
            Content::Flat { bytes, .. } => bytes[at as usize..][..len as usize].to_vec(),
            Content::Held(held) => held.read(at, len),
        }
    }

    /// A tensor of the same type with another shape, made of the `len` bytes from byte `at` on. A handle's bytes are not copied.
    #[must_use]
    pub fn part(&self, at: u64, len: u64, shape: &[u64]) -> Tensor {
        match &self.0 {
            Content::Flat { dtype, .. } => Tensor::from_bytes(*dtype, shape, self.read(at, len)),
            Content::Held(held) => Tensor(Content::Held(held.part(at, len, shape))),
        }
    }

    /// The same bytes with another type and another shape, for example for a part of a file. A handle's bytes are not copied.
    #[must_use]
    pub fn cast(&self, dtype: Dtype, shape: &[u64]) -> Tensor {
        match &self.0 {
            Content::Flat { bytes, .. } => Tensor::from_bytes(dtype, shape, bytes.clone()),
            Content::Held(held) => Tensor(Content::Held(held.cast(dtype, shape))),
        }
    }

    /// The elements as values of a Rust type. If the tensor has another type, the refusal names both.
    pub fn values<T: Element>(&self) -> Result<Vec<T>, Refusal> {
        let dtype = self.dtype();
        if dtype == T::DTYPE {
            return Ok(decode(&self.bytes()));
        }
        Err(refuse(code::WRONG_REQUEST, format!("a tensor is {dtype}, not {}", T::DTYPE)))
    }

    /// The elements of a tensor of type `FP32`, `FP16` or `BF16`. If the tensor has another type, the refusal names it.
    pub fn floats(&self) -> Result<Vec<f32>, Refusal> {
        let halves = |float: fn(u16) -> f32| decode::<u16>(&self.bytes()).into_iter().map(float).collect();
        match self.dtype() {
            Dtype::FP16 => Ok(halves(half::from_fp16)),
            Dtype::BF16 => Ok(halves(half::from_bf16)),
            _ => self.values(),
        }
    }

    /// The elements of a tensor of type `BYTES`.
    pub fn elements(&self) -> Result<Vec<Vec<u8>>, Refusal> {
        let wrong = || refuse(code::WRONG_REQUEST, "a tensor is no list of BYTES");
        if self.dtype() != Dtype::BYTES {
            return Err(wrong());
        }
        let (bytes, mut all) = (self.bytes(), Vec::new());
        let mut rest = &*bytes;
        while let Some((len, behind)) = rest.split_first_chunk::<4>() {
            let (element, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(wrong)?;
            all.push(element.to_vec());
            rest = behind;
        }
        if rest.is_empty() { Ok(all) } else { Err(wrong()) }
    }

    pub(crate) fn of_held(held: Held) -> Tensor {
        Tensor(Content::Held(held))
    }

    #[cfg(target_arch = "wasm32")]
    pub(super) fn into_content(self) -> Content {
        self.0
    }
}

/// Tensors are equal if type, shape and bytes are equal, even if only one is a handle.
impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype() == other.dtype() && self.shape() == other.shape() && self.bytes() == other.bytes()
    }
}

/// Clones the content. For a handle the server keeps only one copy.
impl Clone for Tensor {
    fn clone(&self) -> Tensor {
        match &self.0 {
            Content::Flat { dtype, shape, bytes } => Tensor::from_bytes(*dtype, shape, bytes.clone()),
            Content::Held(held) => Tensor(Content::Held(held.part(0, held.size(), &held.shape()))),
        }
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype(), self.shape())
    }
}

/// A large tensor that the plug-in fills part by part. The server keeps its bytes, which begin as zeros.
#[derive(Debug)]
pub struct Buffer(HeldBuffer);

impl Buffer {
    /// An empty buffer. `size` is the number of bytes. Unless the type is `BYTES`, it must match type and shape.
    #[must_use]
    pub fn new(dtype: Dtype, shape: &[u64], size: u64) -> Buffer {
        Buffer(HeldBuffer::new(dtype, shape, size))
    }

    /// Writes bytes from byte `at` on.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.0.write(at, bytes);
    }

    /// Copies `len` bytes of a tensor, from its byte `start`, to byte `at`. A handle's bytes do not pass through the plug-in.
    pub fn copy(&mut self, at: u64, source: &Tensor, start: u64, len: u64) {
        match &source.0 {
            Content::Flat { .. } => self.0.write(at, &source.read(start, len)),
            Content::Held(held) => self.0.copy(at, held, start, len),
        }
    }

    /// The buffer as a tensor. Nothing is copied.
    #[must_use]
    pub fn finish(self) -> Tensor {
        Tensor(Content::Held(self.0.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_can_be_read_only_as_its_own_type() {
        let tensor = Tensor::new(&[2, 2], &[1i16, 2, 3, 4]);
        assert_eq!((tensor.dtype(), tensor.shape(), tensor.size()), (Dtype::INT16, vec![2, 2], 8));
        assert_eq!(tensor.values::<i16>().unwrap(), [1, 2, 3, 4]);
        assert_eq!(tensor.values::<f32>().unwrap_err().text, "a tensor is INT16, not FP32");
        assert_eq!(tensor.part(4, 4, &[2]).values::<i16>().unwrap(), [3, 4]);
        assert!(tensor.elements().is_err());
    }

    #[test]
    fn each_text_element_has_a_length_prefix() {
        let tensor = Tensor::texts(&[2], &["ab", ""]);
        assert_eq!(tensor.bytes().as_ref(), [2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]);
        assert_eq!(tensor.elements().unwrap(), [b"ab".to_vec(), Vec::new()]);
        assert!(Tensor::from_bytes(Dtype::BYTES, &[1], vec![9, 0, 0, 0, 1]).elements().is_err());
    }

    #[test]
    fn a_handle_is_read_in_parts_and_passed_on_uncopied() {
        let mut buffer = Buffer::new(Dtype::UINT8, &[6], 6);
        buffer.write(0, b"abc");
        buffer.copy(3, &Tensor::new(&[3], b"xyz"), 1, 2);
        let tensor = buffer.finish();
        assert!(tensor.is_handle());
        assert_eq!(tensor.bytes().as_ref(), b"abcyz\0");
        let part = tensor.part(1, 4, &[2, 2]);
        assert_eq!((part.is_handle(), part.read(2, 2)), (true, b"yz".to_vec()));
        assert_eq!(part, Tensor::new(&[2, 2], b"bcyz"));
        assert_eq!(part.clone(), part);
        let cast = part.cast(Dtype::UINT16, &[2]);
        assert_eq!(
            (cast.is_handle(), cast.values::<u16>().unwrap()),
            (true, vec![u16::from_le_bytes(*b"bc"), u16::from_le_bytes(*b"yz")])
        );
    }
}
