//! Headers that clients set on a call and expect on its answer.

use axum::extract::Request;
use axum::http::HeaderName;
use axum::middleware::Next;
use axum::response::Response;
use tonic::metadata::MetadataMap;

static ECHOED: [HeaderName; 2] = [HeaderName::from_static("traceparent"), HeaderName::from_static("x-request-id")];

/// Copies these headers from the request to the answer.
pub(crate) async fn http(request: Request, next: Next) -> Response {
    let marks = ECHOED.each_ref().map(|mark| request.headers().get(mark).cloned());
    let mut response = next.run(request).await;
    for (mark, value) in ECHOED.iter().zip(marks) {
        if let Some(value) = value {
            response.headers_mut().insert(mark, value);
        }
    }
    response
}

/// An answer with these headers of the call.
pub(crate) fn grpc<T>(asked: &MetadataMap, answer: T) -> tonic::Response<T> {
    let mut response = tonic::Response::new(answer);
    for mark in ECHOED.iter().filter(|mark| asked.as_ref().contains_key(*mark)) {
        if let Some(value) = asked.get(mark.as_str()) {
            response.metadata_mut().insert(mark.as_str(), value.clone());
        }
    }
    response
}
