//! The command line: one file a command. Here is what they share: the list and the exit codes.
//!
//! Exit codes: 0 ok, 1 failed, 2 usage, 3 configuration, 4 server unreachable, 5 refused by the server.

mod audio;
mod bench;
mod chart;
mod check;
mod completions;
mod demo;
mod environment;
mod equip;
mod failed;
mod heaps;
mod launch;
mod plugin;
mod remote;
mod report;
mod runtime;
mod serve;
mod simulate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, Command};

pub(crate) use environment::variable;
pub(crate) use failed::Failed;

type Run = fn(&ArgMatches) -> Result<(), Failed>;

/// Every command: what it is called with, and what runs it.
fn commands() -> Vec<(Command, Run)> {
    vec![
        (serve::command(), serve::run),
        (check::command(), check::run),
        (demo::command(), demo::run),
        (simulate::command(), simulate::run),
        (bench::command(), bench::run),
        (plugin::command(), plugin::run),
        (remote::model::command(), remote::model::run),
        (remote::sequence::command(), remote::sequence::run),
        (remote::drain::command(), remote::drain::run),
        (runtime::command(), runtime::run),
    ]
}

/// Describes the whole command line.
fn program() -> Command {
    Command::new("sequor")
        .about("Sequor, an inference server for models that remember")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands().into_iter().map(|(command, _)| command))
        .subcommands([completions::command(), completions::manual_command()])
}

/// Parses these arguments and runs the command they name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = match program().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let Some((name, matches)) = matches.subcommand() else { return ExitCode::from(2) };
    match run_command(name, matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("sequor: {failed}");
            ExitCode::from(failed.code())
        }
    }
}

fn run_command(name: &str, matches: &ArgMatches) -> Result<(), Failed> {
    if name == completions::NAME {
        completions::print(program(), matches);
        return Ok(());
    }
    if name == completions::MANUAL {
        return completions::write_manual(program(), matches);
    }
    let found = commands().into_iter().find(|(command, _)| command.get_name() == name);
    found.map_or(Ok(()), |(_, run)| run(matches))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::program().debug_assert();
    }
}
