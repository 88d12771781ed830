//! The status of a request without an answer: a code, a sentence for people, and a reason for programs. All APIs share its mapping to
//! protocols.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tonic::metadata::{MetadataMap, MetadataValue};

use super::Code;

/// The HTTP header and the gRPC trailer for [`Status::reason`].
pub const REASON: &str = "sequor-reason";

/// The HTTP header and the gRPC trailer for the place in the documentation that explains the reason.
pub const HELP: &str = "sequor-help";

/// The parameter for the reason in an answer on a stream.
pub const REASON_PARAMETER: &str = "sequor_reason";

/// Maximum bytes of a sentence. Names from clients have any length, but trailers are limited.
const LONGEST: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub code: Code,
    pub message: String,
    /// A word of the table of reasons. Metrics use the same words.
    pub reason: &'static str,
    pub retry: Retry,
}

/// Whether and when a client may send the request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retry {
    /// No hint: the code is enough.
    #[default]
    Unsaid,
    After(Duration),
    /// The client must not retry, although clients retry this code by default.
    Never,
}

impl Status {
    pub fn new(code: Code, reason: &'static str, message: impl Into<String>) -> Status {
        let mut message = message.into();
        if message.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
            message.truncate(end);
            message.push('…');
        }
        Status { code, message, reason, retry: Retry::Unsaid }
    }

    /// A feature that the server does not support.
    pub fn unimplemented(message: impl Into<String>) -> Status {
        Status::new(Code::Unimplemented, "unsupported", message)
    }

    pub fn retry_after(self, span: Duration) -> Status {
        Status { retry: Retry::After(span), ..self }
    }

    /// The place in the documentation for this reason.
    pub fn help(&self) -> String {
        format!("docs/troubleshoot.md#{}", self.reason)
    }

    pub fn never_retry(self) -> Status {
        Status { retry: Retry::Never, ..self }
    }

    /// The answer to a request with these headers, in the refusal format of its protocol.
    pub fn response(self, headers: &HeaderMap) -> Response {
        if is_grpc(headers) { tonic::Status::from(self).into_http() } else { self.into_response() }
    }
}

/// Whether these are the headers of a gRPC call.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Maximum bytes of an encoded sentence. Clients take 8 KiB of gRPC metadata in all.
const LONGEST_SENT: usize = 6 << 10;

/// ASCII characters that tonic encodes as three bytes, in addition to those that cannot be printed.
const ENCODED: [char; 10] = ['%', ' ', '"', '#', '<', '>', '`', '?', '{', '}'];

/// Truncates a sentence that exceeds the maximum.
fn cut(mut message: String) -> String {
    let sent = |c: char| if c.is_ascii_graphic() && !ENCODED.contains(&c) { 1 } else { 3 * c.len_utf8() };
    let mut bytes = 0;
    let end = message.char_indices().find(|(_, c)| {
        bytes += sent(*c);
        bytes > LONGEST_SENT
    });
    if let Some((end, _)) = end {
        message.truncate(end);
    }
    message
}

impl From<Status> for tonic::Status {
    fn from(status: Status) -> tonic::Status {
        let mut trailers = MetadataMap::new();
        trailers.insert(REASON, MetadataValue::from_static(status.reason));
        if let Ok(help) = status.help().parse() {
            trailers.insert(HELP, help);
        }
        let pushback = match status.retry {
            Retry::Unsaid => None,
            Retry::After(span) => Some(MetadataValue::from(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))),
            Retry::Never => Some(MetadataValue::from(-1)),
        };
        if let Some(millis) = pushback {
            trailers.insert("grpc-retry-pushback-ms", millis);
        }
        tonic::Status::with_metadata(status.code.grpc(), cut(status.message), trailers)
    }
}

impl IntoResponse for Status {
    fn into_response(self) -> Response {
        let code = axum::http::StatusCode::from_u16(self.code.http()).unwrap_or_default();
        let body = axum::Json(json!({ "error": self.message, "reason": self.reason }));
        let retry = match self.retry {
            Retry::After(span) => Some([("retry-after", span.as_millis().div_ceil(1000).max(1).to_string())]),
            Retry::Unsaid | Retry::Never => None,
        };
        // The form of a key that any client can send.
        let challenge = (self.code == Code::Unauthenticated).then_some([(WWW_AUTHENTICATE, "Bearer")]);
        (code, [(REASON, self.reason), (HELP, &self.help())], retry, challenge, body).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_message_is_cut_to_fit_the_call_metadata() {
        let sent = |text: &str| tonic::Status::from(Status::new(Code::Internal, "internal", text)).message().len();
        assert_eq!((sent(&"a".repeat(9000)), sent(&"é".repeat(4000)), sent(&"%".repeat(9000))), (4099, 2048, 2048));
        assert_eq!((sent(&"{".repeat(9000)), sent(&" ".repeat(9000))), (2048, 2048), "as tonic encodes them");
        assert_eq!(sent("short: é"), 9);
    }

    #[test]
    fn the_reason_and_the_time_to_retry_travel_beside_the_sentence() {
        let full = Status::new(Code::Unavailable, "backlog_full", "full").retry_after(Duration::from_millis(800));
        let grpc = tonic::Status::from(full.clone());
        assert_eq!((grpc.code(), grpc.message()), (tonic::Code::Unavailable, "full"));
        assert_eq!(grpc.metadata().get(REASON).expect("a reason"), "backlog_full");
        assert_eq!(grpc.metadata().get(HELP).expect("a place"), "docs/troubleshoot.md#backlog_full");
        assert_eq!(grpc.metadata().get("grpc-retry-pushback-ms").expect("a time"), "800");
        let http = full.into_response();
        assert_eq!(http.status(), 503);
        assert_eq!(
            (&http.headers()[REASON], &http.headers()["retry-after"]),
            (&"backlog_full".parse().unwrap(), &"1".parse().unwrap())
        );
        assert_eq!(http.headers()[HELP], "docs/troubleshoot.md#backlog_full");
    }

    #[test]
    fn a_status_that_forbids_retries_sends_a_negative_pushback() {
        let lost = Status::new(Code::Unavailable, "backlog_timeout", "late").never_retry();
        let grpc = tonic::Status::from(lost.clone());
        assert_eq!(grpc.metadata().get("grpc-retry-pushback-ms").expect("a sign"), "-1");
        assert!(lost.into_response().headers().get("retry-after").is_none());
    }

    #[test]
    fn a_long_error_message_is_cut_between_characters() {
        let status = Status::new(Code::NotFound, "not_served", "é".repeat(LONGEST));
        assert!(status.message.len() <= LONGEST + '…'.len_utf8());
        assert!(status.message.ends_with("é…"));
    }

    #[test]
    fn all_codes_map_to_http_and_grpc_error_codes() {
        for code in Code::ALL {
            assert!(code.http() >= 400, "{code:?}");
            assert_ne!(code.grpc(), tonic::Code::Ok);
        }
    }
}
