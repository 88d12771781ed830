//! What can be wrong with what the simulator is given.

use std::path::PathBuf;

use crate::config::Fault;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulateError {
    /// A file says something wrong, at its line.
    #[error("{0}")]
    Fault(Fault),
    #[error("{path}: {what}")]
    File { path: PathBuf, what: String },
    /// Something given means nothing.
    #[error("{0}")]
    Given(String),
}

impl From<Fault> for SimulateError {
    fn from(fault: Fault) -> Self {
        SimulateError::Fault(fault)
    }
}
