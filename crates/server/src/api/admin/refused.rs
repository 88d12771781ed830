//! Codes and reasons of refused operations.

use crate::api::{Code, Status, refusal, triton};
use crate::error::Failure;
use crate::scheduling::report::PluginError;

pub(super) fn status(error: PluginError) -> Status {
    match error {
        PluginError::Absent(text) => Status::new(Code::NotFound, "absent", text),
        PluginError::Invalid(text) => Status::new(Code::InvalidArgument, "invalid", text),
        PluginError::Conflict(text) => Status::new(Code::Conflict, "conflict", text),
        PluginError::Denied(text) => denied(text),
        PluginError::Unavailable(text) => {
            Status::new(Code::Unavailable, "unavailable", text).retry_after(refusal::RETRY_AFTER)
        }
        PluginError::Internal(text) => Status::new(Code::Internal, "internal", text),
    }
}

/// The refusal of a model that an operator names, in the words that clients get.
pub(super) fn failure(failure: &Failure) -> Status {
    triton::status(failure)
}

pub(super) fn denied(text: impl Into<String>) -> Status {
    Status::new(Code::Denied, "denied", text)
}

pub(super) fn bad_input(text: impl Into<String>) -> Status {
    Status::new(Code::InvalidArgument, "bad_input", text)
}
