//! The table of the admin paths. The router and `/openapi.json` are both made from it, so every path is described.

use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::http;
use super::openapi::Verb::{Delete, Get, Post, Put};
use super::openapi::{BodySchema, Operation, document};
use super::{Admin, LARGEST_COMPONENT};

/// Serves every operation of the table.
pub fn routes(admin: &Admin) -> Router {
    let mut router = Router::new();
    for operation in operations() {
        router = router.route(operation.path, operation.handler);
    }
    let refused = json!({ "error": "Method Not Allowed", "reason": "unsupported" });
    router
        .method_not_allowed_fallback(|| async { (StatusCode::METHOD_NOT_ALLOWED, Json(refused)) })
        .layer(DefaultBodyLimit::max(LARGEST_COMPONENT))
        .with_state(admin.clone())
}

async fn describe() -> impl IntoResponse {
    Json(document(&operations()))
}

fn operations() -> Vec<Operation> {
    [of_server(), of_models(), of_sequences(), of_plugins()].into_iter().flatten().collect()
}

fn of_server() -> Vec<Operation> {
    vec![
        Operation::new(Get, "/", ("showStatusPage", "The status page"), http::status_page).answers(BodySchema::Html),
        Operation::new(Get, "/openapi.json", ("describeApi", "This document"), describe)
            .answers(BodySchema::Json("Description")),
        Operation::new(Get, "/admin/status.json", ("showStatus", "The status page as data"), http::report)
            .answers(BodySchema::Json("Status")),
        Operation::new(
            Get,
            "/admin/config",
            ("listSettings", "The settings in force, and what waits for a restart"),
            http::config,
        )
        .answers(BodySchema::List("Setting")),
        Operation::new(Post, "/admin/config/reload", ("reloadConfig", "Reads the settings again"), http::reload)
            .answers(BodySchema::Json("Reload")),
        Operation::new(Post, "/admin/drain", ("drain", "Takes the server out of service"), http::drain)
            .answers(BodySchema::None)
            .code(202),
    ]
}

fn of_models() -> Vec<Operation> {
    const LOAD: &str = "/admin/models/{name}/load";
    const UNLOAD: &str = "/admin/models/{name}/unload";
    vec![
        Operation::new(Get, "/admin/models", ("listModels", "Every version of every model"), http::models)
            .answers(BodySchema::List("ModelVersion")),
        Operation::new(Post, LOAD, ("loadModel", "Loads a model"), http::load_model),
        Operation::new(Post, UNLOAD, ("unloadModel", "Unloads a model"), http::unload_model),
    ]
}

fn of_sequences() -> Vec<Operation> {
    const ALL: &str = "/admin/models/{name}/sequences";
    const ONE: &str = "/admin/models/{name}/sequences/{id}";
    const WHY: &str = "/admin/models/{name}/sequences/{id}/why";
    const STATE: &str = "/admin/models/{name}/sequences/{id}/state";
    const FORK: &str = "/admin/models/{name}/sequences/{id}/fork";
    const CAPTURE: &str = "/admin/models/{name}/sequences/{id}/capture";
    let text = |of: Operation| of.query("text", &flag(), "The id is a text, even if it reads as a number");
    let sorts = json!({ "enum": ["age", "idle", "step", "queued", "bytes"], "default": "age" });
    let list = Operation::new(
        Get,
        ALL,
        ("listSequences", "Live sequences, remembered ended ones, or kept ones"),
        http::sequences,
    )
    .query(
        "limit",
        &json!({ "type": "integer", "minimum": 0, "maximum": 10000, "default": 100 }),
        "Maximum number of sequences",
    )
    .query("sort", &sorts, "Sort key of live sequences, largest first")
    .query("ended", &flag(), "List ended sequences instead of live ones")
    .query("resumable", &flag(), "List sequences that the store keeps and whose next step has not come yet")
    .query("reason", &string(), "Only sequences that ended for this reason")
    .query("since", &span(), "Only sequences that ended within this time")
    .answers(BodySchema::Json("Sequences"));
    let show = Operation::new(Get, ONE, ("showSequence", "A live sequence, or how it ended"), http::sequence)
        .answers(BodySchema::Json("Sequence"));
    let about = "Where a sequence is, its last steps and refused requests, and what keeps such a sequence";
    let why = Operation::new(Get, WHY, ("explainSequence", about), http::why).answers(BodySchema::Json("Explanation"));
    let drop = Operation::new(Delete, ONE, ("dropSequence", "Ends a sequence"), http::drop_sequence).query(
        "reason",
        &string(),
        "For the audit line",
    );
    let export = Operation::new(Get, STATE, ("exportState", "The state as a safetensors file"), http::export)
        .answers(BodySchema::Bytes);
    let import = Operation::new(Put, STATE, ("importState", "Gives a state to a sequence"), http::import)
        .takes(BodySchema::Bytes);
    let fork =
        Operation::new(Post, FORK, ("forkSequence", "Gives a copy of the state to another sequence"), http::fork)
            .query("as", &string(), "The id of the copy, which does not live there");
    let about = "The state, and the inputs and outputs of the steps that follow, as a safetensors file";
    let steps = json!({ "type": "integer", "minimum": 1, "maximum": 10000, "default": 100 });
    let capture = Operation::new(Post, CAPTURE, ("captureSequence", about), http::capture)
        .query("steps", &steps, "Number of steps after which the capture ends, if no END comes before")
        .query("wait", &span(), "How long to wait for them: 30s if not given, at most 100s")
        .answers(BodySchema::Bytes);
    [list].into_iter().chain([show, why, drop, export, import, fork, capture].map(text)).collect()
}

fn of_plugins() -> Vec<Operation> {
    const ONE: &str = "/admin/plugins/{name}";
    const ATTACH: &str = "/admin/plugins/{name}/attach";
    const DETACH: &str = "/admin/plugins/{name}/detach";
    const REPLACE: &str = "/admin/plugins/{name}/replace";
    const ROLLBACK: &str = "/admin/plugins/{name}/rollback";
    const PARK: &str = "/admin/plugins/{name}/park";
    const UNPARK: &str = "/admin/plugins/{name}/unpark";
    const LOGS: &str = "/admin/plugins/{name}/logs";
    let component = |of: Operation| {
        of.takes(BodySchema::Bytes).query("from", &string(), "Name of a file in plugins.dir, instead of a body")
    };
    let plugin = |of: Operation| of.answers(BodySchema::Json("Plugin"));
    vec![
        Operation::new(Get, "/admin/plugins", ("listPlugins", "The loaded plug-ins"), http::list)
            .answers(BodySchema::List("Plugin")),
        plugin(Operation::new(Get, ONE, ("showPlugin", "One plug-in"), http::show)),
        component(plugin(Operation::new(Post, ONE, ("loadPlugin", "Loads a component"), http::load))),
        Operation::new(Delete, ONE, ("unloadPlugin", "Unloads a plug-in"), http::unload),
        plugin(Operation::new(Post, ATTACH, ("attachPlugin", "Lets a plug-in decide for a model"), http::attach))
            .takes(BodySchema::Json("Attach")),
        plugin(Operation::new(Post, DETACH, ("detachPlugin", "Ends its decisions for a model"), http::detach))
            .takes(BodySchema::Json("Detach")),
        component(plugin(Operation::new(Post, REPLACE, ("replacePlugin", "Puts in a new version"), http::replace))),
        plugin(Operation::new(Post, ROLLBACK, ("rollbackPlugin", "Restores the version before"), http::rollback)),
        plugin(Operation::new(Post, PARK, ("parkPlugin", "Lets the built-in policy decide instead"), http::park)),
        plugin(Operation::new(Post, UNPARK, ("unparkPlugin", "Lets a parked plug-in decide again"), http::unpark)),
        Operation::new(Get, LOGS, ("listPluginLogs", "Lines of a plug-in's log, oldest first"), http::logs)
            .query("after", &json!({ "type": "integer", "minimum": 0 }), "Only lines with a larger serial number")
            .query("wait", &span(), "How long to wait for a line if there is none, at most 30s")
            .answers(BodySchema::List("LogLine")),
    ]
}

fn string() -> Value {
    json!({ "type": "string" })
}

fn flag() -> Value {
    json!({ "type": "boolean", "default": false })
}

/// A time with its unit: `1500us`, `20s`.
fn span() -> Value {
    json!({ "type": "string", "pattern": "^[0-9]" })
}
