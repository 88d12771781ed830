//! `sequor completions SHELL` and `sequor man DIR`: shell completions and manual pages, made from the program's own description.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::Failed;

pub(super) const NAME: &str = "completions";
pub(super) const MANUAL: &str = "man";

pub(super) fn command() -> Command {
    let shell = Arg::new("shell").required(true).value_name("SHELL").value_parser(value_parser!(Shell));
    Command::new(NAME).about("Print the completion script of a shell").arg(shell)
}

/// For packagers, so it is hidden in the help.
pub(super) fn manual_command() -> Command {
    let folder = Arg::new("folder").required(true).value_name("DIR").value_parser(value_parser!(PathBuf));
    Command::new(MANUAL).about("Write a manual page for every command into a folder").hide(true).arg(folder)
}

/// Prints the completion script of `program`.
pub(super) fn print(mut program: Command, matches: &ArgMatches) {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut program, "sequor", &mut script);
        // A closed pipe is not an error.
        let _ = io::stdout().write_all(&script);
    }
}

/// Writes the manual pages of `program` and its commands.
pub(super) fn write_manual(program: Command, matches: &ArgMatches) -> Result<(), Failed> {
    let Some(folder) = matches.get_one::<PathBuf>("folder") else { return Ok(()) };
    let failed = |e: io::Error| Failed::Failed(format!("cannot write manual pages to {}: {e}", folder.display()));
    fs_err::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(program, folder).map_err(failed)
}
