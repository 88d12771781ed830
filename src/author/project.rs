//! A plug-in's folder: its manifest and its language.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::world::AuthorWorld;
use super::{AuthorError, Language, languages, worlds};
use crate::config::toml_file;

/// The keys of a plugin.toml that a build needs. The server checks the rest when it loads the component.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Header {
    name: String,
    world: String,
}

/// A manifest: the name of the plug-in, and the text to embed in its component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectManifest {
    pub path: PathBuf,
    pub name: String,
    /// The name of its world.
    pub world: String,
    pub text: String,
}

/// A plug-in's folder.
#[derive(Debug, Clone)]
pub struct Project {
    pub folder: PathBuf,
    pub language: &'static dyn Language,
    pub world: &'static dyn AuthorWorld,
    /// The manifests, with one component each; usually plugin.toml only.
    pub manifests: Vec<ProjectManifest>,
}

impl Project {
    /// Opens a folder with its own plugin.toml.
    pub fn open(folder: &Path) -> Result<Project, AuthorError> {
        Project::with_manifests(folder, &[folder.join("plugin.toml")])
    }

    /// Opens a folder whose module becomes several plug-ins, one for each manifest.
    pub fn with_manifests(folder: &Path, manifests: &[PathBuf]) -> Result<Project, AuthorError> {
        let language = languages::detect(folder)?;
        let manifests = manifests.iter().map(|path| manifest(path)).collect::<Result<Vec<_>, _>>()?;
        let world = world(folder, &manifests)?;
        if world.template(language.name()).is_none() {
            return Err(AuthorError::file(folder, no_kit(world, language)));
        }
        Ok(Project { folder: folder.to_owned(), language, world, manifests })
    }
}

fn manifest(path: &Path) -> Result<ProjectManifest, AuthorError> {
    let text = std::fs::read_to_string(path).map_err(|e| AuthorError::file(path, e))?;
    let header: Header = toml_file::read(path, &text).map_err(|fault| AuthorError::Text(fault.to_string()))?;
    if !is_name(&header.name) {
        return Err(AuthorError::file(path, not_a_name(&header.name)));
    }
    worlds::named(&header.world).map_err(|what| AuthorError::file(path, what))?;
    Ok(ProjectManifest { path: path.to_owned(), name: header.name, world: header.world, text })
}

/// The world of all manifests. One module can have only one world.
fn world(folder: &Path, manifests: &[ProjectManifest]) -> Result<&'static dyn AuthorWorld, AuthorError> {
    let name = manifests.first().map(|manifest| manifest.world.as_str()).unwrap_or_default();
    if let Some(other) = manifests.iter().find(|manifest| manifest.world != name) {
        return Err(AuthorError::file(&other.path, format!("world \"{}\", beside another of \"{name}\"", other.world)));
    }
    worlds::named(name).map_err(|what| AuthorError::file(folder, what))
}

/// The error for a language without a kit for a world.
pub(super) fn no_kit(world: &dyn AuthorWorld, language: &dyn Language) -> String {
    let (world, language) = (world.name(), language.name());
    format!("there is no kit in {language} for world \"{world}\" yet: --lang rust or python")
}

/// The error for an invalid name.
pub(super) fn not_a_name(name: &str) -> String {
    format!("\"{name}\" is not a valid name: a to z, 0 to 9 and \"-\", a letter first, at most 63 characters")
}

/// Whether a name is valid for file names, metrics and TOML keys.
pub fn is_name(name: &str) -> bool {
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    plain && name.len() <= 63 && name.starts_with(|c: char| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_folder_needs_a_source_and_a_valid_manifest() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Project::open(folder.path()).map_err(|e| e.to_string());
        let no_source =
            "this is not the folder of a plug-in: it has none of Cargo.toml, plugin.py, plugin.js, plugin.c";
        assert!(open().unwrap_err().ends_with(no_source));
        std::fs::write(folder.path().join("mine.wasm"), "").unwrap();
        assert!(open().unwrap_err().ends_with(". Name components by their files: *.wasm"));
        std::fs::write(folder.path().join("plugin.py"), "").unwrap();
        assert!(open().unwrap_err().contains("plugin.toml: "));
        let manifest = |text: &str| std::fs::write(folder.path().join("plugin.toml"), text).unwrap();
        manifest("name = \"Fair\"\nworld = \"scheduler\"\n");
        assert!(open().unwrap_err().contains("\"Fair\" is not a valid name"));
        manifest("name = \"fair\"\nworld = \"prozessor\"\n");
        assert!(
            open()
                .unwrap_err()
                .ends_with("there is no world \"prozessor\"; there are scheduler, processor, state-initializer")
        );
        manifest("name = \"fair\"\nwants = [\n");
        assert!(open().unwrap_err().contains("plugin.toml:2:"), "{:?}", open());
        manifest("name = \"fair\"\nworld = \"scheduler\"\nversion = \"1\"\n");
        let project = open().unwrap();
        assert_eq!((project.language.name(), project.manifests[0].name.as_str()), ("python", "fair"));
    }
}
