//! Headers that clients set on a call and expect on its answer.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tonic::metadata::MetadataMap;

const ECHOED: [&str; 2] = ["traceparent", "x-request-id"];

/// Copies these headers from the request to the answer.
pub(crate) async fn http(request: Request, next: Next) -> Response {
    let marks = ECHOED.map(|mark| request.headers().get(mark).cloned());
    let mut response = next.run(request).await;
    for (mark, value) in ECHOED.into_iter().zip(marks) {
        if let Some(value) = value {
            response.headers_mut().insert(mark, value);
        }
    }
    response
}

/// An answer with these headers of the call.
pub(crate) fn grpc<T>(asked: &MetadataMap, answer: T) -> tonic::Response<T> {
    let mut response = tonic::Response::new(answer);
    for mark in ECHOED {
        if let Some(value) = asked.get(mark) {
            response.metadata_mut().insert(mark, value.clone());
        }
    }
    response
}
