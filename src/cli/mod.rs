//! The command line: one file for each command. This file has their common part: the list and the exit codes.
//!
//! Exit codes: 0 ok, 1 failed, 2 usage, 3 configuration, 4 server unreachable, 5 refused by the server, 141 the reader of the output has gone.

#![deny(clippy::print_stdout, reason = "it panics if the reader has gone: `stdout` does not")]

mod audio;
mod bench;
mod chart;
mod check;
mod completions;
mod config;
mod demo;
mod environment;
mod failed;
mod folders;
mod heaps;
mod host;
mod launch;
mod migrate;
mod migrate_write;
mod ovms;
mod plugin;
mod plugin_host;
mod remote;
mod replay;
mod report;
mod runtime;
mod serve;
mod settings;
mod simulate;
mod stdout;
mod terminal;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

pub(crate) use environment::variable;
pub(crate) use failed::{CommandFn, Failed};

/// All commands, each with the function that runs it.
fn commands() -> Vec<(Command, CommandFn)> {
    vec![
        (serve::command(), serve::run),
        (check::command(), check::run),
        (config::command(), config::run),
        (migrate::command(), migrate::run),
        (demo::command(), demo::run),
        (replay::command(), replay::run),
        (simulate::command(), simulate::run),
        (bench::command(), bench::run),
        (plugin::command(), plugin::run),
        (remote::status::command(), remote::status::run),
        (remote::top::command(), remote::top::run),
        (remote::why::command(), remote::why::run),
        (remote::model::command(), remote::model::run),
        (remote::sequence::command(), remote::sequence::run),
        (remote::drain::command(), remote::drain::run),
        (runtime::command(), runtime::run),
    ]
}

/// Builds the whole command line.
fn program() -> Command {
    Command::new("sequor")
        .about("Sequor, an inference server for stateful ONNX models")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(remote::global_args())
        .subcommands(commands().into_iter().map(|(command, _)| command))
        .subcommands([completions::command(), completions::manual_command()])
}

/// Parses these arguments and runs the command they name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = match parse(ovms::called_as(arguments)) {
        Ok(matches) => matches,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let Some((name, matches)) = matches.subcommand() else { return ExitCode::from(2) };
    // A server serves although its output has no reader.
    let flush = || if name == serve::NAME { Ok(()) } else { stdout::flush() };
    match run_command(name, matches).and_then(|()| flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(gone @ Failed::ReaderGone) => ExitCode::from(gone.code()),
        Err(failed) => {
            let help = failed.help().map(|help| format!("help: {help}\n")).unwrap_or_default();
            // Its reader may have gone, too.
            let _ = write!(std::io::stderr(), "sequor: {failed}\n{help}");
            ExitCode::from(failed.code())
        }
    }
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<ArgMatches, clap::Error> {
    let matches = program().try_get_matches_from(arguments)?;
    if let Some(what) = misplaced(&program(), &matches) {
        return Err(program().error(ErrorKind::UnknownArgument, what));
    }
    let mut command = command_of(&matches);
    match remote::one_sequence::unnamed(&command, innermost(&matches)) {
        None => Ok(matches),
        Some(what) => Err(command.error(ErrorKind::MissingRequiredArgument, what)),
    }
}

/// The command that runs. Its errors show its own usage.
fn command_of(matches: &ArgMatches) -> Command {
    let (mut program, mut at) = (program(), matches);
    program.build();
    let mut command = &program;
    while let Some((name, inner)) = at.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (command, at) = (found, inner);
    }
    command.clone()
}

/// The matches of the command that runs.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| innermost(inner))
}

/// Why a global flag is refused, if the command does not take it.
fn misplaced(program: &Command, matches: &ArgMatches) -> Option<String> {
    let (mut command, mut at) = (program, matches);
    let mut path = vec![program.get_name()];
    while let Some((name, inner)) = at.subcommand() {
        (command, at) = (command.find_subcommand(name)?, inner);
        path.push(name);
    }
    let is_given = |id: &str| at.value_source(id) == Some(ValueSource::CommandLine);
    let takes = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    let flag = remote::global_args().find(|arg| is_given(arg.get_id().as_str()) && !takes(arg.get_id().as_str()))?;
    Some(format!("`{}` does not take --{}", path.join(" "), flag.get_id()))
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
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        program().debug_assert();
    }

    fn parsed(line: &str) -> Result<ArgMatches, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_server_is_named_before_or_after_the_verb() {
        for line in [
            "sequor --server h:1 --output json plugin list",
            "sequor plugin --server h:1 --output json list",
            "sequor plugin list --server h:1 --output json",
            "sequor --output json plugin list --server h:1",
        ] {
            let matches = parsed(line).unwrap();
            let (_, noun) = matches.subcommand().unwrap();
            let (_, verb) = noun.subcommand().unwrap();
            let of = |id: &str| (verb.get_one::<String>(id).cloned().unwrap(), verb.value_source(id));
            assert_eq!(of("server"), ("h:1".to_owned(), Some(ValueSource::CommandLine)), "{line}");
            assert_eq!(of("output"), ("json".to_owned(), Some(ValueSource::CommandLine)), "{line}");
        }
    }

    #[test]
    fn a_command_about_one_sequence_needs_its_id() {
        for line in ["sequor why vad", "sequor sequence capture vad --to f", "sequor sequence drop --model vad"] {
            assert!(parsed(line).is_err(), "{line}");
        }
        let error = parsed("sequor why --model vad").unwrap_err();
        assert!(error.contains("there is no ID") && error.contains("Usage: sequor why"), "{error}");
        for line in ["sequor why vad/7", "sequor sequence capture --model vad 7 --to f", "sequor sequence list vad"] {
            assert!(parsed(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_flag_that_a_command_does_not_take_is_refused_by_name() {
        for (line, refusal) in [
            ("sequor --server h:1 serve", "`sequor serve` does not take --server"),
            ("sequor plugin --key-file k new mine", "`sequor plugin new` does not take --key-file"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(refusal), "{line}: {error}");
        }
        assert!(parsed("sequor serve").is_ok());
    }
}
