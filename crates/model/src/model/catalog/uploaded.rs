//! A model whose files a load request carried. They are in a folder of their own. The folder is removed once no load uses it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::temporary_folder::TemporaryFolder;

/// The folder of an uploaded model. Its bytes count until it is dropped.
#[derive(Debug)]
pub(in crate::model) struct UploadedModel {
    folder: TemporaryFolder,
    model: String,
    _bytes: UploadedBytes,
}

/// Bytes of uploaded files, counted until this is dropped.
#[derive(Debug)]
pub(in crate::model) struct UploadedBytes {
    bytes: u64,
    used: Arc<AtomicU64>,
}

impl UploadedBytes {
    /// Counts these bytes, if at most `most` are then in use. The error is the number of bytes in use.
    pub(in crate::model) fn try_new(used: &Arc<AtomicU64>, bytes: u64, most: u64) -> Result<UploadedBytes, u64> {
        let sum = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= most);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum)?;
        Ok(UploadedBytes { bytes, used: Arc::clone(used) })
    }
}

impl Drop for UploadedBytes {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl UploadedModel {
    /// Writes the files. The caller has checked that their paths stay in the model's folder.
    pub(in crate::model) fn write(
        model: &str,
        files: &[(PathBuf, Vec<u8>)],
        bytes: UploadedBytes,
    ) -> std::io::Result<UploadedModel> {
        let folder = TemporaryFolder::new(TemporaryFolder::UPLOAD)?;
        let uploaded = UploadedModel { folder, model: model.to_owned(), _bytes: bytes };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_uploads_stay_within_the_limit() {
        let used = Arc::<AtomicU64>::default();
        let count = |bytes| UploadedBytes::try_new(&used, bytes, 10);
        let first = count(6).unwrap();
        assert_eq!(count(5).unwrap_err(), 6);
        assert_eq!(count(u64::MAX).unwrap_err(), 6);
        let _second = count(4).unwrap();
        drop(first);
        assert!(count(6).is_ok());
    }
}
