//! KServe v2 over HTTP: the paths, and what travels in headers.

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::json;

use super::json::Head;
use super::{EXTENSIONS, SEQUENCE_HEADER, answer};
use crate::api::intake::Call;
use crate::api::{Api, Code, Status};
use crate::config::model::json::to_json;
use crate::telemetry::metrics::Surface;

/// Says where in a body the JSON ends and bytes begin.
const JSON_LENGTH: &str = "inference-header-content-length";

/// The paths of the protocol, and an answer for all others.
pub fn routes(api: &Api) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/health/live", get(|| async { StatusCode::OK }))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/{model}", get(metadata))
        .route("/v2/models/{model}/versions/{version}", get(metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/versions/{version}/ready", get(model_ready))
        .route("/v2/models/{model}/config", get(config))
        .route("/v2/models/{model}/versions/{version}/config", get(config))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer))
        .merge(super::manage::routes())
        .method_not_allowed_fallback(|| async { plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed") })
        .with_state(api.clone())
}

/// What is on no path. gRPC clients are answered in their own way.
pub async fn not_found(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let is_grpc =
        headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc && method == Method::POST {
        let status = Status::unimplemented(format!("{} is not served here", uri.path()));
        return tonic::Status::from(status).into_http::<Body>();
    }
    plain(StatusCode::NOT_FOUND, "Not Found")
}

fn plain(code: StatusCode, text: &str) -> Response {
    (code, Json(json!({ "error": text }))).into_response()
}

/// The model and version a path names.
#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct Named {
    pub(super) model: String,
    #[serde(default)]
    pub(super) version: String,
}

async fn server() -> Response {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    Json(json!({ "name": name, "version": version, "extensions": EXTENSIONS })).into_response()
}

async fn ready(State(api): State<Api>) -> StatusCode {
    if api.ready() { StatusCode::OK } else { StatusCode::BAD_REQUEST }
}

async fn metadata(State(api): State<Api>, Path(named): Path<Named>) -> Result<Response, Status> {
    let model = api.find(&named.model, &named.version)?;
    Ok(Json(answer::metadata(&model.metadata())).into_response())
}

async fn model_ready(State(api): State<Api>, Path(named): Path<Named>) -> Result<StatusCode, Status> {
    api.find(&named.model, &named.version)?;
    Ok(StatusCode::OK)
}

async fn config(State(api): State<Api>, Path(named): Path<Named>) -> Result<Response, Status> {
    let model = api.find(&named.model, &named.version)?;
    Ok(Json(to_json(&model.config())).into_response())
}

async fn infer(State(api): State<Api>, Path(named): Path<Named>, request: Request) -> Result<Response, Status> {
    let (parts, body) = request.into_parts();
    let Named { model, version } = named.clone();
    let call = Call { surface: Surface::KserveHttp, model, version, mark: String::new() };
    let read = read(&api, &named, &parts.headers, body).await;
    let (request, binary) = match read {
        Ok((request, binary)) => (Ok(request), binary),
        Err(status) => (Err(status), super::json::Binary::default()),
    };
    let answer = api.infer(call, request, None).await?;
    let body = answer::write(answer, &binary)?;
    Ok(match body.json_length {
        None => ([(header::CONTENT_TYPE, "application/json")], body.bytes).into_response(),
        Some(length) => {
            let headers =
                [(header::CONTENT_TYPE.as_str(), "application/octet-stream"), (JSON_LENGTH, &length.to_string())];
            (headers, body.bytes).into_response()
        }
    })
}

async fn read(
    api: &Api,
    named: &Named,
    headers: &HeaderMap,
    body: Body,
) -> Result<(crate::model::InferRequest, super::json::Binary), Status> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING).filter(|e| e.as_bytes() != b"identity") {
        return Err(Status::unimplemented(format!("content-encoding {encoding:?} is not served here")));
    }
    let body = collect(body, api.limits().request).await?;
    let head = Head {
        model: &named.model,
        version: &named.version,
        sequence: headers.get(SEQUENCE_HEADER).and_then(|value| value.to_str().ok()),
        json_length: json_length(headers)?,
    };
    let (request, binary) = super::json::infer(head, &body)?;
    let model = api.find(&named.model, &named.version)?;
    answer::check(&model.metadata(), &request.outputs, &binary)?;
    Ok((request, binary))
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Status> {
    let Some(value) = headers.get(JSON_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    let text = || format!("Inference-Header-Content-Length is no length: {value:?}");
    Ok(Some(length.ok_or_else(|| Status::new(Code::InvalidArgument, "bad_input", text()))?))
}

async fn collect(body: Body, limit: usize) -> Result<bytes::Bytes, Status> {
    Limited::new(body, limit).collect().await.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() {
            let text = format!("the request is larger than {limit} bytes (limits.request)");
            return Status::new(Code::TooLarge, "bad_input", text);
        }
        Status::new(Code::InvalidArgument, "bad_input", format!("the request's body could not be read: {error}"))
    })
}
