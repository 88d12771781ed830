//! From a folder to components.

use std::path::{Path, PathBuf};

use super::{Machine, Problem, Project, component};

/// A component that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    pub path: PathBuf,
    pub bytes: usize,
}

/// Builds every component of a project into this folder.
pub fn build(project: &Project, to: &Path, machine: &Machine) -> Result<Vec<Built>, Problem> {
    let component = project.language.component(&project.folder, machine)?;
    let write = |manifest: &super::project::Manifest| {
        let path = to.join(format!("{}.wasm", manifest.name));
        let whole = component::with_manifest(&component, &manifest.text);
        place(&path, &whole)?;
        Ok(Built { path, bytes: whole.len() })
    };
    project.manifests.iter().map(write).collect()
}

/// Puts the whole file there at once: whoever watches the folder never reads half of it. One that is the same is left alone.
pub(super) fn place(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    if std::fs::read(path).is_ok_and(|is| is == bytes) {
        return Ok(());
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|e| Problem::file(parent, e))?;
    let file = tempfile::NamedTempFile::new_in(parent).map_err(|e| Problem::file(parent, e))?;
    std::fs::write(file.path(), bytes).map_err(|e| Problem::file(path, e))?;
    let file = file.persist(path).map_err(|e| Problem::file(path, e.error))?;
    readable(&file, path)
}

/// Scratch files are their owner's alone; a component is for the server, too.
fn readable(file: &std::fs::File, path: &Path) -> Result<(), Problem> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(|e| Problem::file(path, e))
}
