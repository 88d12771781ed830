//! `sequor plugin doctor`: which languages this machine can build plug-ins in.

use clap::{Arg, ArgMatches, Command};

use super::{Failed, failed, machine};
use crate::author::c;
use crate::author::doctor::{self, Found};

pub(super) fn command() -> Command {
    let install = Arg::new("install").long("install").value_name("LANG").value_parser(["c"]);
    Command::new("doctor")
        .about("Say which languages plug-ins can be built in here, and what is missing for the others")
        .arg(install.help("Fetch what is too large to be fetched unasked"))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    if matches.get_one::<String>("install").is_some() {
        c::install(&machine()).map_err(failed)?;
    }
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
