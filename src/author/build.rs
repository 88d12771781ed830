//! Builds a project's folder to components.

use std::path::{Path, PathBuf};

use super::files::place;
use super::project::ProjectManifest;
use super::{AuthorError, Machine, Project, component};

/// A component that was written to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    pub path: PathBuf,
    pub bytes: usize,
}

/// Builds every component of a project into this folder. Checks each manifest like a server before any compiler runs.
pub fn build(project: &Project, to: &Path, machine: &Machine) -> Result<Vec<Built>, AuthorError> {
    for manifest in &project.manifests {
        let checked = project.world.check_manifest(&manifest.path, &manifest.text);
        checked.map_err(|fault| AuthorError::Text(fault.to_string()))?;
    }
    let component = project.language.component(&project.folder, project.world, machine)?;
    let write = |manifest: &ProjectManifest| {
        let path = to.join(format!("{}.wasm", manifest.name));
        let whole = component::with_manifest(&component, &manifest.text);
        place(&path, &whole)?;
        Ok(Built { path, bytes: whole.len() })
    };
    project.manifests.iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_a_server_refuses_is_an_error_before_the_compiler_runs() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("plugin.py"), "not python (").unwrap();
        let head = "name = \"mine\"\nversion = \"0.1.0\"\ncontract = \"0.1.0\"\n";
        let machine = Machine {
            cargo_home: PathBuf::new(),
            cache: folder.path().join("cache"),
            toolchain: None,
            frozen_rustup: true,
            quiet: true,
            say: |line| panic!("a program runs: {line}"),
        };
        for (rest, message) in [
            (
                "world = \"scheduler\"\ncolumns = [\"deadline_us\"]\n",
                "plugin.toml:5:12: there is no column \"deadline_us\"; did you mean \"deadline-us\"?",
            ),
            ("world = \"processor\"\nwants = [\"plan\"]\n", "plugin.toml:5:"),
            ("world = \"state-initializer\"\nscratch = 1\n", "unknown field `scratch`"),
        ] {
            std::fs::write(folder.path().join("plugin.toml"), format!("{head}{rest}")).unwrap();
            let project = Project::open(folder.path()).unwrap();
            let error = build(&project, folder.path(), &machine).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
