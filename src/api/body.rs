//! Takes in the body of a request over HTTP, up to a limit.

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::{BodyError, Code, Status, refusal};
use crate::error::ExceededLimit;

/// The whole of a body, if it is no longer than `limit`.
pub(crate) async fn collect(body: Body, limit: usize) -> Result<Bytes, Status> {
    let too_large = || refusal::limit(&ExceededLimit::RequestBytes { limit });
    // What says that it will be too large is not waited for.
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    Limited::new(body, limit).collect().await.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            return too_large();
        }
        BodyError::status_of(&*error).unwrap_or_else(|| {
            Status::new(Code::InvalidArgument, "bad_input", format!("the request's body could not be read: {error}"))
        })
    })
}
