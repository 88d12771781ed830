//! The repository as clients see and change it: index, load, unload. Who may is the repository's to say.

use sequor_proto::model_repository_parameter::ParameterChoice;
use sequor_proto::repository_index_response::ModelIndex;

use crate::api::{Api, Code, Status};
use crate::model::IndexRow;

use super::refusal;

/// A parameter of a load or an unload, of either protocol.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ControlParameter {
    Text(String),
    Bool(bool),
    Other,
}

impl From<Option<ParameterChoice>> for ControlParameter {
    fn from(choice: Option<ParameterChoice>) -> ControlParameter {
        match choice {
            Some(ParameterChoice::StringParam(text)) => ControlParameter::Text(text),
            Some(ParameterChoice::BoolParam(flag)) => ControlParameter::Bool(flag),
            Some(ParameterChoice::BytesParam(_) | ParameterChoice::Int64Param(_)) | None => ControlParameter::Other,
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

/// There is one set of repositories, and it has no name.
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

pub(crate) async fn load(api: &Api, model: String, parameters: ControlParameters) -> Result<(), Status> {
    let config = config(parameters)?;
    let repository = api.repository().clone();
    aside(move || repository.load_by_request(&model, config.as_deref())).await
}

fn config(parameters: ControlParameters) -> Result<Option<String>, Status> {
    let mut config = None;
    for (key, value) in parameters {
        match (key.as_str(), value) {
            ("config", ControlParameter::Text(json)) => config = Some(json),
            ("config", _) => {
                return Err(malformed("invalid value type for 'config' parameter, expected string.".to_owned()));
            }
            (file, _) if file.starts_with("file:") => {
                let text = format!(
                    "'{file}' is not taken: files of models do not come over the wire; put them into the model repository"
                );
                return Err(Status::unimplemented(text));
            }
            _ => return Err(malformed(format!("unrecognized load parameter '{key}'"))),
        }
    }
    Ok(config)
}

/// No model depends on another here, so that `unload_dependents` changes nothing.
pub(crate) async fn unload(api: &Api, model: String, parameters: ControlParameters) -> Result<(), Status> {
    for (key, value) in parameters {
        match (key.as_str(), value) {
            ("unload_dependents", ControlParameter::Bool(_)) => {}
            ("unload_dependents", _) => {
                return Err(malformed(
                    "invalid value type for 'unload_dependents' parameter, expected bool.".to_owned(),
                ));
            }
            _ => return Err(malformed(format!("unrecognized unload parameter '{key}'"))),
        }
    }
    let repository = api.repository().clone();
    aside(move || repository.unload_by_request(&model)).await
}

/// Does what takes its time where no socket waits for it. It is done to its end, whether or not the client waits for that.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::error::Failure> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|failure| refusal::status(&failure)),
        Err(error) => {
            Err(Status::new(Code::Internal, "internal", format!("the server did not get to its end: {error}")))
        }
    }
}
