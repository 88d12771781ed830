//! This machine as authors' tools have it, and what comes of it when they fail.

use super::Failed;
use crate::author::{Machine, Problem};
use crate::cli::variable;

/// This machine, whose news go to standard error.
pub(in crate::cli) fn machine() -> Machine {
    Machine::new(variable, |line| eprintln!("{line}"))
}

/// Separates faults of a file, which its author mends, from other failures.
pub(super) fn failed(problem: Problem) -> Failed {
    match problem {
        Problem::File { path, what } => Failed::Configuration(format!("{}: {what}", path.display())),
        Problem::Text(what) => Failed::Configuration(what),
        other => Failed::Failed(other.to_string()),
    }
}
