//! The metadata of a model for clients.

use std::path::Path;
use std::sync::Arc;

use sequor_core::{DataType, Dim, Dims};

use crate::config::model::settings::ModelSettings;
use crate::error::LoadError;

/// The metadata of a model for clients. Controls, states and batch inputs are not listed. Shapes include the batch dimension.
#[derive(Debug, Clone)]
pub struct Metadata {
    pub name: String,
    pub versions: Vec<u64>,
    pub platform: String,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
}

#[derive(Debug, Clone)]
pub struct TensorMetadata {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
}

impl Metadata {
    pub(super) fn new(settings: &ModelSettings, version: u64) -> Metadata {
        let batching = settings.max_batch_size > 0;
        let whole = |dims: &Dims| if batching { dims.with(0, Dim::Any) } else { dims.clone() };
        let proto = &settings.proto;
        Metadata {
            name: settings.name.clone(),
            versions: vec![version],
            platform: if proto.platform.is_empty() { proto.backend.clone() } else { proto.platform.clone() },
            inputs: settings
                .inputs
                .iter()
                .map(|i| TensorMetadata { name: i.name.clone(), dtype: i.dtype, dims: whole(&i.dims) })
                .collect(),
            outputs: settings
                .outputs
                .iter()
                .map(|o| TensorMetadata { name: o.name.clone(), dtype: o.dtype, dims: whole(&o.dims) })
                .collect(),
        }
    }
}

/// Names of the classes of an output: the lines of a file.
pub(super) fn class_names(path: Option<&Path>) -> Result<Option<Arc<[String]>>, LoadError> {
    let Some(path) = path else { return Ok(None) };
    let text =
        fs_err::read_to_string(path).map_err(|e| LoadError::File { path: path.to_owned(), what: e.to_string() })?;
    Ok(Some(text.lines().map(str::to_owned).collect()))
}
