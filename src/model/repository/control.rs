//! Where models lie, and who loads them.

use std::path::PathBuf;

use crate::config::server::file::ControlMode;

/// Where models lie, and who loads them.
#[derive(Debug, Clone)]
pub struct RepositoryControl {
    pub mode: ControlMode,
    pub directories: Vec<PathBuf>,
}

impl RepositoryControl {
    /// The directory of this model; the first repository that has it wins.
    pub(super) fn locate(&self, model: &str) -> Option<PathBuf> {
        let is_name = !model.is_empty() && !model.contains(['/', '\0']) && model != "." && model != "..";
        let there = self.directories.iter().map(|directory| directory.join(model)).find(|path| path.is_dir());
        there.filter(|_| is_name)
    }
}
