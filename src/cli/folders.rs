//! Recognizes folders of models, folders with models, and paths that are no model repositories.

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

/// Refuses a model's own folder in place of a repository: Sequor would find no models in it.
pub(super) fn refuse_model_folder(folder: &Path) -> Result<(), Failed> {
    if !versions::is_model_directory(folder) || holds_models(folder) {
        return Ok(());
    }
    let above = fs_err::canonicalize(folder).ok().and_then(|path| path.parent().map(|path| path.display().to_string()));
    let (folder, above) = (folder.display(), above.unwrap_or_else(|| "..".to_owned()));
    Err(Failed::Configuration(format!(
        "{folder} is the folder of one model; name the repository above it: --model-repository {above}"
    )))
}

/// Why `serve` cannot serve this repository.
pub(super) fn unserved(path: &Path) -> Option<String> {
    let refused = refuse_object_store(path).and_then(|()| refuse_model_folder(path)).err();
    let unread = || fs_err::read_dir(path).err().map(|error| format!("the model repository cannot be read: {error}"));
    refused.map(|failed| failed.to_string()).or_else(unread)
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
