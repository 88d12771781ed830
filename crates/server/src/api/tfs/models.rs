//! Status and metadata of models, for both protocols.

use sequor_proto::tensorflow::error::Code as WireCode;
use sequor_proto::tensorflow::serving::model_version_status::State;
use sequor_proto::tensorflow::serving::{ModelVersionStatus, SignatureDefMap, StatusProto};
use sequor_proto::tensorflow::{SignatureDef, TensorInfo};

use super::{SIGNATURE, refusal, tensors};
use crate::api::order::off_task;
use crate::api::refusal::NOT_SERVED;
use crate::api::{Api, Code, Status};
use crate::model::{IndexRow, Metadata, TensorMetadata};

/// The method name of every signature.
const METHOD: &str = "tensorflow/serving/predict";

/// The versions of every model, by model name.
pub(super) async fn all(api: &Api) -> Result<Vec<(String, Vec<ModelVersionStatus>)>, Status> {
    let repository = api.repository().clone();
    let rows = off_task(true, move || repository.index()).await.map_err(|failure| refusal::status(&failure))?;
    let mut all: Vec<(String, Vec<ModelVersionStatus>)> = Vec::new();
    for row in rows {
        let status = version_status(&row);
        match all.last_mut().filter(|(name, _)| *name == row.model) {
            Some((_, versions)) => versions.extend(status),
            None => all.push((row.model, Vec::from_iter(status))),
        }
    }
    Ok(all)
}

/// All versions of a model, or only the version that the client names.
pub(super) async fn statuses(api: &Api, model: &str, version: &str) -> Result<Vec<ModelVersionStatus>, Status> {
    let unknown = |text: &str| Status::new(Code::NotFound, NOT_SERVED, text);
    let all = all(api).await?;
    let versions = all.into_iter().find(|(name, _)| name == model).map(|(_, versions)| versions);
    let versions = versions.ok_or_else(|| unknown(refusal::UNKNOWN_MODEL))?;
    if version.is_empty() {
        return Ok(versions);
    }
    let asked: Vec<_> = versions.into_iter().filter(|status| status.version.to_string() == version).collect();
    if asked.is_empty() { Err(unknown(refusal::UNKNOWN_VERSION)) } else { Ok(asked) }
}

/// The status of one version. `None` for a row without a version.
fn version_status(row: &IndexRow) -> Option<ModelVersionStatus> {
    let (state, code) = match row.state {
        "READY" => (State::Available, WireCode::Ok),
        "LOADING" => (State::Loading, WireCode::Ok),
        "UNLOADING" => (State::Unloading, WireCode::Ok),
        _ if row.reason == "unloaded" => (State::End, WireCode::Ok),
        // OVMS reports a version that failed to load as loading.
        _ => (State::Loading, WireCode::Unknown),
    };
    let text = if code == WireCode::Ok { String::new() } else { row.reason.clone() };
    let status = StatusProto { error_code: code.into(), error_message: text };
    let version = row.version?.cast_signed();
    Some(ModelVersionStatus { version, state: state.into(), status: Some(status) })
}

/// The inputs and outputs of a model.
pub(super) fn signatures(metadata: &Metadata) -> SignatureDefMap {
    let infos = |tensors: &[TensorMetadata]| tensors.iter().map(|t| (t.name.clone(), info(t))).collect();
    let signature = SignatureDef {
        inputs: infos(&metadata.inputs),
        outputs: infos(&metadata.outputs),
        method_name: METHOD.to_owned(),
    };
    SignatureDefMap { signature_def: [(SIGNATURE.to_owned(), signature)].into() }
}

fn info(tensor: &TensorMetadata) -> TensorInfo {
    TensorInfo {
        name: tensor.name.clone(),
        dtype: tensors::to_wire(tensor.dtype).into(),
        tensor_shape: Some(tensors::shape(&tensor.dims.to_wire())),
    }
}
