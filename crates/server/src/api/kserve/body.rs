//! The body of an inference request, over HTTP or as a message of a WebSocket.

use axum::http::HeaderMap;
use bytes::Bytes;

use super::answer;
use super::json::{self, JsonRequestHead};
use super::path::ModelPath;
use super::response_format::ResponseFormat;
use super::surface::Kserve;
use crate::api::intake::Decoded;
use crate::api::its_load::for_its_load;
use crate::api::order::INLINE_BYTES;
use crate::api::queued::QueuedBytesPermit;
use crate::api::{Code, Status};
use crate::model::ModelHandle;

/// The header with the length of the JSON, if bytes follow it.
pub(super) const JSON_LENGTH: &str = "inference-header-content-length";

/// The body of a request, with the facts from its path and headers.
#[derive(Debug)]
pub(super) struct BodyRequest {
    pub(super) named: ModelPath,
    /// The sequence id from the header that proxies hash.
    pub(super) sequence: Option<String>,
    pub(super) json_length: Option<usize>,
    pub(super) body: Bytes,
}

impl BodyRequest {
    /// Whether decoding takes too long for a connection's task. Binary tensors are not copied; tensors in shared memory are.
    pub(super) fn is_long(&self) -> bool {
        let json = self.json_length.unwrap_or(self.body.len());
        json > INLINE_BYTES || shared_bytes(self.json()) > INLINE_BYTES as u64
    }

    /// The JSON of the body, without the tensors that follow it.
    pub(super) fn json(&self) -> &[u8] {
        self.json_length.and_then(|length| self.body.get(..length)).unwrap_or(&self.body)
    }

    /// Decodes the body, and gets from its model what the answer needs.
    pub(super) fn decode(
        self,
        kserve: &Kserve,
        model: ModelHandle,
        mut permit: QueuedBytesPermit,
    ) -> Result<(Decoded, ResponseFormat), Status> {
        let BodyRequest { named, sequence, json_length, body } = self;
        let (regions, limits) = (kserve.regions(), kserve.api().limits().of_request());
        let sequence = sequence.as_deref();
        let decode = |of: &ModelHandle, body: Bytes, permit: &mut QueuedBytesPermit| {
            let head = JsonRequestHead {
                model: &named.model,
                version: &named.version,
                sequence,
                json_length,
                regions,
                inputs: of,
                limits: &limits,
            };
            if json_length == Some(0) {
                return json::raw(head, body, &of.metadata(), of.config().max_batch_size > 0);
            }
            let (request, mut form) = json::infer(head, &body, permit)?;
            answer::check(&of.metadata(), &request.outputs, &form)?;
            form.fit_to(of, &request)?;
            Ok((request, form))
        };
        let (request, form) = for_its_load(&model, body, &mut permit, decode, |(request, _)| &request.sequence)?;
        Ok((Decoded { model, request, permit }, form))
    }
}

/// Bytes of shared memory that the JSON names, for inputs and outputs. A key written with escapes is not found.
fn shared_bytes(json: &[u8]) -> u64 {
    let text = std::str::from_utf8(json).unwrap_or_default();
    let size = |(at, key): (usize, &str)| {
        let rest = text.get(at + key.len()..)?.trim_start().strip_prefix(':')?.trim_start();
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    text.match_indices("\"shared_memory_byte_size\"").filter_map(size).fold(0, u64::saturating_add)
}

/// The length of a body's JSON. `None` if the whole body is JSON.
pub(super) fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Status> {
    let Some(value) = headers.get(JSON_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    let text = || format!("Inference-Header-Content-Length is no length: {value:?}");
    Ok(Some(length.ok_or_else(|| Status::new(Code::InvalidArgument, "bad_input", text()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_counts_as_long_by_its_json_or_its_shared_memory_size() {
        let is_long = |json_length: Option<usize>, body: String| {
            let named = ModelPath { model: "m".to_owned(), version: String::new() };
            BodyRequest { named, sequence: None, json_length, body: body.into() }.is_long()
        };
        let input = |size: u64| format!(r#"{{"parameters":{{"shared_memory_byte_size" : {size}, "x": 1}}}}"#);
        assert!(!is_long(None, input(1000)));
        assert!(is_long(None, input(1 << 20)) && is_long(None, [input(200 << 10), input(100 << 10)].concat()));
        assert!(is_long(None, " ".repeat(300 << 10)) && !is_long(Some(2), " ".repeat(300 << 10)));
    }
}
