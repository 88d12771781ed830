//! Which folders are models, and which hold models.

use std::path::Path;

use crate::config::model::versions;

/// Whether `serve` takes a folder for a model.
pub(super) fn is_model(path: &Path) -> bool {
    path.join("config.pbtxt").is_file() || versions::versions_in(path).is_ok_and(|v| !v.is_empty())
}

/// Whether `serve` takes any folder of this one for a model.
pub(super) fn holds_models(path: &Path) -> bool {
    fs_err::read_dir(path)
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| is_model(&entry.path()))))
}
