//! The parameters of a path. A path that cannot be parsed gets a refusal like all others.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::refusal::BAD_INPUT;
use super::{Code, Status};

/// Like axum's extractor, but with our own refusals.
#[derive(Debug, Clone)]
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Status;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Status> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        read.map(|axum::extract::Path(named)| Path(named))
            .map_err(|refused| Status::new(Code::InvalidArgument, BAD_INPUT, refused.body_text()))
    }
}
