//! From a folder to components.

use std::path::{Path, PathBuf};

use super::files::place;
use super::project::ProjectManifest;
use super::{AuthorError, Machine, Project, component};

/// A component that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    pub path: PathBuf,
    pub bytes: usize,
}

/// Builds every component of a project into this folder.
pub fn build(project: &Project, to: &Path, machine: &Machine) -> Result<Vec<Built>, AuthorError> {
    let component = project.language.component(&project.folder, project.world, machine)?;
    let write = |manifest: &ProjectManifest| {
        let path = to.join(format!("{}.wasm", manifest.name));
        let whole = component::with_manifest(&component, &manifest.text);
        place(&path, &whole)?;
        Ok(Built { path, bytes: whole.len() })
    };
    project.manifests.iter().map(write).collect()
}
