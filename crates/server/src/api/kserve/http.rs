//! KServe v2 over HTTP: paths and headers.

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;

use super::body::{BodyRequest, JSON_LENGTH, json_length};
use super::path::{ModelPath, Path};
use super::response_format::ResponseFormat;
use super::surface::{CallNames, Kserve};
use super::{EXTENSIONS, answer, socket};
use crate::api::body::{ReceivedBody, receive, respond};
use crate::api::context::SEQUENCE_HEADER;
use crate::api::intake::Decoded;
use crate::api::order::{Turn, off_task};
use crate::api::refusal::{NOT_SERVED, unsent};
use crate::api::status::{HELP, REASON, is_grpc};
use crate::api::{Api, Code, RequestContext, Status, triton};
use crate::config::model::json::to_json;
use crate::model::InferAnswer;
use crate::telemetry::Surface;

/// The routes of the protocol.
pub fn routes(kserve: &Kserve) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/models/{model}", get(metadata))
        .route("/v2/models/{model}/versions/{version}", get(metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/versions/{version}/ready", get(model_ready))
        .route("/v2/models/{model}/config", get(config))
        .route("/v2/models/{model}/versions/{version}/config", get(config))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer))
        .route("/v2/models/{model}/stream", get(socket::open))
        .route("/v2/models/{model}/versions/{version}/stream", get(socket::open))
        .merge(super::manage::routes())
        .merge(super::generate::routes())
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(kserve.clone())
        .merge(health(kserve.api()))
}

/// The routes that answer probes.
pub fn health(api: &Api) -> Router {
    Router::new()
        .route("/v2/health/live", get(|| async { StatusCode::OK }))
        .route("/v2/health/ready", get(ready))
        .route("/livez", get(|| async { StatusCode::OK }))
        .route("/healthz", get(|| async { StatusCode::OK }))
        .route("/readyz", get(readyz))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(api.clone())
}

async fn method_not_allowed() -> Response {
    plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
}

/// Answers an unknown path. A gRPC call gets a gRPC status.
pub async fn not_found(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if is_grpc(&headers) && method == Method::POST {
        return not_served(&uri).response(&headers);
    }
    plain(StatusCode::NOT_FOUND, "Not Found")
}

/// Names the path in the refusal of an unknown method of a known gRPC service. The library's refusal has no text.
pub async fn named_refusal(uri: Uri, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let is_unknown = response.headers().get("grpc-status").is_some_and(|code| code == "12")
        && !response.headers().contains_key("grpc-message");
    if is_unknown { tonic::Status::from(not_served(&uri)).into_http() } else { response }
}

fn not_served(uri: &Uri) -> Status {
    Status::unimplemented(format!("{} is not served here", uri.path()))
}

/// A refusal of an unknown path or method, with Triton's text.
fn plain(code: StatusCode, text: &str) -> Response {
    let status = Status::unimplemented(text);
    (code, [(REASON, status.reason), (HELP, &status.help())], Json(json!({ "error": text }))).into_response()
}

async fn server() -> Response {
    let (name, version) = ("sequor", env!("CARGO_PKG_VERSION"));
    Json(json!({ "name": name, "version": version, "extensions": EXTENSIONS })).into_response()
}

async fn ready(State(api): State<Api>) -> StatusCode {
    if api.ready() { StatusCode::OK } else { StatusCode::BAD_REQUEST }
}

/// Reports readiness. If the server is not ready, the status is 503, which orchestrators expect.
async fn readyz(State(api): State<Api>) -> StatusCode {
    if api.ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

async fn metadata(State(kserve): State<Kserve>, Path(named): Path<ModelPath>) -> Result<Response, Status> {
    let model = kserve.find(&named.model, &named.version)?;
    Ok(Json(answer::metadata(&model.metadata())).into_response())
}

async fn model_ready(State(kserve): State<Kserve>, Path(named): Path<ModelPath>) -> Result<StatusCode, Status> {
    // Triton has one answer for a model that is not ready and for one that is unknown.
    let model = kserve.find(&named.model, &named.version).map_err(|status| match status.reason {
        NOT_SERVED => Status::new(Code::InvalidArgument, NOT_SERVED, "Model version not ready"),
        _ => status,
    })?;
    match model.unready() {
        Some(why) => {
            let text = format!("Model version not ready [{why}]");
            Err(Status::new(Code::InvalidArgument, NOT_SERVED, text))
        }
        None => Ok(StatusCode::OK),
    }
}

async fn config(State(kserve): State<Kserve>, Path(named): Path<ModelPath>) -> Result<Response, Status> {
    let model = kserve.find(&named.model, &named.version)?;
    Ok(Json(to_json(&model.config())).into_response())
}

async fn infer(
    State(kserve): State<Kserve>,
    Path(named): Path<ModelPath>,
    context: RequestContext,
    request: Request,
) -> Result<Response, Status> {
    let (parts, body) = request.into_parts();
    let ModelPath { model, version } = named.clone();
    let call = CallNames { surface: Surface::KserveHttp, model, version, id: String::new() };
    let (turn, request, form) = match read(&kserve, &context, named, &parts.headers, body).await {
        Ok((turn, decoded, form)) => (Some(turn), Ok(decoded), form),
        Err(status) => (None, Err(status), ResponseFormat::default()),
    };
    let answer = kserve.begin(&context, call, request);
    drop(turn);
    let (answer, count) = answer.by_deadline().await?;
    count.answer(response(&parts.headers, answer, form).await)
}

/// Builds the response with an answer, in the format that the client asked for.
async fn response(headers: &HeaderMap, answer: InferAnswer, form: ResponseFormat) -> Result<Response, Status> {
    let answer::EncodedBody { bytes, json_length } = answer::write_in_time(answer, form).await?;
    let response = match json_length {
        None => ([(header::CONTENT_TYPE, "application/json")], ()).into_response(),
        Some(length) => {
            let headers =
                [(header::CONTENT_TYPE.as_str(), "application/octet-stream"), (JSON_LENGTH, &length.to_string())];
            (headers, ()).into_response()
        }
    };
    respond(headers, response, bytes).await.map_err(|failure| unsent(triton::status(&failure)))
}

/// Reads and decodes a request. It keeps its turn among the requests of its connection until it is admitted.
async fn read(
    kserve: &Kserve,
    context: &RequestContext,
    named: ModelPath,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Turn, Decoded, ResponseFormat), Status> {
    let model = kserve.find(&named.model, &named.version)?;
    Kserve::check_coupled(&model, "HTTP end point doesn't support models with decoupled transaction policy")?;
    let json_length = json_length(headers)?;
    let ReceivedBody { turn, body, permit } = receive(kserve.api(), context, headers, body, triton::status).await?;
    let sequence = headers.get(SEQUENCE_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let request = BodyRequest { named, sequence, json_length, body };
    let (is_long, kserve) = (request.is_long(), kserve.clone());
    let decoded = off_task(is_long, move || request.decode(&kserve, model, permit)).await;
    let (decoded, form) = decoded.map_err(|failure| triton::status(&failure))??;
    Ok((turn, decoded, form))
}
