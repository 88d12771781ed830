//! The handlers of the admin paths: they turn a request into an operation, and its result into JSON. `routes` maps paths to handlers.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{BytesRejection, JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse};
use bytes::Bytes;
use sequor_wasm::journal::LogLine;
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::ReloadReport;
use super::plugins::ComponentSource;
use super::sequence_list::{SequenceQuery, SequenceRow};
use super::sequences;
use super::status::{StatusReport, VersionStatus};
use super::why::Explanation;
use super::{Admin, LARGEST_COMPONENT, page, refused};
use crate::api::context::CallerOf;
use crate::api::path::Path;
use crate::api::{Code, Status};
use crate::config::server::Shown;
use crate::config::units::Span;
use crate::scheduling::report::{Attach, Summary};

/// Maximum time for which a request for more log lines is held.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub(super) type NamePath = Path<String>;
pub(super) type JsonResult<T> = Result<Json<T>, Status>;

// === the server ===

pub(super) async fn status_page(State(admin): State<Admin>) -> Result<Html<String>, Status> {
    Ok(Html(page::page(&admin.report().await?)))
}

pub(super) async fn report(State(admin): State<Admin>) -> JsonResult<StatusReport> {
    Ok(Json(admin.report().await?))
}

pub(super) async fn config(State(admin): State<Admin>) -> Json<Vec<Shown>> {
    Json(admin.settings())
}

pub(super) async fn reload(State(admin): State<Admin>, CallerOf(caller): CallerOf) -> JsonResult<ReloadReport> {
    Ok(Json(admin.reload(&caller).await?))
}

pub(super) async fn drain(State(admin): State<Admin>, CallerOf(caller): CallerOf) -> StatusCode {
    admin.drain(&caller);
    StatusCode::ACCEPTED
}

// === models ===

pub(super) async fn models(State(admin): State<Admin>) -> JsonResult<Vec<VersionStatus>> {
    Ok(Json(admin.versions().await?))
}

pub(super) async fn load_model(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(name): NamePath,
) -> JsonResult<Value> {
    admin.load_model(&caller, name).await.map(|()| Json(json!({})))
}

pub(super) async fn unload_model(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(name): NamePath,
) -> JsonResult<Value> {
    admin.unload_model(&caller, name).await.map(|()| Json(json!({})))
}

// === sequences ===

/// Options of a request to end a sequence.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndOptions {
    /// Whether the id is a text, even if it looks like a number.
    #[serde(default)]
    text: bool,
    /// The reason, for the audit line.
    reason: Option<String>,
}

/// Options of a request to copy a sequence.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkOptions {
    /// Whether the ids are texts, even if they look like numbers.
    #[serde(default)]
    text: bool,
    /// The id of the copy.
    #[serde(rename = "as")]
    to: String,
}

/// Options of a request to capture a sequence.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaptureOptions {
    /// Whether the id is a text, even if it looks like a number.
    #[serde(default)]
    text: bool,
    steps: Option<usize>,
    wait: Option<Span>,
}

pub(super) type OfModel = Path<(String, String)>;

/// Parses a query of this form.
fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Status> {
    query.map(|Query(read)| read).map_err(|e| refused::bad_input(e.body_text()))
}

pub(super) async fn sequences(
    State(admin): State<Admin>,
    Path(model): NamePath,
    wanted: Result<Query<SequenceQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Status> {
    let list = admin.sequences(model, query(wanted)?).await?;
    Ok(([(CONTENT_TYPE, "application/json")], list))
}

pub(super) async fn sequence(
    State(admin): State<Admin>,
    Path((model, id)): OfModel,
    options: Result<Query<EndOptions>, QueryRejection>,
) -> JsonResult<SequenceRow> {
    Ok(Json(admin.sequence(model, sequences::id(&id, query(options)?.text)?).await?))
}

pub(super) async fn why(
    State(admin): State<Admin>,
    Path((model, id)): OfModel,
    options: Result<Query<EndOptions>, QueryRejection>,
) -> JsonResult<Explanation> {
    Ok(Json(admin.why(model, sequences::id(&id, query(options)?.text)?).await?))
}

pub(super) async fn drop_sequence(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path((model, id)): OfModel,
    options: Result<Query<EndOptions>, QueryRejection>,
) -> JsonResult<Value> {
    let EndOptions { text, reason } = query(options)?;
    admin.drop_sequence(&caller, model, sequences::id(&id, text)?, reason).await.map(|()| Json(json!({})))
}

pub(super) async fn export(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path((model, id)): OfModel,
    options: Result<Query<EndOptions>, QueryRejection>,
) -> Result<Vec<u8>, Status> {
    admin.export(&caller, model, sequences::id(&id, query(options)?.text)?).await
}

pub(super) async fn import(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path((model, id)): OfModel,
    options: Result<Query<EndOptions>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> JsonResult<Value> {
    let file = bytes(body)?.into();
    admin.import(&caller, model, sequences::id(&id, query(options)?.text)?, file).await.map(|()| Json(json!({})))
}

pub(super) async fn fork(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path((model, id)): OfModel,
    options: Result<Query<ForkOptions>, QueryRejection>,
) -> JsonResult<Value> {
    let ForkOptions { text, to } = query(options)?;
    let (id, to) = (sequences::id(&id, text)?, sequences::id(&to, text)?);
    admin.fork(&caller, model, id, to).await.map(|()| Json(json!({})))
}

pub(super) async fn capture(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path((model, id)): OfModel,
    options: Result<Query<CaptureOptions>, QueryRejection>,
) -> Result<Vec<u8>, Status> {
    let CaptureOptions { text, steps, wait } = query(options)?;
    let wanted = sequences::WantedCapture { steps, wait: wait.map(|Span(span)| span) };
    admin.capture(&caller, model, sequences::id(&id, text)?, wanted).await
}

// === plug-ins ===

/// The source of a component that is not in the body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ComponentQuery {
    from: Option<String>,
}

fn source(
    from: Result<Query<ComponentQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<ComponentSource, Status> {
    match query(from)?.from {
        Some(file) => Ok(ComponentSource::File(file)),
        None => bytes(body).map(ComponentSource::Bytes),
    }
}

fn bytes(body: Result<Bytes, BytesRejection>) -> Result<Bytes, Status> {
    body.map_err(|rejected| match rejected.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let text = format!("the admin listener takes requests of at most {LARGEST_COMPONENT} bytes; a larger component or state cannot be sent");
            Status::new(Code::TooLarge, "bad_input", text)
        }
        _ => refused::bad_input(rejected.body_text()),
    })
}

pub(super) async fn list(State(admin): State<Admin>) -> JsonResult<Vec<Summary>> {
    Ok(Json(admin.list().await?))
}

pub(super) async fn show(State(admin): State<Admin>, Path(name): NamePath) -> JsonResult<Summary> {
    Ok(Json(admin.show(name).await?))
}

pub(super) async fn load(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(name): NamePath,
    from: Result<Query<ComponentQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> JsonResult<Summary> {
    Ok(Json(admin.load(&caller, name, source(from, body)?).await?))
}

pub(super) async fn replace(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(name): NamePath,
    from: Result<Query<ComponentQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> JsonResult<Summary> {
    Ok(Json(admin.replace(&caller, name, source(from, body)?).await?))
}

/// Options of an attach request. The path names the plug-in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttachOptions {
    model: String,
    #[serde(default)]
    shadow: bool,
    #[serde(default)]
    save: bool,
    #[serde(default)]
    config: Option<Value>,
    /// For example `"1ms"`.
    #[serde(default)]
    time: Option<Span>,
    /// For example `"5s"`.
    #[serde(default)]
    max_wait: Option<Span>,
}

/// Parses a JSON body of this form.
fn read<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, Status> {
    body.map(|Json(read)| read).map_err(|e| refused::bad_input(e.body_text()))
}

pub(super) async fn attach(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(plugin): NamePath,
    body: Result<Json<AttachOptions>, JsonRejection>,
) -> JsonResult<Summary> {
    let AttachOptions { model, shadow, save, config, time, max_wait } = read(body)?;
    let config = config.map(|value| value.to_string()).unwrap_or_default();
    let [time, max_wait] = [time, max_wait].map(|span| span.map(|Span(span)| span));
    let how = Attach { plugin, model, shadow, save, config, time, max_wait };
    Ok(Json(admin.attach(&caller, how).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Where {
    model: String,
}

pub(super) async fn detach(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(name): NamePath,
    body: Result<Json<Where>, JsonRejection>,
) -> JsonResult<Summary> {
    let Where { model } = read(body)?;
    Ok(Json(admin.detach(&caller, name, model).await?))
}

pub(super) async fn rollback(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(name): NamePath,
) -> JsonResult<Summary> {
    Ok(Json(admin.rollback(&caller, name).await?))
}

pub(super) async fn park(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(name): NamePath,
) -> JsonResult<Summary> {
    Ok(Json(admin.park(&caller, name).await?))
}

pub(super) async fn unpark(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(name): NamePath,
) -> JsonResult<Summary> {
    Ok(Json(admin.unpark(&caller, name).await?))
}

pub(super) async fn unload(
    State(admin): State<Admin>,
    CallerOf(caller): CallerOf,
    Path(name): NamePath,
) -> JsonResult<Value> {
    admin.unload(&caller, name).await.map(|()| Json(json!({})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogQuery {
    #[serde(default)]
    after: u64,
    /// Maximum time to wait for a line if there is none yet, for example `20s`.
    wait: Option<Span>,
}

pub(super) async fn logs(
    State(admin): State<Admin>,
    Path(name): NamePath,
    more: Result<Query<LogQuery>, QueryRejection>,
) -> JsonResult<Vec<LogLine>> {
    let LogQuery { after, wait } = query(more)?;
    let wait = wait.map_or(Duration::ZERO, |Span(span)| span.min(LONGEST_WAIT));
    Ok(Json(admin.logs(&name, after, wait).await?))
}
