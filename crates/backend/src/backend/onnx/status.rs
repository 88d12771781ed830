//! Converts the statuses of ONNX Runtime's calls to errors.

use ort::sys::{OrtErrorCode, OrtStatusPtr};

use crate::backend::BackendError;

/// Takes ownership of a status of the C API and checks it.
pub(super) fn check(status: OrtStatusPtr) -> Result<(), BackendError> {
    // SAFETY: callers pass the result of a call of the C API: null, or a status that they own.
    unsafe { ort::Error::result_from_status(status) }.map_err(|error| describe(&error))
}

/// Formats an error like Triton's ONNX Runtime backend.
pub(super) fn describe<R>(error: &ort::Error<R>) -> BackendError {
    let code = OrtErrorCode::from(error.code()) as i32;
    // What our allocator throws, and ONNX Runtime's own ones too.
    let advice = match error.message().contains("std::bad_alloc") {
        true => ": the tensors of the run need more memory than limits.tensors or the machine has",
        false => "",
    };
    BackendError(format!("onnx runtime error {code}: {}{advice}", error.message()))
}
