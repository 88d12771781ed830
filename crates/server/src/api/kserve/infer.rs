//! The two inference calls, `ModelInfer` and `ModelStreamInfer`. The dispatcher calls them directly, without the router.

use std::future::Future;
use std::pin::Pin;

use axum::body::HttpBody;
use axum::http;
use bytes::Bytes;
use tonic::body::Body;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};

use super::encode;
use super::message::{CallMetadata, ReadMessage, ScannedMessage};
use super::reply_queue::{self, Replies};
use super::stream::StreamTask;
use super::surface::Kserve;
use crate::api::frames::{self, CallKind, RawCodec, Unpacked, UnpackedQueue};
use crate::api::order::off_task;
use crate::api::{RequestContext, triton};
use sequor_proto::{ModelInferResponse, ModelStreamInferResponse};

type CallFuture<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

/// Answers the inference calls.
#[derive(Debug, Clone)]
pub struct InferService {
    kserve: Kserve,
}

impl InferService {
    pub fn new(kserve: &Kserve) -> InferService {
        InferService { kserve: kserve.clone() }
    }

    /// Answers a `ModelInfer` call.
    pub async fn call<B>(self, context: RequestContext, request: http::Request<B>) -> http::Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError> + Send,
    {
        let (request, unpacked) = frames::unpack(self.kserve.api(), &context, CallKind::Unary, request);
        let mut grpc = self.grpc::<ModelInferResponse>(CallKind::Unary);
        grpc.unary(InferCall(Some((self.kserve, context, unpacked))), request).await
    }

    /// Answers a `ModelStreamInfer` call. Its task runs within the connection.
    pub async fn stream<B>(self, context: RequestContext, request: http::Request<B>) -> http::Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError> + Send,
    {
        let (request, unpacked) = frames::unpack(self.kserve.api(), &context, CallKind::Stream, request);
        let mut grpc = self.grpc::<ModelStreamInferResponse>(CallKind::Stream);
        grpc.streaming(StreamCall { kserve: self.kserve, context, unpacked }, request).await
    }

    /// Accepts compressed requests, but compresses no answers: most clients announce support for compressed answers and few want them.
    fn grpc<T: prost::Message + 'static>(&self, kind: CallKind) -> Grpc<RawCodec<T>> {
        let mut compressions = EnabledCompressionEncodings::default();
        for compression in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
            compressions.enable(compression);
        }
        Grpc::new(RawCodec::new(kind))
            .apply_compression_config(compressions, EnabledCompressionEncodings::default())
            .apply_max_message_size_config(Some(self.kserve.api().limits().request()), Some(usize::MAX))
    }
}

/// A call whose message has not been read yet. `None` once it has.
struct InferCall(Option<(Kserve, RequestContext, UnpackedQueue)>);

impl UnaryService<Bytes> for InferCall {
    type Response = ModelInferResponse;
    type Future = CallFuture<ModelInferResponse>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        match self.0.take() {
            Some((kserve, context, unpacked)) => Box::pin(infer(kserve, context, unpacked.pop(), request)),
            None => Box::pin(std::future::ready(Err(Status::internal("a unary call has one message")))),
        }
    }
}

/// Triton's refusal of single calls to models with `decoupled`.
const DECOUPLED: &str = "ModelInfer RPC doesn't support models with decoupled transaction policy";

/// Answers one call.
async fn infer(
    kserve: Kserve,
    context: RequestContext,
    unpacked: Option<Unpacked>,
    request: Request<Bytes>,
) -> Result<Response<ModelInferResponse>, Status> {
    let (metadata, _, message) = request.into_parts();
    // What few calls wait for is boxed, so that the future of every call is small.
    let Unpacked { permit, turn } = match unpacked.or_else(|| Unpacked::now(kserve.api(), &context, message.len())) {
        Some(unpacked) => unpacked,
        None => Box::pin(Unpacked::in_turn(kserve.api(), &context, message.len())).await,
    };
    let scanned = ScannedMessage::new(&kserve, message, permit);
    let call_metadata = CallMetadata::from_metadata(&metadata);
    let ReadMessage { call, request, form } = match scanned.is_long() {
        false => scanned.decode(&kserve, &call_metadata)?,
        true => Box::pin(decode_elsewhere(kserve.clone(), scanned, call_metadata)).await?,
    };
    let request = request.and_then(|decoded| Kserve::check_coupled(&decoded.model, DECOUPLED).map(|()| decoded));
    let answer = kserve.begin(&context, call, request).by_deadline();
    drop(turn);
    let (answer, count) = answer.await?;
    let message = match encode::is_long(&answer, &form) {
        false => encode::answer(answer, &form),
        true => Box::pin(encode::answer_in_time(answer, form)).await,
    };
    Ok(Response::new(count.answer(message)?))
}

/// Decodes a large message on another thread.
async fn decode_elsewhere(
    kserve: Kserve,
    scanned: ScannedMessage,
    metadata: CallMetadata,
) -> Result<ReadMessage, Status> {
    let decoded = off_task(true, move || scanned.decode(&kserve, &metadata)).await;
    decoded.map_err(|failure| triton::status(&failure))?
}

/// A stream that has not begun yet.
struct StreamCall {
    kserve: Kserve,
    context: RequestContext,
    unpacked: UnpackedQueue,
}

impl StreamingService<Bytes> for StreamCall {
    type Response = ModelStreamInferResponse;
    type ResponseStream = Replies<ModelStreamInferResponse>;
    type Future = CallFuture<Replies<ModelStreamInferResponse>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let (metadata, _, messages) = request.into_parts();
        let (sender, replies) = reply_queue::reply_queue();
        let (call_metadata, kserve, context) =
            (CallMetadata::from_metadata(&metadata), self.kserve.clone(), self.context.clone());
        let task = StreamTask::new(kserve, context, call_metadata, messages, self.unpacked.clone(), sender);
        match &self.context.connection {
            Some(connection) => connection.spawn(task),
            None => drop(tokio::spawn(task)),
        }
        Box::pin(std::future::ready(Ok(Response::new(replies))))
    }
}
