//! Makes an inference request from a decoded body, for both protocols.

use sequor_core::{DataType, Dialect, Shape};

use super::refusal;
use crate::api::Status;
use crate::error::{Failure, Invalid};
use crate::model::{InferRequest, ModelHandle, NamedTensor, SequenceStep};

/// The parts of a request of a client.
#[derive(Debug)]
pub(crate) struct PredictRequestParts {
    pub(crate) model: String,
    /// The version as the client wrote it. Empty means that the server chooses.
    pub(crate) version: String,
    pub(crate) sequence: SequenceStep,
    pub(crate) inputs: Vec<NamedTensor>,
    pub(crate) outputs: Vec<String>,
}

impl PredictRequestParts {
    pub(super) fn into_request(self) -> InferRequest {
        let PredictRequestParts { model, version, sequence, inputs, outputs } = self;
        InferRequest {
            model,
            version,
            id: String::new(),
            sequence,
            priority: 0,
            timeout: None,
            inputs,
            outputs,
            parameters: Vec::new(),
            dialect: Dialect::OVMS,
        }
    }
}

/// The refusal of a request that does not fit the model.
pub(super) fn invalid(model: &str, what: Invalid) -> Status {
    refusal::status(&Failure::Invalid { model: model.to_owned(), id: String::new(), what: Box::new(what) })
}

/// Checks the names of the inputs in OVMS's order: their number first.
pub(super) fn check_names(model: &ModelHandle, name: &str, inputs: &[&str], step: &SequenceStep) -> Result<(), Status> {
    // An END may have no inputs. The model decides whether it accepts that.
    if inputs.is_empty() && step.end {
        return Ok(());
    }
    model.check_inputs(inputs).map_err(|what| match what {
        Invalid::UnknownInput { input, .. } => {
            let missing = model.required_inputs().filter(|required| !inputs.contains(required)).min();
            refusal::unknown_input(name, &input, missing)
        }
        what => invalid(name, what),
    })
}

/// Checks the number of elements in a list against the tensor's shape.
pub(super) fn check_count(input: &str, dtype: DataType, shape: &Shape, got: u64) -> Result<(), Status> {
    match (shape.elements(), dtype) {
        (Some(want), _) if want == got => Ok(()),
        (want, DataType::Uint16 | DataType::Fp16 | DataType::Bf16 | DataType::Bytes) => {
            Err(refusal::value_count(input, want, got))
        }
        // OVMS expects the other types in `tensor_content`.
        (want, dtype) if got == 0 => {
            let size = dtype.size().unwrap_or(0) as u64;
            Err(refusal::content_size(input, want.and_then(|want| want.checked_mul(size)), 0))
        }
        (want, _) => Err(refusal::value_count(input, want, got)),
    }
}
