//! `sequor plugin doctor`: shows for which languages this machine can build plug-ins.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};
use serde_json::json;

use super::{Failed, failed, machine, remote};
use crate::author::doctor;
use crate::author::language::{Found, Language};
use crate::author::languages::{LANGUAGES, named};
use crate::cli::stdout;

pub(super) fn command() -> Command {
    let languages = PossibleValuesParser::new(LANGUAGES.map(Language::name));
    let install = Arg::new("install").long("install").value_name("LANG").value_parser(languages);
    Command::new("doctor")
        .about("List the languages that this machine can build, and what the others lack")
        .arg(install.help("Fetch what building in it needs; for C, that is too large to be fetched unasked"))
        .arg(remote::output())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    if let Some(language) = matches.get_one::<String>("install").and_then(|name| named(name)) {
        language.install(&machine()).map_err(failed)?;
    }
    let found = doctor::examine(&machine());
    let mut all = Vec::new();
    for (language, found) in &found {
        let (state, how, what) = match found {
            Found::Ready(what) => ("ok", "ok", what),
            Found::Fetched(what) => ("fetched", "at the first build", what),
            Found::Missing(what) => ("missing", "missing", what),
        };
        if !remote::wants_json(matches) {
            stdout::line(format_args!("{language:<8}{how:<20}{what}"))?;
        }
        all.push(json!({ "language": language, "state": state, "what": what }));
    }
    if remote::wants_json(matches) {
        remote::print_json(&all.into())?;
    }
    if found.iter().all(|(_, found)| matches!(found, Found::Missing(_))) {
        return Err(Failed::Failed("there is no language to write plug-ins in".to_owned()));
    }
    Ok(())
}
