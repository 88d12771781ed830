//! A new plug-in's folder: a scheduler that works, small enough to be read and changed.

use std::path::Path;

use super::project::is_name;
use super::{Language, Problem, sdk};

macro_rules! files {
    ($($to:literal: $from:literal)*) => {
        &[$(($to, include_str!(concat!("../../plugins/templates/", $from)))),*]
    };
}

const COMMON: sdk::Kit = files!(
    "plugin.toml": "common/plugin.toml" "cases/burst.toml": "common/cases/burst.toml" "README.md": "common/README.md");

const RUST: sdk::Kit =
    files!("Cargo.toml": "rust/Cargo.toml" "src/lib.rs": "rust/src/lib.rs" ".gitignore": "rust/gitignore");

const PYTHON: sdk::Kit = files!(
    "plugin.py": "python/plugin.py" "test_plugin.py": "python/test_plugin.py" ".gitignore": "python/gitignore");

const C: sdk::Kit = files!("plugin.c": "c/plugin.c" ".gitignore": "c/gitignore");

/// Makes the folder, which must not be there, with the kit its sources use in `sdk/`.
pub fn write(name: &str, language: Language, folder: &Path) -> Result<(), Problem> {
    if !is_name(name) {
        return Err(Problem::file(folder, format!("\"{name}\" is no name: [a-z][a-z0-9-]*, at most 63 long")));
    }
    if folder.exists() {
        return Err(Problem::file(folder, "is there already"));
    }
    let (own, kit) = match language {
        Language::Rust => (RUST, sdk::RUST),
        Language::Python => (PYTHON, sdk::PYTHON),
        Language::C => (C, sdk::C),
    };
    for (path, text) in COMMON.iter().chain(own) {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|e| Problem::file(parent, e))?;
        std::fs::write(&path, text.replace("@NAME@", name)).map_err(|e| Problem::file(&path, e))?;
    }
    sdk::write(kit, &folder.join("sdk"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::Project;

    #[test]
    fn a_new_folder_is_a_project_of_its_language() {
        let scratch = tempfile::tempdir().unwrap();
        for language in [Language::Rust, Language::Python, Language::C] {
            let folder = scratch.path().join(language.name());
            write("mine", language, &folder).unwrap();
            let project = Project::open(&folder).unwrap();
            assert_eq!((project.language, project.manifests[0].name.as_str()), (language, "mine"));
            assert!(write("mine", language, &folder).unwrap_err().to_string().ends_with("is there already"));
        }
        assert!(write("Mine", Language::Rust, &scratch.path().join("x")).is_err());
    }
}
