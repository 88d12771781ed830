//! Loads models whose files a load request carried, within limits.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::{ControlFailure, Failure, LoadError};
use crate::model::catalog::{UploadedBytes, UploadedModel};

use super::load_attempt::LoadRequest;
use super::loader::ModelLoader;

/// The limit for all uploaded models together, as a multiple of the limit per request.
const REQUESTS: u64 = 16;

/// The limit and use of bytes of uploaded files.
#[derive(Debug)]
pub(super) struct Uploads {
    /// Maximum bytes of the files of one request.
    pub(super) limit: u64,
    used: Arc<AtomicU64>,
}

impl Uploads {
    pub(super) fn new(limit: u64) -> Uploads {
        Uploads { limit, used: Arc::default() }
    }

    /// Loads a model from these files. Their paths are relative to its directory. The repository's own files of the model are ignored.
    pub(super) fn load(
        &self,
        loader: &ModelLoader,
        model: &str,
        config: &str,
        files: &[(PathBuf, Vec<u8>)],
    ) -> Result<(), Failure> {
        let failed = |why: Vec<String>| Failure::Control(ControlFailure::Failed { model: model.to_owned(), why });
        let bytes: u64 = files.iter().map(|(_, data)| data.len() as u64).sum();
        let most = self.limit.saturating_mul(REQUESTS);
        let counted = UploadedBytes::try_new(&self.used, bytes, most).map_err(|used| {
            failed(vec![format!(
                "the files of uploaded models are {used} of {most} bytes (16 × limits.request); this request brings {bytes}; unload a model"
            )])
        })?;
        let uploaded = UploadedModel::write(model, files, counted).map_err(|error| failed(vec![error.to_string()]))?;
        let request = LoadRequest::new(model, &uploaded.directory(), Some(config));
        let loaded = loader.load_model(LoadRequest { uploaded: Some(uploaded), ..request });
        loaded.map_err(|faults| failed(faults.iter().map(LoadError::to_string).collect()))
    }
}
