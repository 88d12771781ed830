//! Errors of decoding a request, before the model and the request to name are known.

use crate::api::{Status, triton};
use crate::error::{ExceededLimit, Failure, Invalid};

/// Why a request cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    Invalid(Invalid),
    Limit(ExceededLimit),
    /// A refusal that only this protocol has, for example about shared memory.
    Status(Status),
}

impl DecodeError {
    pub(crate) fn malformed(text: impl Into<String>) -> DecodeError {
        DecodeError::Invalid(Invalid::Malformed(text.into()))
    }

    /// The status for the client. `id` is the request's own id.
    pub(crate) fn status(self, model: &str, id: &str) -> Status {
        match self {
            DecodeError::Invalid(what) => {
                let (model, id, what) = (model.to_owned(), id.to_owned(), Box::new(what));
                triton::status(&Failure::Invalid { model, id, what })
            }
            DecodeError::Limit(exceeded) => triton::status(&exceeded.into()),
            DecodeError::Status(status) => status,
        }
    }
}

impl From<Invalid> for DecodeError {
    fn from(what: Invalid) -> DecodeError {
        DecodeError::Invalid(what)
    }
}

impl From<ExceededLimit> for DecodeError {
    fn from(exceeded: ExceededLimit) -> DecodeError {
        DecodeError::Limit(exceeded)
    }
}

impl From<Status> for DecodeError {
    fn from(status: Status) -> DecodeError {
        DecodeError::Status(status)
    }
}
