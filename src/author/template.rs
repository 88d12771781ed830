//! Creates a new plug-in's folder: a working example, small enough to read and change.

use std::path::Path;

use super::project::{is_name, no_kit, not_a_name};
use super::world::AuthorWorld;
use super::{AuthorError, Language, sdk};

/// Creates the folder with its kit in `sdk/`. The folder must not exist yet.
pub fn write(name: &str, world: &dyn AuthorWorld, language: &dyn Language, folder: &Path) -> Result<(), AuthorError> {
    if !is_name(name) {
        return Err(AuthorError::file(folder, not_a_name(name)));
    }
    if folder.exists() {
        return Err(AuthorError::file(
            folder,
            "the folder exists already: choose another name, or another folder with --dir",
        ));
    }
    let template = world.template(language.name()).ok_or_else(|| AuthorError::Text(no_kit(world, language)))?;
    for (path, text) in world.common().iter().chain(template) {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|e| AuthorError::file(parent, e))?;
        std::fs::write(&path, filled(text, name, world, language)).map_err(|e| AuthorError::file(&path, e))?;
    }
    sdk::write(language.kit(), &folder.join("sdk"))
}

fn filled(text: &str, name: &str, world: &dyn AuthorWorld, language: &dyn Language) -> String {
    let window = |most| format!("window = {most}                         # candidates it is shown at most\n");
    // The burst must be small enough that urgent requests are among the candidates that the plug-in sees.
    let burst = language.window().map_or(400, |most| 400.min(2 * most));
    let text = text.replace("@WINDOW@\n", &language.window().map(window).unwrap_or_default());
    let text = text.replace("@ABOUT@", world.about()).replace("@CASES@", world.case());
    text.replace("@BURST@", &burst.to_string()).replace("@NAME@", name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::Project;
    use crate::author::languages::{LANGUAGES, named};
    use crate::author::worlds::{SchedulerProjects, WORLDS};
    use crate::scheduling::manifest;

    #[test]
    fn a_new_folder_is_a_project_of_its_world_and_language() {
        let scratch = tempfile::tempdir().unwrap();
        for (world, language) in WORLDS.into_iter().flat_map(|world| LANGUAGES.map(|language| (world, language))) {
            let folder = scratch.path().join(world.name()).join(language.name());
            if world.template(language.name()).is_none() {
                let message = write("mine", world, language, &folder).unwrap_err().to_string();
                assert!(message.starts_with("there is no kit in ") && !folder.exists(), "{message}");
                continue;
            }
            write("mine", world, language, &folder).unwrap();
            let project = Project::open(&folder).unwrap();
            assert_eq!((project.world.name(), project.language.name()), (world.name(), language.name()));
            assert_eq!(project.manifests[0].name, "mine");
            assert!(
                write("mine", world, language, &folder)
                    .unwrap_err()
                    .to_string()
                    .contains("the folder exists already: ")
            );
            let whole = std::fs::read_to_string(folder.join("README.md")).unwrap() + &project.manifests[0].text;
            assert!(!whole.contains('@'), "{whole}");
        }
        let rust = named("rust").unwrap();
        assert!(write("Mine", &SchedulerProjects, rust, &scratch.path().join("x")).is_err());
    }

    #[test]
    fn a_new_scheduler_declares_the_window_of_its_language() {
        let scratch = tempfile::tempdir().unwrap();
        for language in LANGUAGES {
            let folder = scratch.path().join(language.name());
            write("mine", &SchedulerProjects, language, &folder).unwrap();
            let text = &Project::open(&folder).unwrap().manifests[0].text;
            let declared = manifest::parse(Path::new("plugin.toml"), text).unwrap();
            assert_eq!(declared.manifest.hooks.window, language.window().unwrap_or(0));
        }
    }
}
