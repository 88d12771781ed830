//! `generate` and `generate_stream`: inference with one flat JSON object each way. A model answers each request once, so a stream has one event.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;

use super::answer;
use super::generate_json::{self, GenerateHead, GenerateRequest};
use super::path::{ModelPath, Path};
use super::response_format::ResponseFormat;
use super::surface::{CallNames, Kserve};
use crate::api::body::{ReceivedBody, receive};
use crate::api::context::SEQUENCE_HEADER;
use crate::api::intake::Decoded;
use crate::api::its_load::for_its_load;
use crate::api::order::{INLINE_BYTES, Turn, off_task};
use crate::api::queued::QueuedBytesPermit;
use crate::api::refusal::unsent;
use crate::api::{Code, RequestContext, Status, triton};
use crate::model::ModelHandle;
use crate::telemetry::Surface;

pub(super) fn routes() -> Router<Kserve> {
    Router::new()
        .route("/v2/models/{model}/generate", post(generate))
        .route("/v2/models/{model}/versions/{version}/generate", post(generate))
        .route("/v2/models/{model}/generate_stream", post(generate_stream))
        .route("/v2/models/{model}/versions/{version}/generate_stream", post(generate_stream))
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

async fn generate(
    State(kserve): State<Kserve>,
    Path(named): Path<ModelPath>,
    context: RequestContext,
    request: Request,
) -> Result<Response, Status> {
    let mut body = Vec::new();
    answered(&kserve, &context, named, request, &mut body).await?;
    Ok(response(JSON, body))
}

/// Sends the answer as the only event. A refused request gets its HTTP status, as on other paths.
async fn generate_stream(
    State(kserve): State<Kserve>,
    Path(named): Path<ModelPath>,
    context: RequestContext,
    request: Request,
) -> Result<Response, Status> {
    let mut body = b"data: ".to_vec();
    answered(&kserve, &context, named, request, &mut body).await?;
    body.extend_from_slice(b"\n\n");
    Ok(response(EVENTS, body))
}

fn response(content: &'static str, body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, content)], body).into_response()
}

/// Runs a request, and appends its answer to `out`.
async fn answered(
    kserve: &Kserve,
    context: &RequestContext,
    named: ModelPath,
    request: Request,
    out: &mut Vec<u8>,
) -> Result<(), Status> {
    let ModelPath { model, version } = named.clone();
    let call = CallNames { surface: Surface::KserveHttp, model, version, id: String::new() };
    let (turn, decoded, note) = match read(kserve, context, named, request).await {
        Ok((turn, decoded, note)) => (Some(turn), Ok(decoded), note),
        Err(status) => (None, Err(status), None),
    };
    let answer = kserve.begin(context, call, decoded);
    drop(turn);
    let (answer, count) = answer.by_deadline().await.map_err(|mut status| {
        if status.code == Code::InvalidArgument {
            status.message.extend(note);
        }
        status
    })?;
    let (is_long, mut body) = (answer.tensor_bytes() > INLINE_BYTES, std::mem::take(out));
    let written = off_task(is_long, move || generate_json::write(&mut body, answer).map(|()| body)).await;
    let written = written.map_err(|failure| unsent(triton::status(&failure))).and_then(|written| written);
    *out = count.answer(written)?;
    Ok(())
}

/// Reads and decodes a request. Also returns the note for a later refusal. The request keeps its turn on its connection until it is
/// admitted.
async fn read(
    kserve: &Kserve,
    context: &RequestContext,
    named: ModelPath,
    request: Request,
) -> Result<(Turn, Decoded, Option<String>), Status> {
    let model = kserve.find(&named.model, &named.version)?;
    let (parts, body) = request.into_parts();
    let received = receive(kserve.api(), context, &parts.headers, body, triton::status).await?;
    let ReceivedBody { turn, body, mut permit } = received;
    let (sequence, limits, is_long) =
        (sequence(&parts.headers), kserve.api().limits().of_request(), body.len() > INLINE_BYTES);
    let decode = move || {
        let decode = |of: &ModelHandle, body: Bytes, permit: &mut QueuedBytesPermit| {
            let metadata = of.metadata();
            answer::check(&metadata, &[], &ResponseFormat::default())?;
            let head = GenerateHead {
                model: &named.model,
                version: &named.version,
                sequence: sequence.as_deref(),
                metadata: &metadata,
                batching: of.config().max_batch_size > 0,
                limits: &limits,
            };
            generate_json::request(head, &body, permit)
        };
        let decoded = for_its_load(&model, body, &mut permit, decode, |decoded| &decoded.request.sequence)?;
        let GenerateRequest { request, note } = decoded;
        Ok::<_, Status>((Decoded { model, request, permit }, note))
    };
    let decoded = off_task(is_long, decode).await;
    let (decoded, note) = decoded.map_err(|failure| triton::status(&failure))??;
    Ok((turn, decoded, note))
}

/// The sequence id of the header that proxies hash.
fn sequence(headers: &HeaderMap) -> Option<String> {
    headers.get(SEQUENCE_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
