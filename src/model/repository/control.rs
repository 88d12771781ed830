//! Where models lie, and who loads them.

use std::path::PathBuf;

use crate::config::server::file::ControlMode;
use crate::error::SourceFault;

/// Where models lie, and who loads them.
#[derive(Debug, Clone)]
pub struct RepositoryControl {
    pub mode: ControlMode,
    pub directories: Vec<PathBuf>,
}

/// What a repository's folders are made of.
pub trait RepositorySource: Send + Sync + std::fmt::Debug {
    /// Brings the folders up to date, as far as that can be done.
    fn refresh(&self) -> Result<(), SourceFault>;
}

impl RepositoryControl {
    /// The directory of this model; the first repository that has it wins.
    pub(super) fn locate(&self, model: &str) -> Option<PathBuf> {
        let there = self.directories.iter().map(|directory| directory.join(model)).find(|path| path.is_dir());
        there.filter(|_| is_model_name(model))
    }
}

/// Whether this can be the name of a model: that of a folder.
pub(super) fn is_model_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != ".."
}
