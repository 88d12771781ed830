//! `sequor plugin doctor`: which languages this machine can build plug-ins in.

use clap::{ArgMatches, Command};

use super::{Failed, machine};
use crate::author::doctor::{self, Found};

pub(super) fn command() -> Command {
    Command::new("doctor")
        .about("Say which languages plug-ins can be built in here, and what is missing for the others")
}

pub(super) fn run(_: &ArgMatches) -> Result<(), Failed> {
    let found = doctor::examine(&machine());
    for (language, found) in &found {
        let (how, what) = match found {
            Found::Ready(what) => ("ok", what),
            Found::Fetched(what) => ("at the first build", what),
            Found::Missing(what) => ("missing", what),
        };
        println!("{:<8}{how:<20}{what}", language.name());
    }
    if found.iter().all(|(_, found)| matches!(found, Found::Missing(_))) {
        return Err(Failed::Failed("there is no language to write plug-ins in".to_owned()));
    }
    Ok(())
}
