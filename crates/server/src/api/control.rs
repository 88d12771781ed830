//! The model repository for clients: index, load, unload. The repository decides whether clients may change it.

use std::future::Future;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sequor_proto::model_repository_parameter::ParameterChoice;
use sequor_proto::repository_index_response::ModelIndex;
use tokio::task::JoinError;

use super::queued::QueuedBytesPermit;
use super::{Api, Caller, Code, Status, triton};
use crate::config::server::file::ControlMode;
use crate::error::{ControlFailure, Failure};
use crate::model::IndexRow;

/// A parameter of a load or unload request, in both protocols.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ControlParameter {
    Text(String),
    Bool(bool),
    Bytes(Vec<u8>),
    Other,
}

impl From<Option<ParameterChoice>> for ControlParameter {
    fn from(choice: Option<ParameterChoice>) -> ControlParameter {
        match choice {
            Some(ParameterChoice::StringParam(text)) => ControlParameter::Text(text),
            Some(ParameterChoice::BoolParam(flag)) => ControlParameter::Bool(flag),
            Some(ParameterChoice::BytesParam(bytes)) => ControlParameter::Bytes(bytes),
            Some(ParameterChoice::Int64Param(_)) | None => ControlParameter::Other,
        }
    }
}

impl From<serde_json::Value> for ControlParameter {
    fn from(value: serde_json::Value) -> ControlParameter {
        match value {
            serde_json::Value::String(text) => ControlParameter::Text(text),
            serde_json::Value::Bool(flag) => ControlParameter::Bool(flag),
            _ => ControlParameter::Other,
        }
    }
}

pub(crate) type ControlParameters = Vec<(String, ControlParameter)>;

fn malformed(text: String) -> Status {
    Status::new(Code::InvalidArgument, "bad_input", text)
}

/// Checks the repository's name. The only repository has none.
pub(crate) fn check_repository(name: &str) -> Result<(), Status> {
    if name.is_empty() {
        Ok(())
    } else {
        Err(Status::unimplemented("'repository_name' specification is not supported"))
    }
}

pub(crate) async fn index(api: &Api, only_ready: bool) -> Result<Vec<ModelIndex>, Status> {
    let repository = api.repository().clone();
    let rows = aside(move || Ok(repository.index())).await?;
    Ok(rows.into_iter().filter(|row| !only_ready || row.state == "READY").map(entry).collect())
}

fn entry(row: IndexRow) -> ModelIndex {
    let IndexRow { model, version, state, reason } = row;
    let version = version.map(|v| v.to_string()).unwrap_or_default();
    ModelIndex { name: model, version, state: state.to_owned(), reason }
}

/// Refuses requests to load models, unless clients may send them.
pub(crate) fn check_explicit(api: &Api) -> Result<(), Status> {
    match api.repository().control_mode() {
        ControlMode::Explicit => Ok(()),
        ControlMode::None | ControlMode::Poll => Err(triton::status(&Failure::Control(ControlFailure::NotExplicit))),
    }
}

/// Loads a model for a client, and records the change. The permit counts the request's bytes until the load has ended, even if the client
/// no longer waits.
pub(crate) async fn load_for_client(
    api: &Api,
    caller: &Caller,
    model: String,
    parameters: ControlParameters,
    permit: QueuedBytesPermit,
) -> Result<(), Status> {
    let (api, caller) = (api.clone(), caller.clone());
    to_its_end(async move {
        let outcome = load(&api, model.clone(), parameters, Some(permit)).await;
        note(&api, &caller, "model load", &model, outcome.as_ref().copied());
        outcome
    })
    .await
}

pub(crate) async fn load(
    api: &Api,
    model: String,
    parameters: ControlParameters,
    permit: Option<QueuedBytesPermit>,
) -> Result<(), Status> {
    let repository = api.repository().clone();
    let load = move || {
        let _permit = permit;
        let LoadParameters { config, files } = load_parameters(parameters, repository.upload_limit())?;
        let loaded = match files.is_empty() {
            true => repository.load_by_request(&model, config.as_deref()),
            false => repository.load_files(&model, &config.unwrap_or_default(), &files),
        };
        loaded.map_err(|failure| triton::status(&failure))
    };
    off_socket(load).await
}

/// The contents of a load request.
#[derive(Debug, Default)]
struct LoadParameters {
    config: Option<String>,
    /// Files by their paths in the model's directory.
    files: Vec<(PathBuf, Vec<u8>)>,
}

/// `upload_limit`: maximum bytes of files; `None` if uploads are not allowed.
fn load_parameters(parameters: ControlParameters, upload_limit: Option<u64>) -> Result<LoadParameters, Status> {
    let mut taken = LoadParameters::default();
    for (key, value) in parameters {
        match (key.as_str(), value) {
            ("config", ControlParameter::Text(json)) => taken.config = Some(json),
            ("config", _) => {
                return Err(malformed("invalid value type for 'config' parameter, expected string.".to_owned()));
            }
            (file, _) if file.starts_with("file:") && upload_limit.is_none() => {
                let text = format!(
                    "'{file}' is not taken: files of models do not come over the wire; put them into the model repository, or set \
                     [admin] upload = true"
                );
                return Err(Status::unimplemented(text));
            }
            (file, value) if file.starts_with("file:") => {
                taken.files.push((file_path(file)?, file_bytes(file, value)?));
            }
            _ => return Err(malformed(format!("unrecognized load parameter '{key}'"))),
        }
    }
    if !taken.files.is_empty() && taken.config.is_none() {
        return Err(malformed("files of a model need the parameter 'config' beside them".to_owned()));
    }
    let bytes: u64 = taken.files.iter().map(|(_, data)| data.len() as u64).sum();
    let limit = upload_limit.unwrap_or(0);
    if bytes > limit {
        return Err(malformed(format!(
            "the files of the model are {bytes} bytes, above the limit of {limit} (limits.request)"
        )));
    }
    Ok(taken)
}

/// The path of `file:1/model.onnx` in the model's directory: a version folder and a file in it.
fn file_path(parameter: &str) -> Result<PathBuf, Status> {
    let path = parameter.trim_start_matches("file:");
    let is_version =
        |part: &str| part.parse::<u64>().is_ok_and(|n| n > 0) && part.starts_with(|c: char| ('1'..='9').contains(&c));
    let is_name = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\0', '\\']);
    let mut parts = path.split('/');
    if parts.next().is_some_and(is_version) && path.contains('/') && parts.all(is_name) {
        return Ok(PathBuf::from(path));
    }
    Err(malformed(format!("'{parameter}' is not the path of a file: expected file:<version>/<file>")))
}

/// The bytes of a file. JSON carries them as base64.
fn file_bytes(parameter: &str, value: ControlParameter) -> Result<Vec<u8>, Status> {
    match value {
        ControlParameter::Bytes(bytes) => Ok(bytes),
        ControlParameter::Text(text) => BASE64_STANDARD
            .decode(&text)
            .map_err(|error| malformed(format!("the value of '{parameter}' is not base64: {error}"))),
        ControlParameter::Bool(_) | ControlParameter::Other => {
            Err(malformed(format!("invalid value type for '{parameter}' parameter, expected bytes.")))
        }
    }
}

/// Unloads a model for a client, and records the change.
pub(crate) async fn unload_for_client(
    api: &Api,
    caller: &Caller,
    model: String,
    parameters: ControlParameters,
) -> Result<(), Status> {
    let (api, caller) = (api.clone(), caller.clone());
    to_its_end(async move {
        let outcome = unload(&api, model.clone(), parameters).await;
        note(&api, &caller, "model unload", &model, outcome.as_ref().copied());
        outcome
    })
    .await
}

/// Records a change by a client. If clients may not control models, nothing is recorded, because refusals would push changes of operators
/// off the list.
fn note(api: &Api, caller: &Caller, what: &'static str, model: &str, outcome: Result<(), &Status>) {
    if api.repository().control_mode() == ControlMode::Explicit {
        api.changes().note(caller, what, model, outcome);
    }
}

/// Unloads a model. With `unload_dependents`, also unloads the members of an ensemble, except those that another ensemble needs.
pub(crate) async fn unload(api: &Api, model: String, parameters: ControlParameters) -> Result<(), Status> {
    let mut dependents = false;
    for (key, value) in parameters {
        match (key.as_str(), value) {
            ("unload_dependents", ControlParameter::Bool(given)) => dependents = given,
            ("unload_dependents", _) => {
                return Err(malformed(
                    "invalid value type for 'unload_dependents' parameter, expected bool.".to_owned(),
                ));
            }
            _ => return Err(malformed(format!("unrecognized unload parameter '{key}'"))),
        }
    }
    let repository = api.repository().clone();
    aside(move || repository.unload_by_request(&model, dependents)).await
}

/// Runs slow work on a thread for blocking work. It runs to its end, even if the client no longer waits.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Status> {
    off_socket(move || work().map_err(|failure| triton::status(&failure))).await
}

/// The same, for work that refuses in the words of its caller.
pub(crate) async fn off_socket<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| cut_short(&error))?
}

/// Runs a change with its audit line to its end, even if the client no longer waits. A handler's own future ends with its connection.
pub(crate) async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    tokio::spawn(change).await.map_err(|error| cut_short(&error))?
}

fn cut_short(error: &JoinError) -> Status {
    Status::new(Code::Internal, "internal", format!("the server did not get to its end: {error}"))
}
