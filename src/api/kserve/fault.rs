//! Why a request cannot be decoded, before it is known which model and which request to name.

use super::refusal;
use crate::api::Status;
use crate::error::{ExceededLimit, Failure, Invalid};

/// Why a request cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Invalid(Invalid),
    Limit(ExceededLimit),
    /// A refusal of this protocol alone, as of shared memory.
    Status(Status),
}

impl Fault {
    pub(crate) fn malformed(text: impl Into<String>) -> Fault {
        Fault::Invalid(Invalid::Malformed(text.into()))
    }

    /// What a client reads of it; `id` is the request's own.
    pub(crate) fn status(self, model: &str, id: &str) -> Status {
        match self {
            Fault::Invalid(what) => {
                let (model, id, what) = (model.to_owned(), id.to_owned(), Box::new(what));
                refusal::status(&Failure::Invalid { model, id, what })
            }
            Fault::Limit(exceeded) => refusal::status(&exceeded.into()),
            Fault::Status(status) => status,
        }
    }
}

impl From<Invalid> for Fault {
    fn from(what: Invalid) -> Fault {
        Fault::Invalid(what)
    }
}

impl From<ExceededLimit> for Fault {
    fn from(exceeded: ExceededLimit) -> Fault {
        Fault::Limit(exceeded)
    }
}

impl From<Status> for Fault {
    fn from(status: Status) -> Fault {
        Fault::Status(status)
    }
}
