//! Errors in the simulator's input.

use std::path::PathBuf;

use crate::config::Fault;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulateError {
    /// A fault in a file, with its line.
    #[error("{0}")]
    Fault(Fault),
    #[error("{path}: {what}")]
    File { path: PathBuf, what: String },
    /// An input that is not valid.
    #[error("{0}")]
    Given(String),
}

impl From<Fault> for SimulateError {
    fn from(fault: Fault) -> Self {
        SimulateError::Fault(fault)
    }
}
