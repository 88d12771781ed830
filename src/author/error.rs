//! What goes wrong between sources and a component.

use std::path::PathBuf;

/// Why there is no component. The text says what to do about it where that is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorError {
    #[error("{}: {what}", path.display())]
    File { path: PathBuf, what: String },
    /// A text is wrong at the place that is named.
    #[error("{0}")]
    Text(String),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A program that is needed is not there.
    #[error("{0}")]
    Missing(String),
    /// A program ran and failed; what it printed has been seen already.
    #[error("{program} failed ({status}){hint}")]
    Failed { program: String, status: String, hint: String },
    /// What was compiled is no component of this contract.
    #[error("{}: {what}", path.display())]
    Component { path: PathBuf, what: String },
}

impl AuthorError {
    pub(crate) fn file(path: impl Into<PathBuf>, what: impl std::fmt::Display) -> AuthorError {
        AuthorError::File { path: path.into(), what: what.to_string() }
    }
}
