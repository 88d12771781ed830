//! How a command ends that does not end well, and its exit code.

use clap::ArgMatches;

/// Runs a command, or a verb of one.
pub(crate) type CommandFn = fn(&ArgMatches) -> Result<(), Failed>;

/// How a command ended, if not well.
#[derive(Debug, thiserror::Error)]
#[allow(clippy::enum_variant_names, reason = "the plain kind of failure has no better name")]
pub(crate) enum Failed {
    /// What was to be done could not be done.
    #[error("{0}")]
    Failed(String),
    /// The configuration is wrong; one line for each fault.
    #[error("{0}")]
    Configuration(String),
    /// A server that is to be talked to does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The server says no. `help` is the place in the documentation that says what to do.
    #[error("{text}")]
    Refused { text: String, help: Option<String> },
}

impl Failed {
    /// Where the documentation explains the failure, if it does.
    pub(super) fn help(&self) -> Option<&str> {
        match self {
            Failed::Refused { help, .. } => help.as_deref(),
            _ => None,
        }
    }

    pub(super) fn code(&self) -> u8 {
        match self {
            Failed::Failed(_) => 1,
            Failed::Configuration(_) => 3,
            Failed::Unreachable(_) => 4,
            Failed::Refused { .. } => 5,
        }
    }
}
