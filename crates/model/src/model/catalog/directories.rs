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
        if versions::may_be_model(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The directories of the model of this name, one for each repository that has it. A repository that is named twice counts once.
pub(in crate::model) fn directories_of(name: &str, repositories: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let mut is_new = |repository: &&PathBuf| {
        seen.insert(fs_err::canonicalize(repository).unwrap_or_else(|_| repository.to_path_buf()))
    };
    let all = repositories.iter().filter(|repository| is_new(repository)).map(|repository| repository.join(name));
    all.filter(|path| versions::may_be_model(path)).collect()
}
