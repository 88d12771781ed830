//! Maps element types to those of ONNX Runtime. Types that no protocol carries are missing.

use ort::sys::ONNXTensorElementDataType as Onnx;
use sequor_core::DataType;

pub(super) const fn to_onnx(dtype: DataType) -> Onnx {
    match dtype {
        DataType::Bool => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        DataType::Uint8 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DataType::Uint16 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        DataType::Uint32 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        DataType::Uint64 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        DataType::Int8 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DataType::Int16 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        DataType::Int32 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DataType::Int64 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DataType::Fp16 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DataType::Fp32 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        DataType::Fp64 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        DataType::Bytes => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
        DataType::Bf16 => Onnx::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
    }
}

/// The type of an ONNX element number. The number stays an integer, because a newer runtime may have more types.
pub(super) fn from_onnx(element: i32) -> Option<DataType> {
    DataType::ALL.into_iter().find(|dtype| to_onnx(*dtype) as i32 == element)
}

/// The name in the ONNX format of a type that Sequor does not have.
pub(super) const fn foreign_name(element: i32) -> &'static str {
    match element {
        0 => "UNDEFINED",
        14 => "COMPLEX64",
        15 => "COMPLEX128",
        17 => "FLOAT8E4M3FN",
        18 => "FLOAT8E4M3FNUZ",
        19 => "FLOAT8E5M2",
        20 => "FLOAT8E5M2FNUZ",
        21 => "UINT4",
        22 => "INT4",
        23 => "FLOAT4E2M1",
        _ => "of a kind unknown here",
    }
}
