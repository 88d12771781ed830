//! Why the body of a request was given up while it arrived. It travels as the body's error to the surface that reads it.

use std::error::Error;

use super::{Status, refusal};
use crate::error::ExceededLimit;

/// A body that the server no longer reads. Its source is the status that tonic answers a call with.
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
    /// The status that an error of a body carries, if the server gave the body up itself.
    pub fn status_of(error: &(dyn Error + 'static)) -> Option<Status> {
        match error.downcast_ref::<BodyError>() {
            Some(error) => Some(error.status.clone()),
            None => BodyError::status_of(error.source()?),
        }
    }
}
