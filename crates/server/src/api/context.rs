//! The facts about a request that the server knows before an API handler reads it. The dispatcher makes one context per request on every
//! listener, and runs all access checks there.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tokio::time::Instant;

use super::peers::Peer;
use super::{Caller, Code, ConnectionOrder, Status};
use crate::executor::ExecutorHandle;

/// The header that proxies hash. It replaces the parameter that names a sequence.
pub(crate) const SEQUENCE_HEADER: &str = "x-sequence-id";

// Made once: a look-up by text parses the text each time.
static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Caller, trace parent, deadline and headers of a request. API handlers pass it on unchanged, so that no handler passes a single fact on
/// its own.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The caller. All requests of a connection share it, unless a check sets another one.
    pub caller: Arc<Caller>,
    /// The `traceparent` header.
    pub trace_parent: Option<HeaderValue>,
    /// The deadline that the client set (`grpc-timeout`).
    pub deadline: Option<Deadline>,
    /// The headers that are features of models, by lower-case name. The dispatcher sets them. Checks see all headers in [`RequestHead`].
    pub(crate) headers: Arc<[(String, String)]>,
    /// Whether it is one message of a stream or of a WebSocket.
    pub(crate) is_stream: bool,
    /// The order of the requests of its connection.
    pub(crate) order: ConnectionOrder,
    /// The request's connection, if that polls the request itself. The dispatcher sets it.
    pub(crate) connection: Option<ExecutorHandle>,
    /// The account of the client. The dispatcher sets it once the checks have named the caller.
    pub(crate) peer: Peer,
}

/// The instant after which the client has no use for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    pub at: Instant,
    /// The time that the client allowed, for messages.
    pub allowed: Duration,
}

/// The head of a request during the checks.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'r> {
    pub method: &'r Method,
    pub uri: &'r Uri,
    pub headers: &'r HeaderMap,
}

/// A condition for requests. The dispatcher runs every check of a listener for every request.
pub trait Check: Send + Sync + std::fmt::Debug {
    /// Admits or refuses the request. It may also set the caller.
    fn check(&self, context: &mut RequestContext, head: &RequestHead<'_>) -> Result<(), Status>;
}

impl RequestContext {
    /// The context of a newly arrived request with these headers.
    pub fn new(caller: &Arc<Caller>, order: &ConnectionOrder, headers: &HeaderMap) -> RequestContext {
        let deadline = timeout(headers).map(|allowed| Deadline { at: Instant::now() + allowed, allowed });
        let (caller, order) = (Arc::clone(caller), order.clone());
        RequestContext {
            caller,
            trace_parent: headers.get(&TRACE_PARENT).cloned(),
            deadline,
            headers: Arc::default(),
            is_stream: false,
            order,
            connection: None,
            peer: Peer::default(),
        }
    }

    /// The context of each message of a stream, which shares the call's deadline.
    pub(crate) fn for_stream(self) -> RequestContext {
        RequestContext { is_stream: true, ..self }
    }

    /// The context of each message of a WebSocket. A deadline would apply to the whole connection, so it is dropped.
    pub(crate) fn for_messages(self) -> RequestContext {
        RequestContext { deadline: None, is_stream: true, ..self }
    }

    /// The context that the dispatcher added to a request.
    pub(crate) fn from_extensions(extensions: &Extensions) -> Result<&RequestContext, Status> {
        let text = "the request did not pass the dispatcher";
        extensions.get().ok_or_else(|| Status::new(Code::Internal, "internal", text))
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Status;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<RequestContext, Status> {
        RequestContext::from_extensions(&parts.extensions).cloned()
    }
}

/// Extracts only the caller of a request.
#[derive(Debug)]
pub(crate) struct CallerOf(pub(crate) Arc<Caller>);

impl<S: Sync> FromRequestParts<S> for CallerOf {
    type Rejection = Status;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<CallerOf, Status> {
        RequestContext::from_extensions(&parts.extensions).map(|context| CallerOf(Arc::clone(&context.caller)))
    }
}

/// The time that `grpc-timeout` allows, if the header is well-formed.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(&GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = if digits.len() <= 8 { digits.parse().ok()? } else { return None };
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().expect("a value"));
            timeout(&headers)
        };
        let message = ["1H", "2M", "3S", "4m", "5u", "6n"].map(|text| of(text).expect("a timeout").as_nanos());
        assert_eq!(message, [3_600_000_000_000, 120_000_000_000, 3_000_000_000, 4_000_000, 5_000, 6]);
        assert_eq!(["", "S", "1", "1s", "123456789S", "-1S"].map(of), [None; 6]);
    }
}
