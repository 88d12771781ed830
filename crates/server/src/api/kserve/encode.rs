//! Encodes answers as messages of the gRPC service. Tensor data is passed on without a copy.

use std::collections::BTreeMap;

use bytes::Bytes;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_response::InferOutputTensor;
use sequor_proto::model_metadata_response::TensorMetadata;
use sequor_proto::{InferParameter, ModelInferResponse, ModelMetadataResponse, ModelStreamInferResponse};

use super::contents;
use super::response_format::ResponseFormat;
use super::shared_memory::Window;
use super::surface::CallNames;
use crate::api::frames;
use crate::api::order::{INLINE_BYTES, off_task};
use crate::api::refusal::unsent;
use crate::api::status::REASON_PARAMETER;
use crate::api::{Status, triton};
use crate::model::{self, InferAnswer, Metadata, NamedTensor, Parameter};

/// The parameter that marks the last answer of a request on a stream.
const FINAL: &str = "triton_final_response";

/// Whether writing an answer takes too long for a connection's task: as lists, as classes, or into shared memory.
pub(crate) fn is_long(answer: &InferAnswer, form: &ResponseFormat) -> bool {
    let is_handed_on = |output: &&NamedTensor| !form.typed && form.is_plain(&output.name);
    let written = answer.outputs.iter().filter(|output| !is_handed_on(output));
    written.map(|output| output.tensor.data.len()).sum::<usize>() > INLINE_BYTES
}

/// Encodes an answer. A large one is written on another thread.
pub(crate) async fn answer_in_time(answer: InferAnswer, form: ResponseFormat) -> Result<ModelInferResponse, Status> {
    let is_long = is_long(&answer, &form);
    let written = off_task(is_long, move || self::answer(answer, &form)).await;
    written.map_err(|failure| unsent(triton::status(&failure)))?
}

pub(crate) fn answer(answer: InferAnswer, form: &ResponseFormat) -> Result<ModelInferResponse, Status> {
    message(answer, form).map_err(unsent)
}

fn message(answer: InferAnswer, form: &ResponseFormat) -> Result<ModelInferResponse, Status> {
    let mut outputs = Vec::with_capacity(answer.outputs.len());
    let mut raw = Vec::with_capacity(answer.outputs.len());
    // Half floats have no list. If one output needs raw bytes, all outputs use them.
    let typed = form.typed && answer.outputs.iter().all(|output| contents::has_list(output.tensor.dtype));
    for output in answer.outputs {
        let (NamedTensor { name, tensor }, window) = form.place_output(output)?;
        let shape = tensor.shape.0.into_iter().map(u64::cast_signed).collect();
        let datatype = tensor.dtype.name().to_owned();
        let contents = (typed && window.is_none()).then(|| contents::from_bytes(tensor.dtype, &tensor.data));
        let parameters = window.map(region).unwrap_or_default();
        outputs.push(InferOutputTensor { name, datatype, shape, parameters, contents });
        raw.push(tensor.data);
    }
    frames::check_size(raw.iter().map(Bytes::len).sum())?;
    if typed {
        raw.clear();
    }
    let mut parameters: BTreeMap<_, _> =
        answer.parameters.into_iter().map(|(key, value)| (key, parameter(value))).collect();
    if form.mark_final {
        parameters.insert(FINAL.to_owned(), parameter(Parameter::Bool(true)));
    }
    Ok(ModelInferResponse {
        model_name: answer.model,
        model_version: answer.version.to_string(),
        id: answer.id,
        parameters,
        outputs,
        raw_output_contents: raw,
    })
}

/// The parameters of an output that was written to shared memory.
fn region(window: &Window) -> BTreeMap<String, InferParameter> {
    let int = |n: u64| parameter(Parameter::Int(i64::try_from(n).unwrap_or(i64::MAX)));
    let mut said = BTreeMap::from([
        ("shared_memory_region".to_owned(), parameter(Parameter::Text(window.region().name.clone()))),
        ("shared_memory_byte_size".to_owned(), int(window.size)),
    ]);
    if window.offset > 0 {
        said.insert("shared_memory_offset".to_owned(), int(window.offset));
    }
    said
}

/// An error as a reply of a stream.
pub(crate) fn failure(call: &CallNames, status: Status) -> ModelStreamInferResponse {
    let reason = parameter(Parameter::Text(status.reason.to_owned()));
    let answer = ModelInferResponse {
        model_name: call.model.clone(),
        model_version: call.version.clone(),
        id: call.id.clone(),
        parameters: [(REASON_PARAMETER.to_owned(), reason)].into(),
        ..Default::default()
    };
    ModelStreamInferResponse { error_message: status.message, infer_response: Some(answer) }
}

fn parameter(value: Parameter) -> InferParameter {
    let choice = match value {
        Parameter::Bool(b) => ParameterChoice::BoolParam(b),
        Parameter::Int(n) => ParameterChoice::Int64Param(n),
        Parameter::Uint(n) => ParameterChoice::Uint64Param(n),
        Parameter::Double(x) => ParameterChoice::DoubleParam(x),
        Parameter::Text(text) => ParameterChoice::StringParam(text),
    };
    InferParameter { parameter_choice: Some(choice) }
}

pub(crate) fn metadata(metadata: &Metadata) -> ModelMetadataResponse {
    let tensors = |list: &[model::TensorMetadata]| list.iter().map(tensor_metadata).collect();
    ModelMetadataResponse {
        name: metadata.name.clone(),
        versions: metadata.versions.iter().map(u64::to_string).collect(),
        platform: metadata.platform.clone(),
        inputs: tensors(&metadata.inputs),
        outputs: tensors(&metadata.outputs),
    }
}

fn tensor_metadata(tensor: &model::TensorMetadata) -> TensorMetadata {
    TensorMetadata { name: tensor.name.clone(), datatype: tensor.dtype.name().to_owned(), shape: tensor.dims.to_wire() }
}

#[cfg(test)]
mod tests {
    use sequor_core::{DataType, Dims, Shape};

    use super::*;
    use crate::api::order::run_and_see_if_inline;
    use crate::model::Tensor;

    #[test]
    fn outputs_are_described_and_their_data_is_not_copied() {
        let data = Bytes::from(vec![1, 2, 3, 4]);
        let tensor = Tensor { dtype: DataType::Fp32, shape: Shape::new(&[1, 1]), data: data.clone() };
        let answer = InferAnswer {
            model: "acc".to_owned(),
            version: 3,
            id: "r-1".to_owned(),
            outputs: vec![NamedTensor { name: "OUT".to_owned(), tensor }],
            parameters: vec![("sequor_replayed".to_owned(), Parameter::Bool(true))],
            held: None,
        };
        let response = super::answer(answer, &ResponseFormat { mark_final: true, ..ResponseFormat::default() })
            .expect("an answer");
        assert_eq!((response.model_version.as_str(), response.id.as_str()), ("3", "r-1"));
        assert_eq!(response.raw_output_contents[0].as_ptr(), data.as_ptr());
        let output = &response.outputs[0];
        assert_eq!((output.datatype.as_str(), output.shape.as_slice()), ("FP32", [1, 1].as_slice()));
        let replayed = response.parameters["sequor_replayed"].parameter_choice.clone();
        assert_eq!(replayed, Some(ParameterChoice::BoolParam(true)));
        assert_eq!(response.parameters[FINAL].parameter_choice, Some(ParameterChoice::BoolParam(true)));
    }

    #[test]
    fn an_answer_is_typed_if_all_of_it_can_be() {
        let form = ResponseFormat { typed: true, ..ResponseFormat::default() };
        let named = |dtype, data: &'static [u8]| NamedTensor {
            name: "y".to_owned(),
            tensor: Tensor { dtype, shape: Shape::new(&[1, 1]), data: Bytes::from_static(data) },
        };
        let answer = |outputs| {
            let (model, id, parameters) = ("m".to_owned(), String::new(), Vec::new());
            super::answer(InferAnswer { model, version: 1, id, outputs, parameters, held: None }, &form)
                .expect("an answer")
        };
        let int = || named(DataType::Int32, &[254, 255, 255, 255]);
        let typed = answer(vec![int()]);
        assert_eq!(typed.outputs[0].contents.clone().expect("a list").int_contents, [-2]);
        assert!(typed.raw_output_contents.is_empty());
        let raw = answer(vec![int(), named(DataType::Fp16, &[0, 0])]);
        assert!(raw.outputs.iter().all(|output| output.contents.is_none()));
        assert_eq!(raw.raw_output_contents.len(), 2);
    }

    #[test]
    fn large_lists_are_written_on_another_thread() {
        let answer = || {
            let data = Bytes::from(vec![7; INLINE_BYTES + 4]);
            let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, data.len() as u64 / 4]), data };
            let outputs = vec![NamedTensor { name: "y".to_owned(), tensor }];
            let (model, id) = ("m".to_owned(), String::new());
            InferAnswer { model, version: 1, id, outputs, parameters: Vec::new(), held: None }
        };
        for (typed, here) in [(false, true), (true, false)] {
            let form = ResponseFormat { typed, ..ResponseFormat::default() };
            let (written, is_here) = run_and_see_if_inline(answer_in_time(answer(), form));
            assert!(written.is_ok() && is_here == here);
        }
    }

    #[test]
    fn open_dimensions_are_minus_one() {
        let dims = Dims::from_wire(&[-1, 4]);
        let input = model::TensorMetadata { name: "x".to_owned(), dtype: DataType::Int64, dims };
        let of = Metadata {
            name: "m".to_owned(),
            versions: vec![1, 3],
            platform: "p".to_owned(),
            inputs: vec![input],
            outputs: vec![],
        };
        let said = metadata(&of);
        assert_eq!(said.versions, ["1", "3"]);
        assert_eq!((said.inputs[0].datatype.as_str(), said.inputs[0].shape.as_slice()), ("INT64", [-1, 4].as_slice()));
    }
}
