//! The folders of models in a repository.

use std::path::{Path, PathBuf};

use crate::config::model::versions;
use crate::error::LoadError;

/// The directories of models: those with a configuration or with a version directory. Anything else is passed over.
pub(in crate::model) fn model_directories(directory: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let failed = |e: std::io::Error| LoadError::File { path: directory.to_owned(), what: e.to_string() };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let has_version = || versions::versions_in(&path).is_ok_and(|v| !v.is_empty());
        if path.is_dir() && (path.join("config.pbtxt").is_file() || has_version()) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
