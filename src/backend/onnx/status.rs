//! What ONNX Runtime's calls answer, turned into errors.

use ort::sys::{OrtErrorCode, OrtStatusPtr};

use crate::backend::BackendError;

/// Takes a status over from the C API.
pub(super) fn check(status: OrtStatusPtr) -> Result<(), BackendError> {
    // SAFETY: callers hand in what a call of the C API just gave away: null, or a status that is theirs to release.
    unsafe { ort::Error::result_from_status(status) }.map_err(|error| describe(&error))
}

/// As Triton's ONNX Runtime backend words it.
pub(super) fn describe<R>(error: &ort::Error<R>) -> BackendError {
    let code = OrtErrorCode::from(error.code()) as i32;
    BackendError(format!("onnx runtime error {code}: {}", error.message()))
}
