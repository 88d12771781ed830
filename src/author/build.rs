//! Builds a project's folder to components.

use std::path::{Path, PathBuf};

use super::files::place;
use super::project::ProjectManifest;
use super::sources::PluginSources;
use super::{AuthorError, Machine, Project, component};

/// A component that was written to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    pub path: PathBuf,
    pub bytes: usize,
}

/// Builds every component of a project into this folder. Checks each manifest like a server before any compiler runs. If a source changes
/// during the build, that is an error and nothing is written.
pub fn build(project: &Project, to: &Path, machine: &Machine) -> Result<Vec<Built>, AuthorError> {
    for manifest in &project.manifests {
        let checked = project.world.check_manifest(&manifest.path, &manifest.text);
        checked.map_err(|fault| AuthorError::Text(fault.to_string()))?;
    }
    let before = PluginSources::read(&project.folder)?;
    let component = project.language.component(&project.folder, project.world, machine)?;
    before.check_same(&project.folder)?;
    project.manifests.iter().try_for_each(check_read)?;
    let write = |manifest: &ProjectManifest| {
        let path = to.join(format!("{}.wasm", manifest.name));
        let whole = component::with_manifest(&component, &manifest.text);
        place(&path, &whole)?;
        Ok(Built { path, bytes: whole.len() })
    };
    project.manifests.iter().map(write).collect()
}

/// An error if a manifest changed after it was read.
fn check_read(manifest: &ProjectManifest) -> Result<(), AuthorError> {
    let is_same = std::fs::read_to_string(&manifest.path).is_ok_and(|text| text == manifest.text);
    if is_same { Ok(()) } else { Err(AuthorError::Changed { path: manifest.path.clone() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::language::Found;
    use crate::author::sdk::Kit;
    use crate::author::world::AuthorWorld;
    use crate::author::{Language, worlds};

    /// A language whose build writes `text` to `file` of the folder, as an author does who goes on editing.
    #[derive(Debug)]
    struct EditedMeanwhile {
        file: &'static str,
        text: &'static str,
    }

    impl Language for EditedMeanwhile {
        fn name(&self) -> &'static str {
            "edited"
        }

        fn source(&self) -> &'static str {
            "plugin.py"
        }

        fn kit(&self) -> Kit {
            &[]
        }

        fn component(&self, folder: &Path, _: &dyn AuthorWorld, _: &Machine) -> Result<Vec<u8>, AuthorError> {
            std::fs::write(folder.join(self.file), self.text)?;
            Ok(b"\0asm\x0d\0\x01\0".to_vec())
        }

        fn examine(&self, _: &Machine) -> Found {
            Found::Ready(String::new())
        }

        fn install(&self, _: &Machine) -> Result<(), AuthorError> {
            Ok(())
        }
    }

    #[test]
    fn a_build_reports_a_source_that_changed_meanwhile_and_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("lib.py"), "first").unwrap();
        let machine = Machine::new(|_| None, |_| ());
        let path = folder.path().join("plugin.toml");
        let manifest = ProjectManifest {
            path: path.clone(),
            name: "mine".to_owned(),
            world: "scheduler".to_owned(),
            text: "name = \"mine\"\nversion = \"0.1.0\"\nworld = \"scheduler\"\ncontract = \"0.1.0\"\n".to_owned(),
        };
        std::fs::write(&path, &manifest.text).unwrap();
        let project = |language: &'static dyn Language| Project {
            folder: folder.path().to_owned(),
            language,
            world: worlds::named("scheduler").unwrap(),
            manifests: vec![manifest.clone()],
        };
        let out = folder.path().join("mine.wasm");
        for (file, language) in [
            ("lib.py", &EditedMeanwhile { file: "lib.py", text: "second" }),
            ("plugin.toml", &EditedMeanwhile { file: "plugin.toml", text: "name = \"other\"" }),
        ] {
            let changed = build(&project(language), folder.path(), &machine).unwrap_err();
            assert!(matches!(&changed, AuthorError::Changed { path } if path.ends_with(file)), "{changed}");
            assert!(!out.exists());
        }
        std::fs::write(&path, &manifest.text).unwrap();
        // The file now has this content already.
        build(&project(&EditedMeanwhile { file: "lib.py", text: "second" }), folder.path(), &machine).unwrap();
        assert!(out.is_file());
    }

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
