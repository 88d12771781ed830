//! The gRPC call `Predict`. The dispatcher calls it directly, without the router.

use std::future::Future;
use std::pin::Pin;

use axum::body::HttpBody;
use axum::http;
use bytes::Bytes;
use prost::Message as _;
use sequor_proto::tensorflow::serving::model_spec::VersionChoice;
use sequor_proto::tensorflow::serving::{ModelSpec, PredictRequest, PredictResponse};
use tonic::body::Body;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response};

use super::request::{PredictRequestParts, check_names};
use super::scan::{ScanEnd, scan};
use super::special::{self, AnswerId, SEQUENCE_ID};
use super::surface::{DecodedPredict, Tfs};
use super::{SIGNATURE, refusal, tensors};
use crate::api::context::SEQUENCE_HEADER;
use crate::api::frames::{self, CallKind, RawCodec, Unpacked, UnpackedQueue};
use crate::api::its_load::for_its_load;
use crate::api::order::{INLINE_BYTES, off_task};
use crate::api::queued::QueuedBytesPermit;
use crate::api::refusal::unsent;
use crate::api::{RequestContext, Status};
use crate::error::Failure;
use crate::model::{InferAnswer, ModelHandle, SequenceStep};
use crate::telemetry::Surface;

/// A message is decoded without a count of its bytes if it unpacks to at most this size.
const UNCOUNTED: u64 = 64 << 10;

/// Answers the call `Predict`.
#[derive(Debug, Clone)]
pub struct PredictService {
    tfs: Tfs,
}

impl PredictService {
    pub fn new(tfs: &Tfs) -> PredictService {
        PredictService { tfs: tfs.clone() }
    }

    /// Answers a call.
    pub async fn call<B>(self, context: RequestContext, request: http::Request<B>) -> http::Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError> + Send,
    {
        let (request, unpacked) = frames::unpack(self.tfs.api(), &context, CallKind::Unary, request);
        let mut compressions = EnabledCompressionEncodings::default();
        for compression in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
            compressions.enable(compression);
        }
        let mut grpc = Grpc::new(RawCodec::<PredictResponse>::new(CallKind::Unary))
            .apply_compression_config(compressions, EnabledCompressionEncodings::default())
            .apply_max_message_size_config(Some(self.tfs.api().limits().request()), Some(usize::MAX));
        grpc.unary(PredictCall { tfs: self.tfs, context, unpacked }, request).await
    }
}

/// A call whose message has not been read yet.
struct PredictCall {
    tfs: Tfs,
    context: RequestContext,
    unpacked: UnpackedQueue,
}

impl UnaryService<Bytes> for PredictCall {
    type Response = PredictResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<PredictResponse>, tonic::Status>> + Send>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(predict(self.tfs.clone(), self.context.clone(), self.unpacked.pop(), request))
    }
}

async fn predict(
    tfs: Tfs,
    context: RequestContext,
    unpacked: Option<Unpacked>,
    request: Request<Bytes>,
) -> Result<Response<PredictResponse>, tonic::Status> {
    let (metadata, _, message) = request.into_parts();
    let Unpacked { permit, turn } = match unpacked {
        Some(unpacked) => unpacked,
        None => Unpacked::in_turn(tfs.api(), &context, message.len()).await,
    };
    let message = PredictMessage::new(&tfs, &metadata, message, permit);
    let (is_long, of) = (message.is_long(), tfs.clone());
    let read = off_task(is_long, move || message.decode(&of)).await;
    let ReadPredict { model, version, request } = read.map_err(|failure| refusal::status(&failure))??;
    let (decoded, id) = match request {
        Ok((decoded, id)) => (Ok(decoded), id),
        Err(status) => (Err(status), AnswerId::None),
    };
    let (answer, count) = tfs.answer(&context, Surface::TfsGrpc, decoded, (&model, &version), turn).await?;
    count.answer(frames::check_size(answer.tensor_bytes()).map_err(unsent))?;
    Ok(Response::new(encode(answer, id)))
}

/// A message that is not decoded yet.
struct PredictMessage {
    message: Bytes,
    /// The sequence id of the header that proxies hash.
    sequence: Option<String>,
    /// Memory that decoding takes, or why the scan of the message ended early.
    unpacked: Result<u64, ScanEnd>,
    permit: Result<QueuedBytesPermit, Failure>,
}

/// A request of a call, decoded or refused.
struct ReadPredict {
    model: String,
    version: String,
    request: Result<(DecodedPredict, AnswerId), Status>,
}

impl PredictMessage {
    fn new(
        tfs: &Tfs,
        metadata: &MetadataMap,
        message: Bytes,
        permit: Result<QueuedBytesPermit, Failure>,
    ) -> PredictMessage {
        let text = |key: &str| metadata.get(key)?.to_str().ok();
        PredictMessage {
            unpacked: scan(&message, &tfs.api().limits().of_request(), INLINE_BYTES),
            sequence: text(SEQUENCE_HEADER).map(str::to_owned),
            message,
            permit,
        }
    }

    /// Whether decoding is too long for a connection's task, so that another thread should do it.
    fn is_long(&self) -> bool {
        let is_long = match &self.unpacked {
            Ok(unpacked) => *unpacked > INLINE_BYTES as u64,
            Err(end) => *end == ScanEnd::Long,
        };
        self.permit.is_ok() && is_long
    }

    /// Decodes the message. The error is for bytes that are no valid message.
    fn decode(self, tfs: &Tfs) -> Result<ReadPredict, tonic::Status> {
        let PredictMessage { message, sequence, unpacked, permit } = self;
        let permit = permit.and_then(|mut permit| {
            let unpacked = match unpacked {
                Err(ScanEnd::Long) => scan(&message, &tfs.api().limits().of_request(), usize::MAX),
                unpacked => unpacked,
            };
            match unpacked {
                Ok(bytes) if bytes <= UNCOUNTED => {}
                Ok(bytes) => permit.grow(bytes)?,
                Err(ScanEnd::Refused(exceeded)) => return Err(exceeded.into()),
                Err(ScanEnd::Long) => {}
            }
            Ok(permit)
        });
        let permit = match permit {
            Ok(permit) => permit,
            Err(failure) => {
                let [model, version] = [(); 2].map(|()| String::new());
                return Ok(ReadPredict { model, version, request: Err(refusal::status(&failure)) });
            }
        };
        let request = PredictRequest::decode(message).map_err(|error| tonic::Status::internal(error.to_string()))?;
        let (model, version) = match named(request.model_spec.as_ref()) {
            Ok(named) => named,
            Err(status) => {
                let [model, version] = [(); 2].map(|()| String::new());
                return Ok(ReadPredict { model, version, request: Err(status) });
            }
        };
        let request = tfs.find(&model, &version).and_then(|served| {
            let mut permit = permit;
            let decode = |of: &ModelHandle, request, _: &mut QueuedBytesPermit| {
                read(of, (&model, &version), request, sequence.as_deref())
            };
            let (parts, id) = for_its_load(&served, request, &mut permit, decode, |(parts, _)| &parts.sequence)?;
            Ok((DecodedPredict { model: served, parts, permit }, id))
        });
        Ok(ReadPredict { model, version, request })
    }
}

/// The model and version of a request. Version 0 lets the server choose.
pub(super) fn named(spec: Option<&ModelSpec>) -> Result<(String, String), Status> {
    let Some(spec) = spec else { return Err(refusal::bad_input("model_spec missing in request")) };
    let version = match &spec.version_choice {
        None | Some(VersionChoice::Version(0)) => String::new(),
        Some(VersionChoice::Version(version)) => version.to_string(),
        Some(VersionChoice::VersionLabel(label)) => return Err(refusal::label(label)),
    };
    Ok((spec.name.clone(), version))
}

/// Decodes a request: first the special inputs, then all others.
fn read(
    model: &ModelHandle,
    (name, version): (&str, &str),
    request: PredictRequest,
    sequence: Option<&str>,
) -> Result<(PredictRequestParts, AnswerId), Status> {
    let PredictRequest { mut inputs, output_filter, .. } = request;
    let is_stateful = model.is_stateful();
    let step = match is_stateful {
        true => special::take(&mut inputs, sequence).map_err(|fault| refusal::special(&fault))?,
        false => SequenceStep::default(),
    };
    let names: Vec<&str> = inputs.keys().map(String::as_str).collect();
    check_names(model, name, &names, &step)?;
    let tensors = inputs.into_iter().map(|(input, tensor)| tensors::input(input, tensor, model, name));
    let inputs = tensors.collect::<Result<_, _>>()?;
    // Each answer has the sequence id, so it is no output to ask the model for.
    let outputs = output_filter.into_iter().filter(|output| !(is_stateful && output == SEQUENCE_ID)).collect();
    let id = AnswerId::new(is_stateful, &step);
    let (model_name, version) = (name.to_owned(), version.to_owned());
    Ok((PredictRequestParts { model: model_name, version, sequence: step, inputs, outputs }, id))
}

fn encode(answer: InferAnswer, id: AnswerId) -> PredictResponse {
    let id = id.find(&answer);
    let spec = model_spec(&answer.model, answer.version);
    let outputs = answer.outputs.into_iter().map(|output| (output.name, tensors::output(output.tensor)));
    let id = id.map(|id| (SEQUENCE_ID.to_owned(), tensors::id(id)));
    PredictResponse { outputs: outputs.chain(id).collect(), model_spec: Some(spec) }
}

/// The model and version that answered.
pub(super) fn model_spec(model: &str, version: u64) -> ModelSpec {
    ModelSpec {
        name: model.to_owned(),
        version_choice: Some(VersionChoice::Version(version.cast_signed())),
        signature_name: SIGNATURE.to_owned(),
    }
}
