//! `sequor plugin`: one command for authors and operators of plug-ins.

use clap::{ArgMatches, Command};

use super::{Failed, remote};

type Run = fn(&ArgMatches) -> Result<(), Failed>;

/// The verbs: how each is called, and what runs it.
fn verbs() -> Vec<(Command, Run)> {
    remote::plugin::verbs()
}

pub(super) fn command() -> Command {
    Command::new("plugin")
        .about("Plug-ins: hand them to a running server, watch them, take them away")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(verbs().into_iter().map(|(command, _)| command))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let Some((verb, matches)) = matches.subcommand() else { return Ok(()) };
    match verbs().into_iter().find(|(command, _)| command.get_name() == verb) {
        Some((_, run)) => run(matches),
        None => Ok(()),
    }
}
