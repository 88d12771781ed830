//! Converts TensorFlow's tensors to ours and back. The bytes of `tensor_content` are not copied.

use bytes::{BufMut, Bytes, BytesMut};
use sequor_core::{DataType, Shape};
use sequor_proto::tensorflow::tensor_shape_proto::Dim;
use sequor_proto::tensorflow::{self, TensorProto, TensorShapeProto};

use super::refusal;
use super::request::{check_count, invalid};
use crate::api::Status;
use crate::error::Invalid;
use crate::model::{BytesElements, ModelHandle, NamedTensor, Tensor};

/// TensorFlow's type of these elements.
pub(super) const fn to_wire(dtype: DataType) -> tensorflow::DataType {
    match dtype {
        DataType::Bool => tensorflow::DataType::DtBool,
        DataType::Uint8 => tensorflow::DataType::DtUint8,
        DataType::Uint16 => tensorflow::DataType::DtUint16,
        DataType::Uint32 => tensorflow::DataType::DtUint32,
        DataType::Uint64 => tensorflow::DataType::DtUint64,
        DataType::Int8 => tensorflow::DataType::DtInt8,
        DataType::Int16 => tensorflow::DataType::DtInt16,
        DataType::Int32 => tensorflow::DataType::DtInt32,
        DataType::Int64 => tensorflow::DataType::DtInt64,
        DataType::Fp16 => tensorflow::DataType::DtHalf,
        DataType::Fp32 => tensorflow::DataType::DtFloat,
        DataType::Fp64 => tensorflow::DataType::DtDouble,
        DataType::Bytes => tensorflow::DataType::DtString,
        DataType::Bf16 => tensorflow::DataType::DtBfloat16,
    }
}

fn from_wire(dtype: i32) -> Option<DataType> {
    DataType::ALL.into_iter().find(|ours| to_wire(*ours) as i32 == dtype)
}

/// Dimensions as TensorFlow writes them.
pub(super) fn shape(dims: &[i64]) -> TensorShapeProto {
    let dim = dims.iter().map(|size| Dim { size: *size, name: String::new() }).collect();
    TensorShapeProto { dim, unknown_rank: false }
}

/// Checks an input against the model, and reads its elements.
pub(super) fn input(
    name: String,
    tensor: TensorProto,
    model: &ModelHandle,
    model_name: &str,
) -> Result<NamedTensor, Status> {
    let dims = tensor.tensor_shape.iter().flat_map(|shape| &shape.dim).map(|dim| dim.size);
    let dims: Vec<i64> = dims.collect();
    if dims.iter().any(|dim| *dim < 0) {
        return Err(invalid(model_name, Invalid::NegativeDim { input: name, got: dims }));
    }
    let Some(dtype) = from_wire(tensor.dtype) else {
        let got = tensorflow::DataType::try_from(tensor.dtype).map_or("unknown", |dtype| dtype.as_str_name());
        return Err(refusal::precision(&name, model.input_type(&name), got));
    };
    let shape = Shape(dims.into_iter().map(i64::cast_unsigned).collect());
    model.check_form(&name, dtype, &shape).map_err(|what| invalid(model_name, what))?;
    let data = match tensor.tensor_content.is_empty() {
        true => list(&name, dtype, &shape, &tensor)?,
        false if dtype == DataType::Bytes => {
            let text = format!("string_val must be used for input '{name}' of type DT_STRING, not tensor_content");
            return Err(refusal::bad_input(text));
        }
        false => tensor.tensor_content,
    };
    Ok(NamedTensor { name, tensor: Tensor { dtype, shape, data } })
}

/// The elements of the list for this type. Their number must match the shape.
fn list(name: &str, dtype: DataType, shape: &Shape, tensor: &TensorProto) -> Result<Bytes, Status> {
    let TensorProto { int_val, half_val, bool_val, .. } = tensor;
    let narrow = || refusal::bad_input(format!("int_val of input '{name}' has values that are no {dtype}"));
    let bits = || refusal::bad_input(format!("half_val of input '{name}' has values of more than 16 bits"));
    let check = |count: usize| check_count(name, dtype, shape, count as u64);
    match dtype {
        DataType::Bool => check(bool_val.len()).map(|()| bool_val.iter().map(|flag| u8::from(*flag)).collect()),
        DataType::Int8 => lay(int_val, check, |n| i8::try_from(n).map(i8::to_le_bytes).map_err(|_| narrow())),
        DataType::Int16 => lay(int_val, check, |n| i16::try_from(n).map(i16::to_le_bytes).map_err(|_| narrow())),
        DataType::Int32 => lay(int_val, check, |n| Ok(n.to_le_bytes())),
        DataType::Uint8 => lay(int_val, check, |n| u8::try_from(n).map(u8::to_le_bytes).map_err(|_| narrow())),
        DataType::Uint16 => lay(int_val, check, |n| u16::try_from(n).map(u16::to_le_bytes).map_err(|_| narrow())),
        DataType::Int64 => lay(&tensor.int64_val, check, |n| Ok(n.to_le_bytes())),
        DataType::Uint32 => lay(&tensor.uint32_val, check, |n| Ok(n.to_le_bytes())),
        DataType::Uint64 => lay(&tensor.uint64_val, check, |n| Ok(n.to_le_bytes())),
        DataType::Fp16 | DataType::Bf16 => {
            lay(half_val, check, |n| u16::try_from(n).map(u16::to_le_bytes).map_err(|_| bits()))
        }
        DataType::Fp32 => lay(&tensor.float_val, check, |x| Ok(x.to_le_bytes())),
        DataType::Fp64 => lay(&tensor.double_val, check, |x| Ok(x.to_le_bytes())),
        DataType::Bytes => {
            check(tensor.string_val.len())?;
            let mut out = BytesMut::with_capacity(tensor.string_val.iter().map(|text| text.len() + 4).sum());
            for text in &tensor.string_val {
                out.put_u32_le(u32::try_from(text.len()).map_err(|_| refusal::bad_input("a text is too long"))?);
                out.put_slice(text);
            }
            Ok(out.freeze())
        }
    }
}

fn lay<T: Copy, const N: usize>(
    values: &[T],
    check: impl Fn(usize) -> Result<(), Status>,
    bytes: impl Fn(T) -> Result<[u8; N], Status>,
) -> Result<Bytes, Status> {
    check(values.len())?;
    let mut out = BytesMut::with_capacity(values.len() * N);
    for value in values {
        out.put_slice(&bytes(*value)?);
    }
    Ok(out.freeze())
}

/// Converts an output to TensorFlow's tensor. Texts are copied; other bytes are not.
pub(super) fn output(tensor: Tensor) -> TensorProto {
    let Tensor { dtype, shape: Shape(dims), data } = tensor;
    let dims: Vec<i64> = dims.into_iter().map(u64::cast_signed).collect();
    let (tensor_content, string_val) = match dtype {
        DataType::Bytes => (Bytes::new(), BytesElements(&data).map(|text| data.slice_ref(text)).collect()),
        _ => (data, Vec::new()),
    };
    TensorProto {
        dtype: to_wire(dtype).into(),
        tensor_shape: Some(shape(&dims)),
        tensor_content,
        string_val,
        ..TensorProto::default()
    }
}

/// The id of a sequence as an output.
pub(super) fn id(id: u64) -> TensorProto {
    TensorProto {
        dtype: tensorflow::DataType::DtUint64.into(),
        tensor_shape: Some(shape(&[1])),
        uint64_val: vec![id],
        ..TensorProto::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dtype: DataType, count: u64, tensor: &TensorProto) -> Result<Vec<u8>, String> {
        list("x", dtype, &Shape::new(&[count]), tensor).map(|data| data.to_vec()).map_err(|status| status.message)
    }

    #[test]
    fn each_data_type_is_read_from_its_own_value_list() {
        let none = TensorProto::default;
        let cases = [
            (DataType::Bool, TensorProto { bool_val: vec![true], ..none() }, vec![1]),
            (DataType::Int8, TensorProto { int_val: vec![-2], ..none() }, vec![254]),
            (DataType::Uint16, TensorProto { int_val: vec![258], ..none() }, vec![2, 1]),
            (DataType::Int32, TensorProto { int_val: vec![-1], ..none() }, vec![255; 4]),
            (DataType::Int64, TensorProto { int64_val: vec![-1], ..none() }, vec![255; 8]),
            (DataType::Uint32, TensorProto { uint32_val: vec![1], ..none() }, vec![1, 0, 0, 0]),
            (DataType::Uint64, TensorProto { uint64_val: vec![1], ..none() }, vec![1, 0, 0, 0, 0, 0, 0, 0]),
            (DataType::Fp16, TensorProto { half_val: vec![0x3c00], ..none() }, vec![0, 0x3c]),
            (DataType::Fp32, TensorProto { float_val: vec![1.0], ..none() }, vec![0, 0, 128, 63]),
            (DataType::Fp64, TensorProto { double_val: vec![1.0], ..none() }, vec![0, 0, 0, 0, 0, 0, 240, 63]),
            (DataType::Bytes, TensorProto { string_val: vec!["ab".into()], ..none() }, vec![2, 0, 0, 0, b'a', b'b']),
        ];
        for (dtype, tensor, want) in cases {
            assert_eq!(read(dtype, 1, &tensor), Ok(want), "{dtype}");
            // A shorter list is refused; its last value is not repeated.
            let refused = read(dtype, 2, &tensor).unwrap_err();
            let text = "Invalid number of values in tensor proto container - Expected: 2; Actual: 1; input name: x";
            assert_eq!(refused, text, "{dtype}");
            let none = read(dtype, 2, &TensorProto::default()).unwrap_err();
            let is_content = none.starts_with("Invalid content size of tensor proto - Expected: ");
            assert_eq!(is_content, !matches!(dtype, DataType::Uint16 | DataType::Fp16 | DataType::Bytes), "{none}");
        }
        assert!(read(DataType::Int8, 1, &TensorProto { int_val: vec![128], ..none() }).is_err());
        assert!(read(DataType::Fp16, 1, &TensorProto { half_val: vec![-1], ..none() }).is_err());
    }

    #[test]
    fn every_data_type_round_trips_through_the_tensorflow_enum() {
        for dtype in DataType::ALL {
            assert_eq!(from_wire(to_wire(dtype).into()), Some(dtype));
        }
        assert_eq!(from_wire(tensorflow::DataType::DtComplex64.into()), None);
    }

    #[test]
    fn the_bytes_of_an_output_are_not_copied() {
        let data = Bytes::from(vec![1, 0, 0, 0]);
        let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, 1]), data: data.clone() };
        let made = output(tensor);
        assert_eq!((made.tensor_content.as_ptr(), made.tensor_shape), (data.as_ptr(), Some(shape(&[1, 1]))));
        let texts = Bytes::from_static(b"\x02\0\0\0ab\0\0\0\0");
        let made = output(Tensor { dtype: DataType::Bytes, shape: Shape::new(&[2]), data: texts });
        assert_eq!((made.string_val, made.tensor_content.len()), (vec![Bytes::from("ab"), Bytes::new()], 0));
    }
}
