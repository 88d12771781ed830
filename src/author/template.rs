//! A new plug-in's folder: a scheduler that works, small enough to be read and changed.

use std::path::Path;

use super::project::is_name;
use super::sdk::{self, files};
use super::{AuthorError, Language};

const COMMON: sdk::Kit = files!(
    "plugin.toml": "common/plugin.toml" "cases/burst.toml": "common/cases/burst.toml" "README.md": "common/README.md");

/// Makes the folder, which must not be there, with the kit its sources use in `sdk/`.
pub fn write(name: &str, language: &dyn Language, folder: &Path) -> Result<(), AuthorError> {
    if !is_name(name) {
        return Err(AuthorError::file(folder, format!("\"{name}\" is no name: [a-z][a-z0-9-]*, at most 63 long")));
    }
    if folder.exists() {
        return Err(AuthorError::file(
            folder,
            "is there already: take another name, or say with --dir where the folder goes",
        ));
    }
    for (path, text) in COMMON.iter().chain(language.template()) {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|e| AuthorError::file(parent, e))?;
        std::fs::write(&path, filled(text, name, language)).map_err(|e| AuthorError::file(&path, e))?;
    }
    sdk::write(language.kit(), &folder.join("sdk"))
}

fn filled(text: &str, name: &str, language: &dyn Language) -> String {
    let window = |most| format!("window = {most}                         # candidates it is shown at most\n");
    // Urgent requests must be among the candidates that the plug-in sees.
    let burst = language.window().map_or(400, |most| 400.min(2 * most));
    let text = text.replace("@WINDOW@\n", &language.window().map(window).unwrap_or_default());
    text.replace("@BURST@", &burst.to_string()).replace("@NAME@", name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::Project;
    use crate::author::languages::{LANGUAGES, named};
    use crate::scheduling::manifest;

    #[test]
    fn a_new_folder_is_a_project_of_its_language() {
        let scratch = tempfile::tempdir().unwrap();
        for language in LANGUAGES {
            let folder = scratch.path().join(language.name());
            write("mine", language, &folder).unwrap();
            let project = Project::open(&folder).unwrap();
            assert_eq!((project.language.name(), project.manifests[0].name.as_str()), (language.name(), "mine"));
            let declared = manifest::parse(Path::new("plugin.toml"), &project.manifests[0].text).unwrap();
            assert_eq!(declared.manifest.hooks.window, language.window().unwrap_or(0));
            assert!(write("mine", language, &folder).unwrap_err().to_string().contains("is there already: "));
        }
        assert!(write("Mine", named("rust").unwrap(), &scratch.path().join("x")).is_err());
    }
}
