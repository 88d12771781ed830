//! `sequor plugin bench`: measures how long a plug-in's answers take on this machine.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{Failed, file, remote, worlds};
use crate::config::units::Span;

pub(super) fn command() -> Command {
    let span = Arg::new("for").long("for").value_name("DURATION").value_parser(value_parser!(Span));
    Command::new("bench")
        .about("Measure how long components take to load and to answer")
        .arg(file::argument())
        .arg(span.help("How long each size is measured [default: 300ms]"))
        .args(file::trial_arguments())
        .arg(file::case())
        .arg(remote::output())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let span = matches.get_one::<Span>("for").map_or(Duration::from_millis(300), |span| span.0);
    worlds::each(matches, |world, given| world.bench(given, span))
}
