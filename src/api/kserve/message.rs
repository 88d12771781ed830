//! One message of the inference calls: what the call's metadata says, and the way from bytes to a decoded request. It is the same for single
//! calls and streams.

use bytes::Bytes;
use prost::Message as _;
use tonic::metadata::MetadataMap;

use super::decode;
use super::response_format::ResponseFormat;
use super::scan::{self, Scanned, scan};
use super::surface::{CallNames, Kserve};
use crate::api::context::SEQUENCE_HEADER;
use crate::api::intake::Decoded;
use crate::api::its_load::for_its_load;
use crate::api::order::INLINE_BYTES;
use crate::api::queued::QueuedBytesPermit;
use crate::api::{Status, triton};
use crate::error::Failure;
use crate::model::ModelHandle;
use crate::telemetry::metrics::Surface;
use sequor_proto::ModelInferRequest;

/// Metadata of a stream whose first error shall end it.
const STRICT: &str = "triton_grpc_error";
/// Metadata of a client that cannot read tensors as bytes.
const TYPED: &str = "x-typed-contents";
/// Messages that unpack to no more than this are decoded without counting it.
const UNCOUNTED: u64 = 64 << 10;

/// What the metadata of a call says of its requests.
#[derive(Debug, Default)]
pub(crate) struct CallMetadata {
    /// The sequence id of the header that proxies hash.
    pub(crate) sequence: Option<String>,
    /// The first error ends the stream (`triton_grpc_error`).
    pub(crate) strict: bool,
    /// The client wants lists where it has sent lists.
    pub(crate) typed: bool,
}

impl CallMetadata {
    pub(super) fn of(metadata: &MetadataMap) -> CallMetadata {
        let is_true = |key| metadata.get(key).is_some_and(|value| value == "true");
        CallMetadata {
            sequence: metadata.get(SEQUENCE_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned),
            strict: is_true(STRICT),
            typed: is_true(TYPED),
        }
    }
}

/// A message that is not decoded yet.
#[derive(Debug)]
pub(super) struct ScannedMessage {
    message: Bytes,
    call: CallNames,
    /// Bytes that decoding takes, and bytes of shared memory that it reads.
    unpacked: u64,
    shared: u64,
    is_well_formed: bool,
    /// A message that takes long to scan is scanned where it is decoded.
    is_scanned: bool,
    permit: Result<QueuedBytesPermit, Failure>,
}

/// A request of a call, decoded or refused.
#[derive(Debug)]
pub(super) struct ReadMessage {
    pub(super) call: CallNames,
    pub(super) request: Result<Decoded, Status>,
    pub(super) form: ResponseFormat,
}

impl ScannedMessage {
    /// Scans a message if that is short. `permit` is what counts its bytes if it was unpacked, or why it could not be.
    pub(super) fn new(kserve: &Kserve, message: Bytes, permit: Result<QueuedBytesPermit, Failure>) -> ScannedMessage {
        if !scan::is_long(&message) {
            return ScannedMessage::scan(kserve, message, permit);
        }
        let [model, version, id] = [(); 3].map(|()| String::new());
        let call = CallNames { surface: Surface::KserveGrpc, model, version, id };
        ScannedMessage { message, call, unpacked: 0, shared: 0, is_well_formed: false, is_scanned: false, permit }
    }

    fn scan(kserve: &Kserve, message: Bytes, permit: Result<QueuedBytesPermit, Failure>) -> ScannedMessage {
        let Scanned { model, version, id, unpacked, shared, is_well_formed, refused, .. } =
            scan(&message, &kserve.api().limits());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let is_text = std::str::from_utf8(model).is_ok();
        let call = CallNames { surface: Surface::KserveGrpc, model: text(model), version: text(version), id: text(id) };
        let permit = refused.map_or(permit, |exceeded| Err(exceeded.into()));
        let is_well_formed = is_well_formed && is_text;
        ScannedMessage { call, unpacked, shared, is_well_formed, is_scanned: true, permit, message }
    }

    /// Whether decoding takes longer than a connection's task may.
    pub(super) fn is_long(&self) -> bool {
        let is_heavy = self.unpacked.saturating_add(self.shared) > INLINE_BYTES as u64;
        !self.is_scanned || (is_heavy && self.permit.is_ok())
    }

    /// Decodes the message. An error is that of bytes that are no message.
    pub(super) fn decode(self, kserve: &Kserve, metadata: &CallMetadata) -> Result<ReadMessage, tonic::Status> {
        if !self.is_scanned {
            return ScannedMessage::scan(kserve, self.message, self.permit).decode(kserve, metadata);
        }
        let ScannedMessage { message, call, unpacked, is_well_formed, permit, .. } = self;
        let refused = |call, status| ReadMessage { call, request: Err(status), form: ResponseFormat::default() };
        let mut permit = match permit {
            Ok(permit) => permit,
            Err(failure) => return Ok(refused(call, triton::status(&failure))),
        };
        // A model that is not there is not worth decoding for; of bytes that are no message, that is said first.
        let found = is_well_formed.then(|| kserve.find(&call.model, &call.version));
        let found = match found.transpose() {
            Ok(found) => found,
            Err(status) => return Ok(refused(call, status)),
        };
        if unpacked > UNCOUNTED
            && let Err(exceeded) = permit.grow(unpacked)
        {
            return Ok(refused(call, triton::status(&exceeded.into())));
        }
        let message = ModelInferRequest::decode(message).map_err(|error| tonic::Status::internal(error.to_string()))?;
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
        Ok(match read() {
            Ok((decoded, form)) => ReadMessage { call, request: Ok(decoded), form },
            Err(status) => refused(call, status),
        })
    }
}
