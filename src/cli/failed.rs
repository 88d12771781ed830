//! Failures of commands, and their exit codes.

use clap::ArgMatches;

/// A function that runs a command, or a subcommand.
pub(crate) type CommandFn = fn(&ArgMatches) -> Result<(), Failed>;

/// The failure of a command.
#[derive(Debug, thiserror::Error)]
#[allow(clippy::enum_variant_names, reason = "the plain kind of failure has no better name")]
pub(crate) enum Failed {
    /// The command's work failed.
    #[error("{0}")]
    Failed(String),
    /// The configuration is wrong. One line per fault.
    #[error("{0}")]
    Configuration(String),
    /// The server does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The reader of the output has gone. No message follows.
    #[error("the reader of the output has gone")]
    ReaderGone,
    /// The server refused the request. `help` is the place in the documentation that explains what to do.
    #[error("{text}")]
    Refused { text: String, help: Option<String> },
}

impl Failed {
    /// The place in the documentation that explains the failure, if there is one.
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
            // A shell reports this for a command that SIGPIPE ends.
            Failed::ReaderGone => 141,
        }
    }
}
