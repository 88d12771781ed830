//! The folders of models, and the control mode that decides when models are loaded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::config::model::versions;
use crate::config::server::file::ControlMode;
use crate::error::{LoadError, SourceFault};
use crate::model::catalog::model_directories;

/// The folders of models, and the control mode that decides when models are loaded.
#[derive(Debug, Clone)]
pub struct RepositoryControl {
    pub mode: ControlMode,
    pub directories: Vec<PathBuf>,
}

/// The source from which a repository's folders are made.
pub trait RepositorySource: Send + Sync + std::fmt::Debug {
    /// Updates the folders as far as possible.
    fn refresh(&self) -> Result<(), SourceFault>;

    /// The operator's file from which a file of the folders was made. Faults name it.
    fn original(&self, path: &Path) -> Option<PathBuf>;
}

impl RepositoryControl {
    /// The directory of this model. If several repositories have it, the loader refuses it.
    pub(super) fn locate(&self, model: &str) -> Option<PathBuf> {
        let there = || self.directories.iter().map(|directory| directory.join(model));
        let found = there().find(|path| versions::may_be_model(path)).or_else(|| there().find(|path| path.is_dir()));
        found.filter(|_| is_model_name(model))
    }

    /// The directories of all models, the first one of each name.
    pub(super) fn all_models(&self) -> Result<Vec<PathBuf>, LoadError> {
        let (mut names, mut all) = (BTreeSet::new(), Vec::new());
        for directory in &self.directories {
            let models = model_directories(directory)?;
            all.extend(models.into_iter().filter(|path| names.insert(path.file_name().map(ToOwned::to_owned))));
        }
        Ok(all)
    }
}

/// Whether this can be the name of a model, which is the name of a folder.
pub(super) fn is_model_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != ".."
}
