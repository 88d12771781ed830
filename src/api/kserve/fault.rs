//! Why a request could not be read, before it is known of which model to say so.

use super::refusal;
use crate::api::Status;
use crate::error::{Failure, Invalid};

/// Why a request could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Invalid(Invalid),
    /// Said elsewhere already.
    Status(Status),
}

impl Fault {
    pub(crate) fn malformed(text: impl Into<String>) -> Fault {
        Fault::Invalid(Invalid::Malformed(text.into()))
    }

    pub(crate) fn status(self, model: &str, mark: &str) -> Status {
        match self {
            Fault::Invalid(what) => refusal::status(&Failure::Invalid { model: model.to_owned(), what }, mark),
            Fault::Status(status) => status,
        }
    }
}

impl From<Invalid> for Fault {
    fn from(what: Invalid) -> Fault {
        Fault::Invalid(what)
    }
}
