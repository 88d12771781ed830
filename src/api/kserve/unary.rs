//! One `ModelInfer` call. The dispatcher hands it over past the router, with its context as an argument.

use std::future::Future;
use std::pin::Pin;

use axum::body::HttpBody;
use axum::http;
use sequor_proto::{ModelInferRequest, ModelInferResponse};
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::metadata::MetadataMap;
use tonic::server::UnaryService;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::opening::{self, Opening};
use super::{ECHOED, encode};
use crate::api::{Api, RequestContext};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Answers `ModelInfer` calls.
#[derive(Debug, Clone)]
pub struct InferService {
    api: Api,
}

impl InferService {
    pub fn new(api: &Api) -> InferService {
        InferService { api: api.clone() }
    }

    /// Reads the call from an HTTP request and answers it.
    pub async fn call<B>(self, context: RequestContext, request: http::Request<B>) -> http::Response<tonic::body::Body>
    where
        B: HttpBody + Send + 'static,
        B::Error: Into<BoxError> + Send,
    {
        let (limit, call) = (self.api.limits().request, InferCall { api: self.api, context });
        let mut compressions = EnabledCompressionEncodings::default();
        for compression in REQUEST_COMPRESSIONS {
            compressions.enable(compression);
        }
        tonic::server::Grpc::new(ProstCodec::default())
            .apply_compression_config(compressions, EnabledCompressionEncodings::default())
            .apply_max_message_size_config(Some(limit), Some(usize::MAX))
            .unary(call, request)
            .await
    }
}

/// How requests may be compressed. Answers are not: most clients say that they accept compressed answers and few mean it.
pub(super) const REQUEST_COMPRESSIONS: [CompressionEncoding; 2] =
    [CompressionEncoding::Gzip, CompressionEncoding::Deflate];

/// A call whose message is still to come.
struct InferCall {
    api: Api,
    context: RequestContext,
}

impl UnaryService<ModelInferRequest> for InferCall {
    type Response = ModelInferResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ModelInferResponse>, Status>> + Send>>;

    fn call(&mut self, request: Request<ModelInferRequest>) -> Self::Future {
        Box::pin(infer(self.api.clone(), self.context.clone(), request))
    }
}

/// Answers one call.
pub(super) async fn infer(
    api: Api,
    context: RequestContext,
    request: Request<ModelInferRequest>,
) -> Result<Response<ModelInferResponse>, Status> {
    let (metadata, _, message) = request.into_parts();
    let call = opening::call(&message);
    let (request, form) = opening::read(&api, message, &Opening::of(&api, &metadata));
    let answer = api.infer(call, request, context.deadline).await?;
    Ok(echo(&metadata, encode::answer(answer, &form)?))
}

/// An answer that carries the marks the client put on its call.
pub(super) fn echo<T>(asked: &MetadataMap, answer: T) -> Response<T> {
    let mut response = Response::new(answer);
    for mark in ECHOED {
        if let Some(value) = asked.get(mark) {
            response.metadata_mut().insert(mark, value.clone());
        }
    }
    response
}
