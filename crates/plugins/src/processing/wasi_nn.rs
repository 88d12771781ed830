//! wasi-nn for guests that use it. A graph is a model that the plug-in may call. The calls are the same as those of the `models` interface.

use bytes::Bytes;
use sequor_core::{DataType, Shape};
use sequor_wasm::host::{HostState, cut};
use wasmtime::Result;
use wasmtime::component::Resource;

use super::graphs::{GraphContext, GraphError, NamedGraph};
use super::models;
use super::outgoing::{InferFailure, code};
use super::tensors::HeldTensors;
use super::wasi_nn_contract::errors::{self, ErrorCode};
use super::wasi_nn_contract::graph::{self, ExecutionTarget, GraphEncoding};
use super::wasi_nn_contract::inference;
use super::wasi_nn_contract::tensor::{self, TensorType};
use crate::tensor::{NamedTensor, Tensor};

/// The wasi-nn code of an error.
fn code_of(error: &GraphError) -> ErrorCode {
    let failure = match error {
        GraphError::Call(failure) => failure,
        GraphError::Unsupported(_) => return ErrorCode::UnsupportedOperation,
    };
    match failure.code {
        code::INVALID | code::PRECONDITION => ErrorCode::InvalidArgument,
        code::UNAVAILABLE | code::FAILED => ErrorCode::RuntimeError,
        code::DENIED => ErrorCode::Security,
        code::ABSENT => ErrorCode::NotFound,
        code::QUOTA => ErrorCode::TooLarge,
        code::DEADLINE => ErrorCode::Timeout,
        _ => ErrorCode::Unknown,
    }
}

fn dtype_of(ty: TensorType) -> DataType {
    match ty {
        TensorType::Fp16 => DataType::Fp16,
        TensorType::Fp32 => DataType::Fp32,
        TensorType::Fp64 => DataType::Fp64,
        TensorType::Bf16 => DataType::Bf16,
        TensorType::U8 => DataType::Uint8,
        TensorType::I32 => DataType::Int32,
        TensorType::I64 => DataType::Int64,
    }
}

fn type_of(dtype: DataType) -> Option<TensorType> {
    Some(match dtype {
        DataType::Fp16 => TensorType::Fp16,
        DataType::Fp32 => TensorType::Fp32,
        DataType::Fp64 => TensorType::Fp64,
        DataType::Bf16 => TensorType::Bf16,
        DataType::Uint8 => TensorType::U8,
        DataType::Int32 => TensorType::I32,
        DataType::Int64 => TensorType::I64,
        _ => return None,
    })
}

/// The held tensors of a guest. The error ends a call that takes too long.
fn held(state: &mut HostState) -> Result<&mut HeldTensors> {
    state.check_time()?;
    state.world_data()
}

fn refuse<T>(state: &mut HostState, error: GraphError) -> Result<Result<T, Resource<GraphError>>> {
    let error = match error {
        GraphError::Call(failure) => GraphError::Call(InferFailure { text: cut(failure.text), ..failure }),
        GraphError::Unsupported(text) => GraphError::Unsupported(cut(text)),
    };
    Ok(Err(held(state)?.insert(error)?))
}

impl tensor::Host for HostState {}

impl tensor::HostTensor for HostState {
    fn new(&mut self, dimensions: Vec<u32>, ty: TensorType, data: Vec<u8>) -> Result<Resource<Tensor>> {
        let shape = Shape(dimensions.into_iter().map(u64::from).collect());
        held(self)?.give_made(Tensor { dtype: dtype_of(ty), shape, data: Bytes::from(data) })
    }

    fn dimensions(&mut self, this: Resource<Tensor>) -> Result<Vec<u32>> {
        let shape = &held(self)?.get(&this)?.shape;
        Ok(shape.0.iter().map(|n| u32::try_from(*n).unwrap_or(u32::MAX)).collect())
    }

    fn ty(&mut self, this: Resource<Tensor>) -> Result<TensorType> {
        let dtype = held(self)?.get(&this)?.dtype;
        type_of(dtype).ok_or_else(|| wasmtime::Error::msg(format!("{dtype} is no type of wasi-nn")))
    }

    fn data(&mut self, this: Resource<Tensor>) -> Result<Vec<u8>> {
        Ok(held(self)?.get(&this)?.data.to_vec())
    }

    fn drop(&mut self, this: Resource<Tensor>) -> Result<()> {
        self.world_data::<HeldTensors>()?.take(this).map(drop)
    }
}

impl graph::Host for HostState {
    fn load(
        &mut self,
        _: Vec<Vec<u8>>,
        _: GraphEncoding,
        _: ExecutionTarget,
    ) -> Result<Result<Resource<NamedGraph>, Resource<GraphError>>> {
        let text = "the server's repository decides which models there are; use load-by-name".to_owned();
        refuse(self, GraphError::Unsupported(text))
    }

    fn load_by_name(&mut self, name: String) -> Result<Result<Resource<NamedGraph>, Resource<GraphError>>> {
        let held = held(self)?;
        // `configure` may not call models. `compute` checks the right again.
        let checked = held.calls.as_ref().map_or(Ok(()), |calls| calls.check(&name));
        match checked {
            Ok(()) => Ok(Ok(held.insert(NamedGraph { model: cut(name) })?)),
            Err(failure) => refuse(self, GraphError::Call(failure)),
        }
    }
}

impl graph::HostGraph for HostState {
    fn init_execution_context(
        &mut self,
        this: Resource<NamedGraph>,
    ) -> Result<Result<Resource<GraphContext>, Resource<GraphError>>> {
        let held = held(self)?;
        let model = held.get(&this)?.model.clone();
        Ok(Ok(held.insert(GraphContext { model })?))
    }

    fn drop(&mut self, this: Resource<NamedGraph>) -> Result<()> {
        self.world_data::<HeldTensors>()?.remove(this).map(drop)
    }
}

impl inference::Host for HostState {}

impl inference::HostGraphExecutionContext for HostState {
    async fn compute(
        &mut self,
        this: Resource<GraphContext>,
        inputs: Vec<(String, Resource<Tensor>)>,
    ) -> Result<Result<Vec<(String, Resource<Tensor>)>, Resource<GraphError>>> {
        let held = held(self)?;
        let model = held.get(&this)?.model.clone();
        let taken = inputs.into_iter().map(|(name, tensor)| Ok(NamedTensor { name, tensor: held.take(tensor)? }));
        let inputs = taken.collect::<Result<Vec<_>>>()?;
        let outputs = match models::call(self, &model, inputs).await? {
            Ok(outputs) => outputs,
            Err(failure) => return refuse(self, GraphError::Call(failure)),
        };
        if let Some(named) = outputs.iter().find(|named| type_of(named.tensor.dtype).is_none()) {
            let text = format!("output \"{}\" is {}, which wasi-nn has no type for", named.name, named.tensor.dtype);
            return refuse(self, GraphError::Unsupported(text));
        }
        let held = self.world_data::<HeldTensors>()?;
        let given = outputs.into_iter().map(|NamedTensor { name, tensor }| Ok((name, held.give_answer(tensor)?)));
        Ok(Ok(given.collect::<Result<_>>()?))
    }

    fn drop(&mut self, this: Resource<GraphContext>) -> Result<()> {
        self.world_data::<HeldTensors>()?.remove(this).map(drop)
    }
}

impl errors::Host for HostState {}

impl errors::HostError for HostState {
    fn code(&mut self, this: Resource<GraphError>) -> Result<ErrorCode> {
        Ok(code_of(held(self)?.get(&this)?))
    }

    fn data(&mut self, this: Resource<GraphError>) -> Result<String> {
        Ok(match held(self)?.get(&this)? {
            GraphError::Call(failure) => failure.text.clone(),
            GraphError::Unsupported(text) => text.clone(),
        })
    }

    fn drop(&mut self, this: Resource<GraphError>) -> Result<()> {
        self.world_data::<HeldTensors>()?.remove(this).map(drop)
    }
}
