//! The table of all languages.

use std::path::Path;

use super::c::C;
use super::javascript::JavaScript;
use super::python::Python;
use super::rust::Rust;
use super::{AuthorError, Language};

/// All languages. A folder belongs to the first one whose source file it has.
pub static LANGUAGES: [&dyn Language; 4] = [&Rust, &Python, &JavaScript, &C];

/// The language with this name.
pub fn named(name: &str) -> Option<&'static dyn Language> {
    LANGUAGES.into_iter().find(|language| language.name() == name)
}

/// The language of this folder.
pub fn detect(folder: &Path) -> Result<&'static dyn Language, AuthorError> {
    let found = LANGUAGES.into_iter().find(|language| folder.join(language.source()).is_file());
    found.ok_or_else(|| {
        let names = LANGUAGES.map(Language::source).join(", ");
        let has_components = std::fs::read_dir(folder)
            .is_ok_and(|files| files.flatten().any(|file| file.path().extension().is_some_and(|end| end == "wasm")));
        let hint = if has_components { ". Name components by their files: *.wasm" } else { "" };
        AuthorError::file(folder, format!("this is not the folder of a plug-in: it has none of {names}{hint}"))
    })
}
