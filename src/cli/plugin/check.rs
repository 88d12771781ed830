//! `sequor plugin check`: would a server take it?

use std::path::Path;

use clap::{ArgMatches, Command};

use super::{Failed, file, machine};
use crate::author::trial::Trial;
use crate::author::{Machine, Problem};
use crate::plugin::guest::Source;

pub(super) fn command() -> Command {
    let about =
        "Hold components against the contract, and try them on made-up candidates; exit 3 if one would be refused";
    Command::new("check").about(about).arg(file::argument()).args(file::terms())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let (files, machine) = (file::named(matches)?, machine());
    let mut wrong = 0;
    for path in &files {
        match one(path, matches, &machine) {
            Ok(line) => println!("{}   ok   {line}", path.display()),
            Err(what) => {
                wrong += 1;
                println!("{what}");
            }
        }
    }
    if wrong == 0 {
        return Ok(());
    }
    Err(Failed::Configuration(format!("{wrong} of {} would be refused", files.len())))
}

fn one(path: &Path, matches: &ArgMatches, machine: &Machine) -> Result<String, String> {
    let text = |problem: Problem| problem.to_string();
    let bytes = file::bytes(path).map_err(text)?;
    let trial = Trial::new(path, &bytes, machine, file::of_terms(matches).map_err(|e| e.to_string())?).map_err(text)?;
    let mut running = trial.start().map_err(text)?;
    let at = |what: String| format!("{}   error   {what}", path.display());
    running.exercise().map_err(at)?;
    let hooks = running.hooks();
    let mut plan = String::new();
    if hooks.plan {
        // The first calls find nothing warm.
        let sizes = [1, 2, 64, 1024, 64, 64, 64];
        let took = sizes.into_iter().zip(1..).map(|(size, round)| running.plan(size, round));
        let took = took.collect::<Result<Vec<_>, String>>().map_err(at)?;
        let best = took.iter().rev().take(3).min().copied().unwrap_or_default();
        plan = format!(", plan of 64: {:.1} us", best.as_nanos() as f64 / 1e3);
    }
    let declared = trial.component.declared();
    let imports = trial.component.imports().iter().filter_map(|name| short(name)).collect::<Vec<_>>().join(" ");
    let size = bytes.len() as f64 / 1e3;
    let imports = if imports.is_empty() { "none" } else { &imports };
    let manifest = trial.component.manifest();
    Ok(format!(
        "{} {}, {} {}, {size:.0} KB{plan}, imports: {imports}",
        manifest.name, manifest.version, declared.world, declared.contract
    ))
}

/// `host` of `sequor:plugin/host@0.1.0`; types alone are no import anybody needs to know of.
fn short(import: &str) -> Option<&str> {
    let name = import.split('@').next().unwrap_or(import);
    let name = name.strip_prefix("sequor:plugin/").unwrap_or(name);
    Some(name).filter(|name| *name != "types")
}
