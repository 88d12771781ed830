//! One message of the inference calls: the call's metadata, and the steps from bytes to a decoded request. Unary calls and streams share
//! it.

use axum::http::HeaderValue;
use bytes::Bytes;
use prost::Message as _;
use tonic::metadata::MetadataMap;

use super::decode;
use super::response_format::ResponseFormat;
use super::scan::{self, Scanned, UNCOUNTED, scan};
use super::surface::{CallNames, Kserve};
use crate::api::context::SEQUENCE_HEADER;
use crate::api::intake::Decoded;
use crate::api::its_load::for_its_load;
use crate::api::order::INLINE_BYTES;
use crate::api::queued::QueuedBytesPermit;
use crate::api::{Status, triton};
use crate::error::Failure;
use crate::model::ModelHandle;
use crate::telemetry::Surface;
use sequor_proto::ModelInferRequest;

/// The metadata key that makes the first error end its stream.
const STRICT: &str = "triton_grpc_error";
/// The metadata key of clients that cannot read raw bytes.
const TYPED: &str = "x-typed-contents";

/// The metadata of a call that applies to its requests.
#[derive(Debug, Default)]
pub(crate) struct CallMetadata {
    /// The sequence id from the header that proxies hash.
    pub(crate) sequence: Option<String>,
    /// Whether the first error ends the stream (`triton_grpc_error`).
    pub(crate) strict: bool,
    /// Whether the client wants lists in answers to requests with lists.
    pub(crate) typed: bool,
}

impl CallMetadata {
    pub(super) fn from_metadata(metadata: &MetadataMap) -> CallMetadata {
        // One pass: each look-up by name would parse and hash the name, and calls have few headers.
        let [mut sequence, mut strict, mut typed] = [None::<&HeaderValue>; 3];
        for (name, value) in metadata.as_ref() {
            let first = match name.as_str() {
                SEQUENCE_HEADER => &mut sequence,
                STRICT => &mut strict,
                TYPED => &mut typed,
                _ => continue,
            };
            first.get_or_insert(value);
        }
        let is_true = |value: Option<&HeaderValue>| value.is_some_and(|value| value == "true");
        CallMetadata {
            sequence: sequence.and_then(|value| value.to_str().ok()).map(str::to_owned),
            strict: is_true(strict),
            typed: is_true(typed),
        }
    }
}

/// A message with what is known about it before its request is read.
#[derive(Debug)]
pub(super) struct ScannedMessage {
    message: Bytes,
    scan: MessageScan,
    permit: Result<QueuedBytesPermit, Failure>,
}

#[derive(Debug)]
enum MessageScan {
    /// Too long for a connection's task. The message is scanned together with decoding.
    Pending,
    /// Too short to exceed a limit. The message was decoded without a scan, and reads no shared memory.
    Needless(ModelInferRequest),
    Done(ScannedNames),
}

/// The result of a scan that decoding uses.
#[derive(Debug)]
struct ScannedNames {
    call: CallNames,
    /// Bytes of memory that decoding needs, and bytes of shared memory that it reads.
    unpacked: u64,
    shared: u64,
    is_well_formed: bool,
}

/// A request of a call, decoded or refused.
#[derive(Debug)]
pub(super) struct ReadMessage {
    pub(super) call: CallNames,
    pub(super) request: Result<Decoded, Status>,
    pub(super) form: ResponseFormat,
}

impl ScannedMessage {
    /// Scans a message if that is necessary and does not take long. For a decompressed message, `permit` counts its bytes or is the refusal.
    pub(super) fn new(kserve: &Kserve, message: Bytes, permit: Result<QueuedBytesPermit, Failure>) -> ScannedMessage {
        if scan::is_needless(&message, &kserve.api().limits().of_request())
            && permit.is_ok()
            && let Ok(decoded) = ModelInferRequest::decode(message.clone())
            && decoded.inputs.iter().all(|input| input.parameters.is_empty())
        {
            return ScannedMessage { message, scan: MessageScan::Needless(decoded), permit };
        }
        if scan::is_long(&message) {
            return ScannedMessage { message, scan: MessageScan::Pending, permit };
        }
        ScannedMessage::scan(kserve, message, permit)
    }

    fn scan(kserve: &Kserve, message: Bytes, permit: Result<QueuedBytesPermit, Failure>) -> ScannedMessage {
        let Scanned { model, version, id, unpacked, shared, is_well_formed, refused, .. } =
            scan(&message, &kserve.api().limits().of_request());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let is_text = std::str::from_utf8(model).is_ok();
        let call = CallNames { surface: Surface::KserveGrpc, model: text(model), version: text(version), id: text(id) };
        let permit = refused.map_or(permit, |exceeded| Err(exceeded.into()));
        let scan =
            MessageScan::Done(ScannedNames { call, unpacked, shared, is_well_formed: is_well_formed && is_text });
        ScannedMessage { message, scan, permit }
    }

    /// Whether decoding takes too long for a connection's task.
    pub(super) fn is_long(&self) -> bool {
        match &self.scan {
            MessageScan::Pending => true,
            MessageScan::Needless(_) => false,
            MessageScan::Done(ScannedNames { unpacked, shared, .. }) => {
                unpacked.saturating_add(*shared) > INLINE_BYTES as u64 && self.permit.is_ok()
            }
        }
    }

    /// Decodes the message. The error is for bytes that are not a message.
    pub(super) fn decode(self, kserve: &Kserve, metadata: &CallMetadata) -> Result<ReadMessage, tonic::Status> {
        let ScannedMessage { message, scan, permit } = self;
        let ScannedNames { call, unpacked, is_well_formed, .. } = match scan {
            MessageScan::Pending => {
                return ScannedMessage::scan(kserve, message, permit).decode(kserve, metadata);
            }
            MessageScan::Needless(decoded) => {
                let call = CallNames::in_message(&decoded);
                return Ok(match permit {
                    Ok(permit) => ReadMessage::read(kserve, metadata, (call, None), decoded, permit),
                    Err(failure) => ReadMessage::refused(call, triton::status(&failure)),
                });
            }
            MessageScan::Done(names) => names,
        };
        let mut permit = match permit {
            Ok(permit) => permit,
            Err(failure) => return Ok(ReadMessage::refused(call, triton::status(&failure))),
        };
        // If the model is missing, nothing is decoded. For malformed bytes, the decoding error takes precedence.
        let found = is_well_formed.then(|| kserve.find(&call.model, &call.version));
        let found = match found.transpose() {
            Ok(found) => found,
            Err(status) => return Ok(ReadMessage::refused(call, status)),
        };
        if unpacked > UNCOUNTED
            && let Err(exceeded) = permit.grow(unpacked)
        {
            return Ok(ReadMessage::refused(call, triton::status(&exceeded.into())));
        }
        let message = ModelInferRequest::decode(message).map_err(|error| tonic::Status::internal(error.to_string()))?;
        Ok(ReadMessage::read(kserve, metadata, (call, found), message, permit))
    }
}

impl ReadMessage {
    fn refused(call: CallNames, status: Status) -> ReadMessage {
        ReadMessage { call, request: Err(status), form: ResponseFormat::default() }
    }

    /// Reads the request of a decoded message. `found` is its model, if that was looked up before.
    fn read(
        kserve: &Kserve,
        metadata: &CallMetadata,
        (call, found): (CallNames, Option<ModelHandle>),
        message: ModelInferRequest,
        mut permit: QueuedBytesPermit,
    ) -> ReadMessage {
        let read = || {
            let model = match found {
                Some(model) => model,
                None => kserve.find(&message.model_name, &message.model_version)?,
            };
            let is_typed = metadata.typed && message.raw_input_contents.is_empty();
            let sequence = metadata.sequence.as_deref();
            let decode = |of: &ModelHandle, message, permit: &mut QueuedBytesPermit| {
                let (request, mut form) = decode::infer(message, sequence, kserve.regions(), of, permit)?;
                form.typed |= is_typed;
                form.fit_to(of, &request)?;
                Ok((request, form))
            };
            let (request, form) = for_its_load(&model, message, &mut permit, decode, |(request, _)| &request.sequence)?;
            Ok((Decoded { model, request, permit }, form))
        };
        match read() {
            Ok((decoded, form)) => ReadMessage { call, request: Ok(decoded), form },
            Err(status) => ReadMessage::refused(call, status),
        }
    }
}
