//! The files of a simulation.

use std::path::Path;

use crate::simulate::SimulateError;

pub(super) fn text(path: &Path) -> Result<String, SimulateError> {
    std::fs::read_to_string(path).map_err(|e| unreadable(path, &e))
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> SimulateError {
    SimulateError::File { path: path.to_owned(), what: error.to_string() }
}

/// The name of a file for sentences, without its folders.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
