//! The folders of models in repositories.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::config::model::versions;
use crate::error::LoadError;

/// The directories of models: those with a configuration or with a version directory. Other entries are skipped.
pub(in crate::model) fn model_directories(directory: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let failed = |e: std::io::Error| LoadError::File { path: directory.to_owned(), what: e.to_string() };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if is_model_directory(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether this is a directory with a configuration or with a version directory.
pub(in crate::model) fn is_model_directory(path: &Path) -> bool {
    let has_version = || versions::versions_in(path).is_ok_and(|versions| !versions.is_empty());
    path.is_dir() && (path.join("config.pbtxt").is_file() || has_version())
}

/// The directories of the model of this name, one for each repository that has it. A repository that is named twice counts once.
pub(in crate::model) fn directories_of(name: &str, repositories: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let mut is_new = |repository: &&PathBuf| {
        seen.insert(fs_err::canonicalize(repository).unwrap_or_else(|_| repository.to_path_buf()))
    };
    let all = repositories.iter().filter(|repository| is_new(repository)).map(|repository| repository.join(name));
    all.filter(|path| is_model_directory(path)).collect()
}
