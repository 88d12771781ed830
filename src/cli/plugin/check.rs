//! `sequor plugin check`: checks whether a server would accept a component.

use std::path::Path;

use clap::{ArgMatches, Command};
use serde_json::json;

use super::world::{GivenComponent, Printed};
use super::{Failed, file, machine, remote, worlds};
use crate::author::Machine;
use crate::cli::stdout;

pub(super) fn command() -> Command {
    let about = "Check that a server would load the components, and try them on made-up candidates or cases; exit 3 if a server would refuse one";
    Command::new("check")
        .about(about)
        .arg(file::argument())
        .args(file::trial_arguments())
        .arg(file::case())
        .arg(remote::output())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let (files, machine, as_json) = (file::named(matches)?, machine(), remote::wants_json(matches));
    let (mut wrong, mut all) = (0, Vec::new());
    for path in &files {
        let checked = one(path, matches, &machine);
        wrong += usize::from(checked.is_err());
        if as_json {
            let (ok, good, error) =
                (checked.is_ok(), checked.as_ref().ok().map(|good| &good.json), checked.as_ref().err());
            all.push(json!({ "file": path, "ok": ok, "component": good, "error": error }));
            continue;
        }
        match checked {
            Ok(good) => stdout::line(format_args!("{}   ok   {}", path.display(), good.text))?,
            Err(what) => stdout::line(format_args!("{what}"))?,
        }
    }
    if as_json {
        remote::print_json(&all.into())?;
    }
    if wrong == 0 {
        return Ok(());
    }
    Err(Failed::Configuration(format!("a server would refuse {wrong} of {} components", files.len())))
}

fn one(path: &Path, matches: &ArgMatches, machine: &Machine) -> Result<Printed, String> {
    let bytes = file::bytes(path).map_err(|problem| problem.to_string())?;
    worlds::of_component(&bytes).check(GivenComponent { path, bytes: &bytes, matches, machine })
}
