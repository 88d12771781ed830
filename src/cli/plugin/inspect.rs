//! `sequor plugin inspect`: shows what a component declares.

use clap::{ArgMatches, Command};

use super::{Failed, file, remote, worlds};

pub(super) fn command() -> Command {
    let about = "Show what a component says of itself";
    Command::new("inspect")
        .about(about)
        .arg(file::argument())
        .args(file::trial_arguments())
        .arg(file::case())
        .arg(remote::output())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    worlds::each(matches, |world, given| world.inspect(given))
}
