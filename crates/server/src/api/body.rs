//! HTTP bodies of the inference APIs: received up to a limit, counted while they wait, and decompressed or compressed.

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny};

use super::compress::{self, Packing};
use super::order::Turn;
use super::queued::QueuedBytesPermit;
use super::{Api, BodyError, Code, RequestContext, Status, refusal};
use crate::error::{ExceededLimit, Failure};

/// A received, decompressed body.
pub(crate) struct ReceivedBody {
    /// The request's turn on its connection, held until the request is admitted.
    pub(crate) turn: Turn,
    pub(crate) body: Bytes,
    pub(crate) permit: QueuedBytesPermit,
}

/// Receives the body of a request. `words` makes the refusals of its API.
pub(crate) async fn receive(
    api: &Api,
    context: &RequestContext,
    headers: &HeaderMap,
    body: Body,
    words: fn(&Failure) -> Status,
) -> Result<ReceivedBody, Status> {
    let packing = compress::packing(headers)?;
    let limit = api.limits().request();
    let body = collect(body, limit).await?;
    let (turn, permit) = api.turn(context, body.len()).await.map_err(|failure| words(&failure))?;
    let (body, permit) = match packing {
        None => (body, permit),
        Some(packing) => packing.inflate(body, limit, permit).await.map_err(|error| error.status(limit, words))?,
    };
    Ok(ReceivedBody { turn, body, permit })
}

/// Puts a body into a response, compressed if the request's headers accept that.
pub(crate) async fn respond(request: &HeaderMap, mut response: Response, body: Bytes) -> Result<Response, Failure> {
    let packing = Packing::accepted(request);
    let packed = match packing {
        None => None,
        Some(packing) => packing.pack_answer(&body).await?,
    };
    let body = match packing.zip(packed) {
        None => body,
        Some((packing, packed)) => {
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(packing.name()));
            packed
        }
    };
    *response.body_mut() = body.into();
    Ok(response)
}

/// Parses a JSON object. Without this check, a struct would also be parsed from an array of its members.
pub(crate) fn parse_object<'b, T: Deserialize<'b>>(json: &'b [u8]) -> Result<T, serde_json::Error> {
    if json.trim_ascii_start().first() == Some(&b'{') {
        return serde_json::from_slice(json);
    }
    // Text that is not JSON gets the error of the parser.
    serde_json::from_slice::<IgnoredAny>(json)?;
    Err(serde_json::Error::custom("expected an object"))
}

/// Maximum bytes of a body that holds only a few settings.
const SHORT: usize = 1 << 20;

/// Reads a body that holds only a few settings.
pub(crate) async fn collect_short(body: Body) -> Result<Bytes, Status> {
    let text = || format!("the request's body has more than {SHORT} bytes, the maximum on this path");
    collect(body, SHORT).await.map_err(|status| match status.code {
        Code::TooLarge => Status::new(Code::TooLarge, refusal::BAD_INPUT, text()),
        _ => status,
    })
}

/// Reads a whole body, up to `limit` bytes.
pub(crate) async fn collect(body: Body, limit: usize) -> Result<Bytes, Status> {
    let too_large = || refusal::limit(&ExceededLimit::RequestBytes { limit });
    // If the announced size is too large, the body is not read at all.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, serde::Deserialize)]
    #[serde(default)]
    struct Settings {
        ready: bool,
    }

    #[test]
    fn an_array_is_refused_where_an_object_is_expected() {
        let ready = |json: &str| parse_object::<Settings>(json.as_bytes()).map(|settings| settings.ready);
        assert!(ready(" \n{\"ready\": true}").unwrap());
        for json in ["[true]", "[]", "null", "true", "\"ready\"", "1"] {
            let refused = ready(json).unwrap_err();
            assert_eq!((refused.is_data(), refused.to_string().as_str()), (true, "expected an object"), "{json}");
        }
        for json in ["", "[true", "{", "ready"] {
            assert!(!ready(json).unwrap_err().is_data(), "{json}");
        }
    }
}
