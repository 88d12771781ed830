//! `sequor plugin`: authors' commands on their own machine, one file per subcommand. The subcommands for a running server are in
//! `cli/remote`. Each world has a folder or file with its name; `worlds` is the table of them.

mod bench;
mod build;
mod check;
mod dev;
mod dev_loop;
mod doctor;
mod file;
mod initializer;
mod inspect;
mod machine;
mod new;
mod placed;
mod placed_dev;
mod processor;
pub(super) mod scheduler;
mod test;
mod world;
mod worlds;

use clap::{ArgMatches, Command};

use super::{CommandFn, Failed, remote};
use machine::failed;
pub(super) use machine::machine;

/// The subcommands: the command line of each, and the function that runs it.
fn verbs() -> Vec<(Command, CommandFn)> {
    let here: Vec<(Command, CommandFn)> = vec![
        (new::command(), new::run),
        (build::command(), build::run),
        (check::command(), check::run),
        (test::command(), test::run),
        (bench::command(), bench::run),
        (inspect::command(), inspect::run),
        (dev::command(), dev::run),
        (doctor::command(), doctor::run),
    ];
    here.into_iter().chain(remote::plugin::verbs()).collect()
}

pub(super) fn command() -> Command {
    Command::new("plugin")
        .about("Write, build and try plug-ins, and load them into a running server")
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
