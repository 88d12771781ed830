//! The paths for operators, over HTTP and JSON, and the status page.

use std::time::Duration;

use axum::extract::rejection::{BytesRejection, JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::plugins::Source;
use super::sequences::{self, Row, Sequences, Wanted};
use super::status::{Report, Version};
use super::{Admin, LARGEST_COMPONENT, page, refused};
use crate::api::context::Asked;
use crate::api::{Code, Status};
use crate::config::server::Shown;
use crate::config::units::Span;
use crate::plugin::report::{Attach, LogLine, Summary};

/// The longest that a request for more of a log is held.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub fn routes(admin: &Admin) -> Router {
    Router::new()
        .route("/", get(status_page))
        .route("/admin/status.json", get(report))
        .route("/admin/config", get(config))
        .route("/admin/models", get(models))
        .route("/admin/models/{name}/load", post(load_model))
        .route("/admin/models/{name}/unload", post(unload_model))
        .route("/admin/models/{name}/sequences", get(sequences))
        .route("/admin/models/{name}/sequences/{id}", get(sequence).delete(drop_sequence))
        .route("/admin/models/{name}/sequences/{id}/state", get(export).put(import))
        .route("/admin/drain", post(drain))
        .route("/admin/plugins", get(list))
        .route("/admin/plugins/{name}", get(show).post(load).delete(unload))
        .route("/admin/plugins/{name}/attach", post(attach))
        .route("/admin/plugins/{name}/detach", post(detach))
        .route("/admin/plugins/{name}/replace", post(replace))
        .route("/admin/plugins/{name}/rollback", post(rollback))
        .route("/admin/plugins/{name}/park", post(park))
        .route("/admin/plugins/{name}/unpark", post(unpark))
        .route("/admin/plugins/{name}/logs", get(logs))
        .method_not_allowed_fallback(|| async { (StatusCode::METHOD_NOT_ALLOWED, error("Method Not Allowed")) })
        .layer(DefaultBodyLimit::max(LARGEST_COMPONENT))
        .with_state(admin.clone())
}

fn error(text: &str) -> Json<Value> {
    Json(json!({ "error": text, "reason": "unsupported" }))
}

type Name = Path<String>;
type Said<T> = Result<Json<T>, Status>;

// === the server ===

async fn status_page(State(admin): State<Admin>) -> Result<Html<String>, Status> {
    Ok(Html(page::page(&admin.report().await?)))
}

async fn report(State(admin): State<Admin>) -> Said<Report> {
    Ok(Json(admin.report().await?))
}

async fn config(State(admin): State<Admin>) -> Json<Vec<Shown>> {
    Json(admin.options().settings.clone())
}

async fn drain(State(admin): State<Admin>, Asked(caller): Asked) -> StatusCode {
    admin.drain(&caller);
    StatusCode::ACCEPTED
}

// === models ===

async fn models(State(admin): State<Admin>) -> Said<Vec<Version>> {
    Ok(Json(admin.versions().await?))
}

async fn load_model(State(admin): State<Admin>, Asked(caller): Asked, Path(name): Name) -> Said<Value> {
    admin.load_model(&caller, name).await.map(|()| Json(json!({})))
}

async fn unload_model(State(admin): State<Admin>, Asked(caller): Asked, Path(name): Name) -> Said<Value> {
    admin.unload_model(&caller, name).await.map(|()| Json(json!({})))
}

// === sequences ===

/// What more there is to say of one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    /// The id is a text, even if it reads as a number.
    #[serde(default)]
    text: bool,
    /// For the audit line.
    reason: Option<String>,
}

type OfModel = Path<(String, String)>;

/// A query of this form.
fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Status> {
    query.map(|Query(read)| read).map_err(|e| refused::bad_input(e.body_text()))
}

async fn sequences(
    State(admin): State<Admin>,
    Path(model): Name,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Said<Sequences> {
    Ok(Json(admin.sequences(model, query(wanted)?).await?))
}

async fn sequence(
    State(admin): State<Admin>,
    Path((model, id)): OfModel,
    told: Result<Query<Told>, QueryRejection>,
) -> Said<Row> {
    Ok(Json(admin.sequence(model, sequences::id(&id, query(told)?.text)).await?))
}

async fn drop_sequence(
    State(admin): State<Admin>,
    Asked(caller): Asked,
    Path((model, id)): OfModel,
    told: Result<Query<Told>, QueryRejection>,
) -> Said<Value> {
    let Told { text, reason } = query(told)?;
    admin.drop_sequence(&caller, model, sequences::id(&id, text), reason).await.map(|()| Json(json!({})))
}

async fn export(
    State(admin): State<Admin>,
    Asked(caller): Asked,
    Path((model, id)): OfModel,
    told: Result<Query<Told>, QueryRejection>,
) -> Result<Vec<u8>, Status> {
    admin.export(&caller, model, sequences::id(&id, query(told)?.text)).await
}

async fn import(
    State(admin): State<Admin>,
    Asked(caller): Asked,
    Path((model, id)): OfModel,
    told: Result<Query<Told>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Said<Value> {
    let file = bytes(body)?.into();
    admin.import(&caller, model, sequences::id(&id, query(told)?.text), file).await.map(|()| Json(json!({})))
}

// === plug-ins ===

/// Where a component comes from, if not from the body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Elsewhere {
    from: Option<String>,
}

fn source(
    from: Result<Query<Elsewhere>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Source, Status> {
    match query(from)?.from {
        Some(file) => Ok(Source::File(file)),
        None => bytes(body).map(Source::Bytes),
    }
}

fn bytes(body: Result<Bytes, BytesRejection>) -> Result<Bytes, Status> {
    body.map_err(|rejected| match rejected.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let text = format!("a request may have {LARGEST_COMPONENT} bytes at most");
            Status::new(Code::TooLarge, "bad_input", text)
        }
        _ => refused::bad_input(rejected.body_text()),
    })
}

async fn list(State(admin): State<Admin>) -> Said<Vec<Summary>> {
    Ok(Json(admin.list().await?))
}

async fn show(State(admin): State<Admin>, Path(name): Name) -> Said<Summary> {
    Ok(Json(admin.show(name).await?))
}

async fn load(
    State(admin): State<Admin>,
    Asked(caller): Asked,
    Path(name): Name,
    from: Result<Query<Elsewhere>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Said<Summary> {
    Ok(Json(admin.load(&caller, name, source(from, body)?).await?))
}

async fn replace(
    State(admin): State<Admin>,
    Asked(caller): Asked,
    Path(name): Name,
    from: Result<Query<Elsewhere>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Said<Summary> {
    Ok(Json(admin.replace(&caller, name, source(from, body)?).await?))
}

/// How to attach: the plug-in is named by the path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct How {
    model: String,
    #[serde(default)]
    shadow: bool,
    #[serde(default)]
    save: bool,
    #[serde(default)]
    config: Option<Value>,
    /// `"1ms"`.
    #[serde(default)]
    time: Option<Span>,
}

/// A body that is JSON of this form.
fn read<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, Status> {
    body.map(|Json(read)| read).map_err(|e| refused::bad_input(e.body_text()))
}

async fn attach(
    State(admin): State<Admin>,
    Asked(caller): Asked,
    Path(plugin): Name,
    body: Result<Json<How>, JsonRejection>,
) -> Said<Summary> {
    let How { model, shadow, save, config, time } = read(body)?;
    let config = config.map(|value| value.to_string()).unwrap_or_default();
    let how = Attach { plugin, model, shadow, save, config, time: time.map(|Span(span)| span) };
    Ok(Json(admin.attach(&caller, how).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Where {
    model: String,
}

async fn detach(
    State(admin): State<Admin>,
    Asked(caller): Asked,
    Path(name): Name,
    body: Result<Json<Where>, JsonRejection>,
) -> Said<Summary> {
    let Where { model } = read(body)?;
    Ok(Json(admin.detach(&caller, name, model).await?))
}

async fn rollback(State(admin): State<Admin>, Asked(caller): Asked, Path(name): Name) -> Said<Summary> {
    Ok(Json(admin.rollback(&caller, name).await?))
}

async fn park(State(admin): State<Admin>, Asked(caller): Asked, Path(name): Name) -> Said<Summary> {
    Ok(Json(admin.park(&caller, name).await?))
}

async fn unpark(State(admin): State<Admin>, Asked(caller): Asked, Path(name): Name) -> Said<Summary> {
    Ok(Json(admin.unpark(&caller, name).await?))
}

async fn unload(State(admin): State<Admin>, Asked(caller): Asked, Path(name): Name) -> Said<Value> {
    admin.unload(&caller, name).await.map(|()| Json(json!({})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct More {
    #[serde(default)]
    after: u64,
    /// How long to wait for a line if there is none: `20s`.
    wait: Option<Span>,
}

async fn logs(
    State(admin): State<Admin>,
    Path(name): Name,
    more: Result<Query<More>, QueryRejection>,
) -> Said<Vec<LogLine>> {
    let More { after, wait } = query(more)?;
    let wait = wait.map_or(Duration::ZERO, |Span(span)| span.min(LONGEST_WAIT));
    Ok(Json(admin.logs(&name, after, wait).await?))
}
