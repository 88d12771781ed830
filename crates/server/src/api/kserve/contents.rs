//! Typed tensor data of a gRPC request, for clients that do not send it raw.

use bytes::{BufMut, Bytes, BytesMut};
use sequor_core::DataType;
use sequor_proto::InferTensorContents;

use super::fault::DecodeError;
use crate::model::BytesElements;

/// Converts the list of the tensor's type to bytes. Any other list is refused. Values are never truncated.
pub(crate) fn to_bytes(
    list: &InferTensorContents,
    dtype: DataType,
    input: &str,
    model: &str,
) -> Result<Bytes, DecodeError> {
    check_lists(list, dtype).map_err(|why| {
        DecodeError::malformed(format!(
            "unexpected explicit tensor data for input tensor '{input}' for model '{model}'{why}"
        ))
    })?;
    let narrow =
        |to: &str| DecodeError::malformed(format!("explicit tensor data for input '{input}' does not fit {to}"));
    let narrowed = || narrow(dtype.name());
    match dtype {
        DataType::Bool => Ok(list.bool_contents.iter().map(|b| u8::from(*b)).collect()),
        DataType::Int8 => lay(&list.int_contents, |n| i8::try_from(n).map(i8::to_le_bytes).map_err(|_| narrowed())),
        DataType::Int16 => lay(&list.int_contents, |n| i16::try_from(n).map(i16::to_le_bytes).map_err(|_| narrowed())),
        DataType::Int32 => lay(&list.int_contents, |n| Ok(n.to_le_bytes())),
        DataType::Int64 => lay(&list.int64_contents, |n| Ok(n.to_le_bytes())),
        DataType::Uint8 => lay(&list.uint_contents, |n| u8::try_from(n).map(u8::to_le_bytes).map_err(|_| narrowed())),
        DataType::Uint16 => {
            lay(&list.uint_contents, |n| u16::try_from(n).map(u16::to_le_bytes).map_err(|_| narrowed()))
        }
        DataType::Uint32 => lay(&list.uint_contents, |n| Ok(n.to_le_bytes())),
        DataType::Uint64 => lay(&list.uint64_contents, |n| Ok(n.to_le_bytes())),
        DataType::Fp32 => lay(&list.fp32_contents, |x| Ok(x.to_le_bytes())),
        DataType::Fp64 => lay(&list.fp64_contents, |x| Ok(x.to_le_bytes())),
        DataType::Bytes => strings(&list.bytes_contents).ok_or_else(|| narrow("4-byte lengths")),
        // These types have no list, and the check found all lists empty.
        DataType::Fp16 | DataType::Bf16 => Ok(Bytes::new()),
    }
}

fn lay<T: Copy, const N: usize>(
    values: &[T],
    bytes: impl Fn(T) -> Result<[u8; N], DecodeError>,
) -> Result<Bytes, DecodeError> {
    let mut out = BytesMut::with_capacity(values.len() * N);
    for value in values {
        out.put_slice(&bytes(*value)?);
    }
    Ok(out.freeze())
}

fn strings(values: &[Vec<u8>]) -> Option<Bytes> {
    let mut out = BytesMut::with_capacity(values.iter().map(|v| v.len() + 4).sum());
    for value in values {
        out.put_u32_le(u32::try_from(value.len()).ok()?);
        out.put_slice(value);
    }
    Some(out.freeze())
}

/// Whether tensors of this type can be sent as a list.
pub(crate) fn has_list(dtype: DataType) -> bool {
    !matches!(dtype, DataType::Fp16 | DataType::Bf16)
}

/// Bytes of memory that the lists occupy.
pub(crate) fn size(list: &InferTensorContents) -> usize {
    let InferTensorContents {
        bool_contents,
        int_contents,
        int64_contents,
        uint_contents,
        uint64_contents,
        fp32_contents,
        fp64_contents,
        bytes_contents,
    } = list;
    let texts: usize = bytes_contents.iter().map(Vec::len).sum();
    size_of_val(bool_contents.as_slice())
        + size_of_val(int_contents.as_slice())
        + size_of_val(int64_contents.as_slice())
        + size_of_val(uint_contents.as_slice())
        + size_of_val(uint64_contents.as_slice())
        + size_of_val(fp32_contents.as_slice())
        + size_of_val(fp64_contents.as_slice())
        + size_of_val(bytes_contents.as_slice())
        + texts
}

/// Converts a tensor to the list of its type.
pub(crate) fn from_bytes(dtype: DataType, data: &[u8]) -> InferTensorContents {
    let mut list = InferTensorContents::default();
    match dtype {
        DataType::Bool => list.bool_contents = data.iter().map(|b| *b != 0).collect(),
        DataType::Int8 => list.int_contents = each(data, |b| i8::from_le_bytes(b).into()),
        DataType::Int16 => list.int_contents = each(data, |b| i16::from_le_bytes(b).into()),
        DataType::Int32 => list.int_contents = each(data, i32::from_le_bytes),
        DataType::Int64 => list.int64_contents = each(data, i64::from_le_bytes),
        DataType::Uint8 => list.uint_contents = each(data, |b| u8::from_le_bytes(b).into()),
        DataType::Uint16 => list.uint_contents = each(data, |b| u16::from_le_bytes(b).into()),
        DataType::Uint32 => list.uint_contents = each(data, u32::from_le_bytes),
        DataType::Uint64 => list.uint64_contents = each(data, u64::from_le_bytes),
        DataType::Fp32 => list.fp32_contents = each(data, f32::from_le_bytes),
        DataType::Fp64 => list.fp64_contents = each(data, f64::from_le_bytes),
        DataType::Bytes => list.bytes_contents = BytesElements(data).map(<[u8]>::to_vec).collect(),
        DataType::Fp16 | DataType::Bf16 => {}
    }
    list
}

fn each<const N: usize, T>(data: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks::<N>().0.iter().map(|bytes| read(*bytes)).collect()
}

/// Checks that only the list of the type has elements, with the order and the messages of Triton.
fn check_lists(list: &InferTensorContents, dtype: DataType) -> Result<(), String> {
    use DataType::{Bool, Bytes, Fp32, Fp64, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64};
    // Two of the lists serve three types each.
    let int = if matches!(dtype, Int8 | Int16) { dtype } else { Int32 };
    let uint = if matches!(dtype, Uint8 | Uint16) { dtype } else { Uint32 };
    let lists = [
        (Bool, list.bool_contents.is_empty()),
        (int, list.int_contents.is_empty()),
        (Int64, list.int64_contents.is_empty()),
        (uint, list.uint_contents.is_empty()),
        (Uint64, list.uint64_contents.is_empty()),
        (Fp32, list.fp32_contents.is_empty()),
        (Fp64, list.fp64_contents.is_empty()),
        (Bytes, list.bytes_contents.is_empty()),
    ];
    let mut is_supplied = false;
    for (of, _) in lists.iter().filter(|(_, is_empty)| !is_empty) {
        if is_supplied {
            return Err(", binary data was already supplied.".to_owned());
        }
        if *of != dtype {
            return Err(format!(" of type '{of}', expected datatype '{dtype}'"));
        }
        is_supplied = true;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(list: &InferTensorContents, dtype: DataType) -> Result<Vec<u8>, DecodeError> {
        to_bytes(list, dtype, "x", "m").map(|b| b.to_vec())
    }

    #[test]
    fn each_type_reads_its_own_list() {
        let all = [
            (
                DataType::Bool,
                InferTensorContents { bool_contents: vec![true, false], ..Default::default() },
                vec![1, 0],
            ),
            (DataType::Int8, InferTensorContents { int_contents: vec![-1], ..Default::default() }, vec![255]),
            (DataType::Int16, InferTensorContents { int_contents: vec![-2], ..Default::default() }, vec![254, 255]),
            (DataType::Uint16, InferTensorContents { uint_contents: vec![258], ..Default::default() }, vec![2, 1]),
            (
                DataType::Fp32,
                InferTensorContents { fp32_contents: vec![1.0], ..Default::default() },
                vec![0, 0, 128, 63],
            ),
            (
                DataType::Bytes,
                InferTensorContents { bytes_contents: vec![b"ab".into()], ..Default::default() },
                vec![2, 0, 0, 0, b'a', b'b'],
            ),
        ];
        for (dtype, list, want) in all {
            assert_eq!(bytes(&list, dtype), Ok(want.clone()), "{dtype}");
            assert_eq!(from_bytes(dtype, &want), list, "{dtype}");
        }
    }

    #[test]
    fn a_list_of_another_type_is_refused() {
        let floats = InferTensorContents { fp32_contents: vec![1.0], ..Default::default() };
        for dtype in DataType::ALL.into_iter().filter(|t| *t != DataType::Fp32) {
            assert!(bytes(&floats, dtype).is_err(), "{dtype}");
        }
        let both = InferTensorContents { int_contents: vec![1], ..floats };
        assert!(bytes(&both, DataType::Fp32).is_err());
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let wide = InferTensorContents { int_contents: vec![128], ..Default::default() };
        assert!(bytes(&wide, DataType::Int8).is_err());
        assert!(bytes(&wide, DataType::Int16).is_ok());
    }
}
