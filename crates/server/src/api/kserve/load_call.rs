//! The gRPC call `RepositoryModelLoad`. Its message may contain the files of a model, so it may be larger than that of other calls. It is not
//! read unless clients may load models. Its bytes count against `limits.queued` before memory is allocated for them.

use std::future::Future;
use std::pin::Pin;

use axum::Router;
use axum::extract::State;
use axum::http;
use axum::routing::post;
use bytes::Bytes;
use prost::Message as _;
use sequor_proto::{RepositoryModelLoadRequest, RepositoryModelLoadResponse};
use tonic::body::Body;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};

use super::grpc::given;
use super::surface::Kserve;
use crate::api::frames::{self, CallKind, RawCodec, Unpacked};
use crate::api::order::{INLINE_BYTES, off_task};
use crate::api::queued::QueuedBytesPermit;
use crate::api::wire::MessageFields;
use crate::api::{RequestContext, control, triton};
use crate::error::{ExceededLimit, Failure};

const PATH: &str = "/inference.GRPCInferenceService/RepositoryModelLoad";
/// The number of the field of parameters in the request.
const PARAMETERS: u64 = 3;

/// The route of the call.
pub fn route(kserve: &Kserve) -> Router {
    Router::new().route(PATH, post(call)).with_state(kserve.clone())
}

async fn call(
    State(kserve): State<Kserve>,
    context: RequestContext,
    request: http::Request<axum::body::Body>,
) -> http::Response<Body> {
    if let Err(status) = control::check_explicit(kserve.api()) {
        return Status::from(status).into_http();
    }
    let limit = kserve.api().limits().request();
    let (request, unpacked) = frames::unpack(kserve.api(), &context, CallKind::Unary, request);
    let mut compressions = EnabledCompressionEncodings::default();
    for compression in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
        compressions.enable(compression);
    }
    let mut grpc = Grpc::new(RawCodec::<RepositoryModelLoadResponse>::new(CallKind::Unary))
        .apply_compression_config(compressions, EnabledCompressionEncodings::default())
        .apply_max_message_size_config(Some(limit), None);
    let load = move |message| load(kserve.clone(), context.clone(), unpacked.pop(), message);
    grpc.unary(LoadCall(load), request).await
}

/// A call whose message has not been read yet.
struct LoadCall<F>(F);

type LoadResult = Result<Response<RepositoryModelLoadResponse>, Status>;

impl<F, L> UnaryService<Bytes> for LoadCall<F>
where
    F: FnMut(Bytes) -> L,
    L: Future<Output = LoadResult> + Send + 'static,
{
    type Response = RepositoryModelLoadResponse;
    type Future = Pin<Box<dyn Future<Output = LoadResult> + Send>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin((self.0)(request.into_inner()))
    }
}

async fn load(kserve: Kserve, context: RequestContext, unpacked: Option<Unpacked>, message: Bytes) -> LoadResult {
    let api = kserve.api();
    // A load keeps no turn: it is in no order with the requests of its connection.
    let permit = match unpacked {
        Some(Unpacked { permit, turn: _turn }) => permit,
        None => api.body_permit(&context, message.len()),
    };
    let (is_long, most) = (message.len() > INLINE_BYTES, api.limits().parameters());
    let decoded = off_task(is_long, move || decode(&message, permit, most)).await;
    let (request, permit) = decoded.map_err(|failure| triton::status(&failure))??;
    let RepositoryModelLoadRequest { repository_name, model_name: model, parameters } = request;
    control::check_repository(&repository_name)?;
    control::load_for_client(api, &context.caller, model, given(parameters), permit).await?;
    Ok(Response::new(RepositoryModelLoadResponse {}))
}

/// Decodes a message with at most this many parameters. The values are a second copy of its bytes.
fn decode(
    message: &Bytes,
    permit: Result<QueuedBytesPermit, Failure>,
    most: usize,
) -> Result<(RepositoryModelLoadRequest, QueuedBytesPermit), Status> {
    let refused = |failure: &Failure| triton::status(failure);
    let mut permit = permit.map_err(|failure| refused(&failure))?;
    if MessageFields(message).filter(|field| field.number == PARAMETERS).count() > most {
        let exceeded = ExceededLimit::Parts { what: "parameters", limit: most, setting: "limits.parameters" };
        return Err(refused(&exceeded.into()).into());
    }
    permit.grow(message.len() as u64).map_err(|exceeded| refused(&exceeded.into()))?;
    let request = RepositoryModelLoadRequest::decode(message.as_ref()).map_err(|error| {
        // The words of the library for all other calls.
        Status::internal(error.to_string())
    })?;
    Ok((request, permit))
}
