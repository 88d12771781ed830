//! Recognizes folders of models, folders with models, and paths that are not folders.

use std::path::Path;

use super::Failed;
use crate::config::model::versions;

/// Refuses the address of an object store, which is not a folder.
pub(super) fn refuse_object_store(path: &Path) -> Result<(), Failed> {
    let text = path.to_string_lossy();
    let Some(store) = ["s3://", "gs://", "as://"].iter().find(|store| text.starts_with(**store)) else { return Ok(()) };
    Err(Failed::Configuration(format!(
        "{text}: repositories in object stores ({store}) are not served; copy it to a directory and name that one"
    )))
}

/// Whether `serve` treats any folder in this one as a model.
pub(super) fn holds_models(path: &Path) -> bool {
    fs_err::read_dir(path).is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| versions::is_model_directory(&entry.path())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_stores_are_refused_with_what_to_do() {
        for store in ["s3://bucket/models", "gs://bucket", "as://account/container"] {
            let Err(Failed::Configuration(what)) = refuse_object_store(Path::new(store)) else { panic!("{store}") };
            assert!(what.starts_with(store) && what.contains("copy it to a directory"), "{what}");
        }
        assert!(refuse_object_store(Path::new("models/s3:")).is_ok());
    }
}
