//! The HTTP paths for operators and their tools: statistics, repository, shared memory, settings.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::path::{ModelPath, Path};
use super::settings::{self, LogSetting, TraceSettings};
use super::shared_memory::{self, Region};
use super::statistics;
use super::surface::Kserve;
use crate::api::body::{ReceivedBody, collect_short, parse_object, receive};
use crate::api::context::CallerOf;
use crate::api::order::{INLINE_BYTES, off_task};
use crate::api::peers::PeerKey;
use crate::api::{Code, RequestContext, Status, control, triton};

pub(super) fn routes() -> Router<Kserve> {
    Router::new()
        .route("/v2/models/stats", get(all_statistics))
        .route("/v2/models/{model}/stats", get(model_statistics))
        .route("/v2/models/{model}/versions/{version}/stats", get(model_statistics))
        .route("/v2/repository/index", post(index))
        .route("/v2/repository/models/{model}/load", post(load))
        .route("/v2/repository/models/{model}/unload", post(unload))
        .route("/v2/repository/{repository}/index", post(other_repository))
        .route("/v2/repository/{repository}/models/{model}/load", post(other_repository))
        .route("/v2/repository/{repository}/models/{model}/unload", post(other_repository))
        .route("/v2/trace/setting", get(trace).post(set_trace))
        .route("/v2/models/{model}/trace/setting", get(model_trace).post(set_model_trace))
        .route("/v2/logging", get(log).post(set_log))
        .route("/v2/systemsharedmemory/status", get(regions))
        .route("/v2/systemsharedmemory/region/{region}/status", get(region))
        .route("/v2/systemsharedmemory/region/{region}/register", post(register))
        .route("/v2/systemsharedmemory/unregister", post(unregister_all))
        .route("/v2/systemsharedmemory/region/{region}/unregister", post(unregister))
        .route("/v2/cudasharedmemory/status", get(cuda_regions))
        .route("/v2/cudasharedmemory/region/{region}/status", get(cuda_region))
        .route("/v2/cudasharedmemory/region/{region}/register", post(register_cuda))
        .route("/v2/cudasharedmemory/unregister", post(unregister_cuda))
        .route("/v2/cudasharedmemory/region/{region}/unregister", post(unregister_cuda))
}

/// A short request body.
struct ShortBody(Bytes);

impl<S: Sync> FromRequest<S> for ShortBody {
    type Rejection = Status;

    async fn from_request(request: Request, _: &S) -> Result<ShortBody, Status> {
        collect_short(request.into_body()).await.map(ShortBody)
    }
}

/// Parses a body that may be absent.
fn read<'b, T: Deserialize<'b> + Default>(body: &'b Bytes) -> Result<T, Status> {
    if body.is_empty() {
        return Ok(T::default());
    }
    parse_object(body).map_err(|e| {
        Status::new(Code::InvalidArgument, "bad_input", format!("failed to parse the request JSON buffer: {e}"))
    })
}

// === statistics ===

async fn all_statistics(State(kserve): State<Kserve>) -> Result<Json<Value>, Status> {
    Ok(Json(statistics::json(&statistics::response(kserve.statistics("", "")?))))
}

async fn model_statistics(State(kserve): State<Kserve>, Path(of): Path<ModelPath>) -> Result<Json<Value>, Status> {
    Ok(Json(statistics::json(&statistics::response(kserve.statistics(&of.model, &of.version)?))))
}

// === the repository ===

#[derive(Deserialize, Default)]
#[serde(default)]
struct RepositoryRequest {
    ready: bool,
    parameters: Map<String, Value>,
}

/// A path that names a repository.
#[derive(Deserialize)]
struct Other {
    repository: String,
}

impl RepositoryRequest {
    fn parameters(self) -> control::ControlParameters {
        self.parameters.into_iter().map(|(key, value)| (key, value.into())).collect()
    }
}

async fn index(State(kserve): State<Kserve>, ShortBody(body): ShortBody) -> Result<Json<Value>, Status> {
    let models = control::index(kserve.api(), read::<RepositoryRequest>(&body)?.ready).await?;
    let row = |row: &sequor_proto::repository_index_response::ModelIndex| {
        if row.version.is_empty() && row.state.is_empty() {
            return json!({ "name": row.name });
        }
        json!({ "name": row.name, "version": row.version, "state": row.state, "reason": row.reason })
    };
    Ok(Json(models.iter().map(row).collect()))
}

async fn load(
    State(kserve): State<Kserve>,
    Path(of): Path<ModelPath>,
    context: RequestContext,
    request: Request,
) -> Result<StatusCode, Status> {
    let (parts, body) = request.into_parts();
    // The request may contain files of the model.
    let received = receive(kserve.api(), &context, &parts.headers, body, triton::status).await?;
    let ReceivedBody { turn, body, mut permit } = received;
    // A load takes long, and the requests of its connection do not wait for it.
    drop(turn);
    let is_long = body.len() > INLINE_BYTES;
    let parsed = move || {
        if is_long {
            // The parsed parameters are a second copy.
            permit.grow(body.len() as u64).map_err(|exceeded| triton::status(&exceeded.into()))?;
        }
        Ok::<_, Status>((read::<RepositoryRequest>(&body)?.parameters(), permit))
    };
    let (parameters, permit) = off_task(is_long, parsed).await.map_err(|failure| triton::status(&failure))??;
    control::load_for_client(kserve.api(), &context.caller, of.model, parameters, permit).await?;
    Ok(StatusCode::OK)
}

async fn unload(
    State(kserve): State<Kserve>,
    Path(of): Path<ModelPath>,
    CallerOf(caller): CallerOf,
    ShortBody(body): ShortBody,
) -> Result<StatusCode, Status> {
    let parameters = read::<RepositoryRequest>(&body)?.parameters();
    control::unload_for_client(kserve.api(), &caller, of.model, parameters).await?;
    Ok(StatusCode::OK)
}

async fn other_repository(Path(of): Path<Other>) -> Result<(), Status> {
    control::check_repository(&of.repository)
}

// === shared memory ===

/// A path that names a region.
#[derive(Deserialize)]
struct OfRegion {
    region: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Registration {
    key: String,
    offset: u64,
    byte_size: u64,
}

fn region_status(kserve: &Kserve, name: &str) -> Result<Json<Value>, Status> {
    let regions = kserve.regions().status(name)?;
    let row = |region: &Arc<Region>| {
        let Region { name, key, offset, size, .. } = &**region;
        json!({ "name": name, "key": key, "offset": offset, "byte_size": size })
    };
    Ok(Json(regions.iter().map(row).collect()))
}

async fn regions(State(kserve): State<Kserve>) -> Result<Json<Value>, Status> {
    region_status(&kserve, "")
}

async fn region(State(kserve): State<Kserve>, Path(of): Path<OfRegion>) -> Result<Json<Value>, Status> {
    region_status(&kserve, &of.region)
}

async fn register(
    State(kserve): State<Kserve>,
    Path(of): Path<OfRegion>,
    CallerOf(caller): CallerOf,
    ShortBody(body): ShortBody,
) -> Result<StatusCode, Status> {
    let Registration { key, offset, byte_size } = read(&body)?;
    kserve.regions().register(PeerKey::of(&caller), &of.region, &key, (offset, byte_size))?;
    Ok(StatusCode::OK)
}

async fn unregister_all(State(kserve): State<Kserve>) -> StatusCode {
    kserve.regions().unregister("");
    StatusCode::OK
}

async fn unregister(State(kserve): State<Kserve>, Path(of): Path<OfRegion>) -> StatusCode {
    kserve.regions().unregister(&of.region);
    StatusCode::OK
}

async fn cuda_regions() -> Json<Value> {
    Json(json!([]))
}

async fn cuda_region(Path(of): Path<OfRegion>) -> Result<Json<Value>, Status> {
    shared_memory::no_cuda_status(&of.region)?;
    Ok(Json(json!([])))
}

async fn register_cuda(Path(of): Path<OfRegion>) -> Status {
    shared_memory::no_cuda(&of.region)
}

/// The server has no such regions. Clients clean up without knowing that.
async fn unregister_cuda() -> StatusCode {
    StatusCode::OK
}

// === settings ===

async fn trace(State(kserve): State<Kserve>) -> Result<Json<Value>, Status> {
    update_trace(&kserve, "", TraceSettings::new())
}

async fn model_trace(State(kserve): State<Kserve>, Path(of): Path<ModelPath>) -> Result<Json<Value>, Status> {
    update_trace(&kserve, &of.model, TraceSettings::new())
}

async fn set_trace(State(kserve): State<Kserve>, ShortBody(body): ShortBody) -> Result<Json<Value>, Status> {
    update_trace(&kserve, "", trace_changes(&body)?)
}

async fn set_model_trace(
    State(kserve): State<Kserve>,
    Path(of): Path<ModelPath>,
    ShortBody(body): ShortBody,
) -> Result<Json<Value>, Status> {
    update_trace(&kserve, &of.model, trace_changes(&body)?)
}

fn update_trace(kserve: &Kserve, model: &str, changes: TraceSettings) -> Result<Json<Value>, Status> {
    if !model.is_empty() {
        kserve.find(model, "")?;
    }
    let settings = kserve.traces().update(model, changes)?;
    // The level is a list in the protocol; every other setting is one text.
    let value = |(key, values): (String, Vec<String>)| {
        let value = if key == "trace_level" { json!(values) } else { values.into_iter().next().into() };
        (key, value)
    };
    Ok(Json(Value::Object(settings.into_iter().map(value).collect())))
}

fn trace_changes(body: &Bytes) -> Result<TraceSettings, Status> {
    let text = |key: &str, value: Value| match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(Status::new(
            Code::InvalidArgument,
            "bad_input",
            format!("expect string or list of strings for '{key}'"),
        )),
    };
    let setting = |(key, value): (String, Value)| {
        let values = match value {
            Value::Null => Vec::new(),
            Value::Array(list) => list.into_iter().map(|v| text(&key, v)).collect::<Result<_, _>>()?,
            one => vec![text(&key, one)?],
        };
        Ok((key, values))
    };
    read::<Map<String, Value>>(body)?.into_iter().map(setting).collect()
}

async fn log() -> Result<Json<Value>, Status> {
    update_log(Vec::new())
}

async fn set_log(ShortBody(body): ShortBody) -> Result<Json<Value>, Status> {
    let setting = |(key, value): (String, Value)| {
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        let value = match (value, number) {
            (Value::Bool(flag), _) => LogSetting::Bool(flag),
            (Value::String(text), _) => LogSetting::Text(text),
            (_, Some(number)) => LogSetting::Number(number),
            _ => {
                let text = format!("'{key}' is no boolean, unsigned integer or string");
                return Err(Status::new(Code::InvalidArgument, "bad_input", text));
            }
        };
        Ok((key, value))
    };
    update_log(read::<Map<String, Value>>(&body)?.into_iter().map(setting).collect::<Result<_, _>>()?)
}

fn update_log(changes: Vec<(String, LogSetting)>) -> Result<Json<Value>, Status> {
    let value = |(key, value): (&str, LogSetting)| {
        let value = match value {
            LogSetting::Bool(flag) => flag.into(),
            LogSetting::Number(number) => number.into(),
            LogSetting::Text(text) => text.into(),
        };
        (key.to_owned(), value)
    };
    Ok(Json(Value::Object(settings::update_log(changes)?.into_iter().map(value).collect())))
}
