//! Errors between sources and a component.

use std::path::PathBuf;

/// Why there is no component. If the remedy is known, the text has it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorError {
    #[error("{}: {what}", path.display())]
    File { path: PathBuf, what: String },
    /// A text is wrong at the named place.
    #[error("{0}")]
    Text(String),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A source was written during its build, so it is not known which content the component has.
    #[error("{}: changed while it was built. Build again", path.display())]
    Changed { path: PathBuf },
    /// A required program is missing.
    #[error("{0}")]
    Missing(String),
    /// A program failed; its output was already shown.
    #[error("{program} failed ({status}){hint}")]
    Failed { program: String, status: String, hint: String },
    /// The compiled module is not a component of this contract.
    #[error("{}: {what}", path.display())]
    Component { path: PathBuf, what: String },
}

impl AuthorError {
    pub(crate) fn file(path: impl Into<PathBuf>, what: impl std::fmt::Display) -> AuthorError {
        AuthorError::File { path: path.into(), what: what.to_string() }
    }
}
