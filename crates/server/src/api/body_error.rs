//! The error of a request body that the server stopped reading. It reaches the API handler as the body's error.

use std::error::Error;

use super::{Status, refusal};
use crate::error::ExceededLimit;

/// The error of a body that the server no longer reads. Its source is the status with which tonic answers the call.
#[derive(Debug, thiserror::Error)]
#[error("{}", .status.message)]
pub struct BodyError {
    status: Status,
    #[source]
    grpc: tonic::Status,
}

impl From<Status> for BodyError {
    fn from(status: Status) -> BodyError {
        BodyError { grpc: status.clone().into(), status }
    }
}

impl From<ExceededLimit> for BodyError {
    fn from(exceeded: ExceededLimit) -> BodyError {
        refusal::limit(&exceeded).into()
    }
}

impl BodyError {
    /// The status in a body's error, if the server itself stopped reading the body.
    pub fn status_of(error: &(dyn Error + 'static)) -> Option<Status> {
        match error.downcast_ref::<BodyError>() {
            Some(error) => Some(error.status.clone()),
            None => BodyError::status_of(error.source()?),
        }
    }
}
