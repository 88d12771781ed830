//! The calls of wasi-nn.

use sequor_plugin::processor::*;

use super::TYPES;
use super::wasi_nn::wasi::nn::errors::{Error, ErrorCode};
use super::wasi_nn::wasi::nn::graph::load_by_name;
use super::wasi_nn::wasi::nn::tensor::{Tensor as NnTensor, TensorType};

/// The same types in the same order as [`TYPES`].
const NN_TYPES: [TensorType; 7] = [
    TensorType::Fp16,
    TensorType::Fp32,
    TensorType::Fp64,
    TensorType::Bf16,
    TensorType::U8,
    TensorType::I32,
    TensorType::I64,
];

/// Runs a model once.
pub(super) fn compute(model: &str, inputs: &Tensors) -> Result<Tensors, Refusal> {
    let context = load_by_name(model).and_then(|graph| graph.init_execution_context()).map_err(refused)?;
    let inputs = inputs.iter().map(|(name, tensor)| Ok((name.to_owned(), given(tensor)?)));
    let inputs = inputs.collect::<Result<Vec<_>, Refusal>>()?;
    let outputs = context.compute(inputs).map_err(refused)?;
    let mut taken = Tensors::new();
    for (name, tensor) in outputs {
        taken.insert(name, from_nn(&tensor));
    }
    Ok(taken)
}

fn given(tensor: &Tensor) -> Result<NnTensor, Refusal> {
    let wrong =
        || refuse(code::WRONG_REQUEST, format!("{} {:?} is no tensor of wasi-nn", tensor.dtype(), tensor.shape()));
    let of_type = TYPES.iter().zip(NN_TYPES).find(|(dtype, _)| **dtype == tensor.dtype()).map(|(_, of)| of);
    let shape: Option<Vec<u32>> = tensor.shape().iter().map(|n| u32::try_from(*n).ok()).collect();
    let (of_type, shape) = (of_type.ok_or_else(wrong)?, shape.ok_or_else(wrong)?);
    Ok(NnTensor::new(&shape, of_type, &tensor.bytes().into_owned()))
}

fn from_nn(tensor: &NnTensor) -> Tensor {
    let of_type = tensor.ty();
    let dtype = NN_TYPES.iter().zip(TYPES).find(|(of, _)| **of == of_type).map_or(Dtype::UINT8, |(_, dtype)| dtype);
    let shape: Vec<u64> = tensor.dimensions().into_iter().map(u64::from).collect();
    Tensor::from_bytes(dtype, &shape, tensor.data())
}

fn refused(error: Error) -> Refusal {
    let code = match error.code() {
        ErrorCode::InvalidArgument => code::WRONG_REQUEST,
        ErrorCode::TooLarge => code::QUOTA,
        ErrorCode::NotFound => code::NOT_FOUND,
        ErrorCode::Security => code::FORBIDDEN,
        _ => code::NOT_NOW,
    };
    refuse(code, error.data())
}
