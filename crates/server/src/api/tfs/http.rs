//! TensorFlow Serving's paths over HTTP: predictions, status and metadata of models, and the reload of the repository.

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use sequor_proto::tensorflow::error::Code as WireCode;
use sequor_proto::tensorflow::serving::ModelVersionStatus;
use sequor_proto::tensorflow::serving::model_version_status::State as VersionState;
use sequor_proto::tensorflow::{DataType as WireType, TensorInfo};
use serde_json::{Map, Value, json};

use super::grpc::{SIGNATURE_DEF, SIGNATURE_TYPE};
use super::json::{BodyLayout, ParsedBody, PredictBodyHead, parse};
use super::path::{ModelAction, PredictPath};
use super::special::AnswerId;
use super::surface::{DecodedPredict, Tfs};
use super::{SIGNATURE, json_answer, models, refusal};
use crate::api::body::{ReceivedBody, receive, respond};
use crate::api::context::{CallerOf, SEQUENCE_HEADER};
use crate::api::its_load::for_its_load;
use crate::api::order::{INLINE_BYTES, Turn, off_task};
use crate::api::path::Path;
use crate::api::queued::QueuedBytesPermit;
use crate::api::refusal::unsent;
use crate::api::status::{HELP, REASON};
use crate::api::{Code, RequestContext, Retry, Status};
use crate::error::Failure;
use crate::model::{InferAnswer, ModelHandle};
use crate::telemetry::Surface;

/// The paths of the protocol.
pub fn routes(tfs: &Tfs) -> Router {
    Router::new()
        .route("/v1/config", get(config))
        .route("/v1/config/reload", post(reload))
        .route("/v1/models/{*path}", get(look).post(predict))
        .route("/v1/{*path}", any(|| async { bad_path() }))
        .method_not_allowed_fallback(|| async {
            (StatusCode::NOT_ACCEPTABLE, Json(json!({ "error": "Unsupported method" }))).into_response()
        })
        .with_state(tfs.clone())
}

/// A refusal that is rendered in this protocol's form.
struct RefusedResponse(Status);

impl From<Status> for RefusedResponse {
    fn from(status: Status) -> RefusedResponse {
        RefusedResponse(status)
    }
}

impl IntoResponse for RefusedResponse {
    fn into_response(self) -> Response {
        let RefusedResponse(status) = self;
        let code = StatusCode::from_u16(status.code.tfs_http()).unwrap_or_default();
        let body = Json(json!({ "error": status.message }));
        let retry = match status.retry {
            Retry::After(span) => Some([("retry-after", span.as_millis().div_ceil(1000).max(1).to_string())]),
            Retry::Unsaid | Retry::Never => None,
        };
        (code, [(REASON, status.reason), (HELP, &status.help())], retry, body).into_response()
    }
}

fn bad_path() -> RefusedResponse {
    RefusedResponse(Status::new(Code::InvalidArgument, crate::api::refusal::NOT_SERVED, "Invalid request URL"))
}

/// Parses the path of a model. A version label, or a version that is not a number, is refused.
fn named(path: &str) -> Result<PredictPath, RefusedResponse> {
    let named = PredictPath::parse(path).ok_or_else(bad_path)?;
    if !named.version.is_empty() && named.version.parse::<i64>().is_err() {
        return Err(RefusedResponse(refusal::bad_input("Could not parse model version in request")));
    }
    match &named.label {
        Some(label) => Err(RefusedResponse(refusal::label(label))),
        None => Ok(named),
    }
}

// === status and metadata ===

async fn look(State(tfs): State<Tfs>, Path(path): Path<String>) -> Result<Response, RefusedResponse> {
    let PredictPath { model, version, action, .. } = named(&path)?;
    match action {
        ModelAction::Status => {
            let versions = models::statuses(tfs.api(), &model, &version).await?;
            Ok(Json(status_json(&versions)).into_response())
        }
        ModelAction::Metadata => {
            let served = tfs.find(&model, &version)?;
            Ok(Json(metadata_json(&model, served.version(), &served.metadata())).into_response())
        }
        ModelAction::Predict | ModelAction::NotServed => {
            Ok((StatusCode::NOT_ACCEPTABLE, Json(json!({ "error": "Unsupported method" }))).into_response())
        }
    }
}

fn status_json(versions: &[ModelVersionStatus]) -> Value {
    let version = |of: &ModelVersionStatus| {
        let status = of.status.clone().unwrap_or_default();
        let state = VersionState::try_from(of.state).unwrap_or_default();
        let code = WireCode::try_from(status.error_code).unwrap_or_default();
        json!({
            "version": of.version.to_string(),
            "state": state.as_str_name(),
            "status": { "error_code": code.as_str_name(), "error_message": status.error_message },
        })
    };
    json!({ "model_version_status": versions.iter().map(version).collect::<Vec<_>>() })
}

fn metadata_json(model: &str, version: u64, metadata: &crate::model::Metadata) -> Value {
    let info = |tensor: &TensorInfo| {
        let dims = tensor.tensor_shape.iter().flat_map(|shape| &shape.dim);
        let dims: Vec<Value> = dims.map(|dim| json!({ "size": dim.size.to_string(), "name": "" })).collect();
        let dtype = WireType::try_from(tensor.dtype).unwrap_or_default().as_str_name();
        json!({ "dtype": dtype, "tensorShape": { "dim": dims, "unknownRank": false }, "name": tensor.name })
    };
    let signatures = models::signatures(metadata).signature_def;
    let signatures = signatures.iter().map(|(name, signature)| {
        let infos = |tensors: &std::collections::BTreeMap<String, TensorInfo>| {
            tensors.iter().map(|(name, tensor)| (name.clone(), info(tensor))).collect::<Map<_, _>>()
        };
        let (inputs, outputs) = (infos(&signature.inputs), infos(&signature.outputs));
        let method = &signature.method_name;
        (name.clone(), json!({ "inputs": inputs, "outputs": outputs, "methodName": method }))
    });
    let signatures: Map<String, Value> = signatures.collect();
    json!({
        "modelSpec": { "name": model, "signatureName": SIGNATURE, "version": version.to_string() },
        "metadata": { SIGNATURE_DEF: { "@type": SIGNATURE_TYPE, "signatureDef": signatures } },
    })
}

async fn config(State(tfs): State<Tfs>) -> Result<Response, RefusedResponse> {
    Ok(Json(all_json(&tfs).await?).into_response())
}

async fn all_json(tfs: &Tfs) -> Result<Value, RefusedResponse> {
    let all = models::all(tfs.api()).await?;
    let all: Map<String, Value> = all.into_iter().map(|(name, versions)| (name, status_json(&versions))).collect();
    Ok(Value::Object(all))
}

/// Scans the model repository once. The HTTP status shows whether anything has changed.
async fn reload(State(tfs): State<Tfs>, CallerOf(caller): CallerOf) -> Result<Response, RefusedResponse> {
    let (api, repository) = (tfs.api().clone(), tfs.api().repository().clone());
    let reload = move || -> Result<bool, Failure> {
        let changed = repository.reload()?;
        // Noted here, because the client may no longer wait.
        if changed {
            api.changes().note(&caller, "model reload", "repository", Ok(()));
        }
        Ok(changed)
    };
    let reloaded = off_task(true, reload).await.map_err(|failure| refusal::status(&failure))?;
    let changed = reloaded.map_err(|failure| refusal::status(&failure))?;
    let code = if changed { StatusCode::CREATED } else { StatusCode::OK };
    Ok((code, Json(all_json(&tfs).await?)).into_response())
}

// === predictions ===

async fn predict(
    State(tfs): State<Tfs>,
    Path(path): Path<String>,
    context: RequestContext,
    request: Request,
) -> Result<Response, RefusedResponse> {
    let PredictPath { model, version, action, .. } = named(&path)?;
    match action {
        ModelAction::Predict => {}
        ModelAction::NotServed => {
            return Err(RefusedResponse(Status::unimplemented(":classify and :regress are not served; use :predict")));
        }
        ModelAction::Status | ModelAction::Metadata => {
            return Ok((StatusCode::NOT_ACCEPTABLE, Json(json!({ "error": "Unsupported method" }))).into_response());
        }
    }
    let (parts, body) = request.into_parts();
    let (turn, decoded, layout, id) = match read(&tfs, &context, (&model, &version), &parts.headers, body).await {
        Ok((turn, decoded, layout, id)) => (Some(turn), Ok(decoded), layout, id),
        Err(status) => (None, Err(status), BodyLayout::Column, AnswerId::None),
    };
    let (answer, count) = tfs.answer(&context, Surface::TfsHttp, decoded, (&model, &version), turn).await?;
    Ok(count.answer(written(&parts.headers, answer, layout, id).await)?)
}

/// Builds the response with an answer, in the form that the client asked for.
async fn written(
    headers: &HeaderMap,
    answer: InferAnswer,
    layout: BodyLayout,
    id: AnswerId,
) -> Result<Response, Status> {
    let is_long = answer.tensor_bytes() > INLINE_BYTES;
    let written = off_task(is_long, move || json_answer::write(&answer, layout, id)).await;
    let lost = |failure: Failure| unsent(refusal::status(&failure));
    let bytes = written.map_err(lost)??;
    let response = ([(header::CONTENT_TYPE, "application/json")], ()).into_response();
    respond(headers, response, bytes).await.map_err(lost)
}

/// Reads and decodes a request. It keeps its turn among the requests of its connection until it is admitted.
async fn read(
    tfs: &Tfs,
    context: &RequestContext,
    (model, version): (&str, &str),
    headers: &HeaderMap,
    body: Body,
) -> Result<(Turn, DecodedPredict, BodyLayout, AnswerId), Status> {
    let served = tfs.find(model, version)?;
    let received = receive(tfs.api(), context, headers, body, refusal::status).await?;
    let ReceivedBody { turn, body, mut permit } = received;
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let sequence = text(SEQUENCE_HEADER).map(str::to_owned);
    let (is_long, limits) = (body.len() > INLINE_BYTES, tfs.api().limits().of_request());
    let (name, version) = (model.to_owned(), version.to_owned());
    let decoded = off_task(is_long, move || {
        let sequence = sequence.as_deref();
        let decode = |of: &ModelHandle, body: Bytes, permit: &mut QueuedBytesPermit| {
            let head = PredictBodyHead { name: &name, version: &version, model: of, sequence, limits: &limits };
            parse(&head, &body, permit)
        };
        let ParsedBody { parts, layout, id } =
            for_its_load(&served, body, &mut permit, decode, |body| &body.parts.sequence)?;
        Ok::<_, Status>((DecodedPredict { model: served, parts, permit }, layout, id))
    });
    let (decoded, layout, id) = decoded.await.map_err(|failure| refusal::status(&failure))??;
    Ok((turn, decoded, layout, id))
}
