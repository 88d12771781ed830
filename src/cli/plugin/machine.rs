//! This machine for the authors' tools, and the mapping of their failures.

use super::Failed;
use crate::author::{AuthorError, Machine};
use crate::cli::variable;

/// This machine. Its messages go to standard error.
pub(in crate::cli) fn machine() -> Machine {
    Machine::new(variable, |line| eprintln!("{line}"))
}

/// Separates faults of a file, which its author can fix, from other failures.
pub(super) fn failed(problem: AuthorError) -> Failed {
    match problem {
        AuthorError::File { path, what } => Failed::Configuration(format!("{}: {what}", path.display())),
        AuthorError::Text(what) => Failed::Configuration(what),
        other => Failed::Failed(other.to_string()),
    }
}
