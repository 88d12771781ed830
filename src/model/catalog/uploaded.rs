//! A model whose files came with a load request. They lie in a folder of their own, which goes when nothing is loaded from it any more.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

/// The folder of such a model. Its bytes count until it is dropped.
#[derive(Debug)]
pub(in crate::model) struct UploadedModel {
    folder: TempDir,
    model: String,
    bytes: u64,
    used: Arc<AtomicU64>,
}

impl UploadedModel {
    /// Writes the files, whose paths lead nowhere but into the model's folder.
    pub(in crate::model) fn write(
        model: &str,
        files: &[(PathBuf, Vec<u8>)],
        used: &Arc<AtomicU64>,
    ) -> std::io::Result<UploadedModel> {
        let bytes = files.iter().map(|(_, data)| data.len() as u64).sum();
        let folder = tempfile::Builder::new().prefix("sequor-model-").tempdir()?;
        used.fetch_add(bytes, Ordering::Relaxed);
        let uploaded = UploadedModel { folder, model: model.to_owned(), bytes, used: Arc::clone(used) };
        for (path, data) in files {
            let path = uploaded.directory().join(path);
            if let Some(parent) = path.parent() {
                fs_err::create_dir_all(parent)?;
            }
            fs_err::write(path, data)?;
        }
        Ok(uploaded)
    }

    /// The model's directory.
    pub(in crate::model) fn directory(&self) -> PathBuf {
        self.folder.path().join(&self.model)
    }
}

impl Drop for UploadedModel {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
