//! Why a request cannot be decoded, before it is known which model and which request to name.

use crate::api::{Status, triton};
use crate::error::{ExceededLimit, Failure, Invalid};

/// Why a request cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    Invalid(Invalid),
    Limit(ExceededLimit),
    /// A refusal of this protocol alone, as of shared memory.
    Status(Status),
}

impl DecodeError {
    pub(crate) fn malformed(text: impl Into<String>) -> DecodeError {
        DecodeError::Invalid(Invalid::Malformed(text.into()))
    }

    /// What a client reads of it; `id` is the request's own.
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
