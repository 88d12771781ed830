//! `sequor plugin check`: would a server take it?

use std::path::Path;

use clap::{ArgMatches, Command};
use serde::Serialize;
use serde_json::json;

use super::{Failed, file, machine, remote};
use crate::author::trial::{Terms, Trial};
use crate::author::{AuthorError, Machine};
use crate::scheduling::guest::Source;

pub(super) fn command() -> Command {
    let about =
        "Hold components against the contract, and try them on made-up candidates; exit 3 if one would be refused";
    Command::new("check").about(about).arg(file::argument()).args(file::terms()).arg(remote::output())
}

/// A component that a server would take.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct CheckedComponent {
    name: String,
    version: String,
    world: String,
    contract: String,
    bytes: usize,
    /// Microseconds of a plan of 64 candidates, at best; none, if it plans nothing.
    plan_us: Option<f64>,
    imports: Vec<String>,
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let (files, machine, as_json) = (file::named(matches)?, machine(), remote::wants_json(matches));
    let (mut wrong, mut all) = (0, Vec::new());
    for path in &files {
        let checked = one(path, matches, &machine);
        wrong += usize::from(checked.is_err());
        if as_json {
            let (ok, good, error) = (checked.is_ok(), checked.as_ref().ok(), checked.as_ref().err());
            all.push(json!({ "file": path, "ok": ok, "component": good, "error": error }));
            continue;
        }
        match checked {
            Ok(good) => println!("{}   ok   {} {}, {}", path.display(), good.name, good.version, good.told()),
            Err(what) => println!("{what}"),
        }
    }
    if as_json {
        remote::print_json(&all.into());
    }
    if wrong == 0 {
        return Ok(());
    }
    Err(Failed::Configuration(format!("{wrong} of {} would be refused", files.len())))
}

fn one(path: &Path, matches: &ArgMatches, machine: &Machine) -> Result<CheckedComponent, String> {
    tried(path, file::of_terms(matches).map_err(|e| e.to_string())?, machine)
}

/// The component of this file, if a server would take it; else why not.
pub(in crate::cli) fn tried(path: &Path, terms: Terms, machine: &Machine) -> Result<CheckedComponent, String> {
    let text = |problem: AuthorError| problem.to_string();
    let bytes = file::bytes(path).map_err(text)?;
    let trial = Trial::new(path, &bytes, machine, terms).map_err(text)?;
    let mut running = trial.start().map_err(text)?;
    let at = |what: String| format!("{}: {what}", path.display());
    running.exercise().map_err(at)?;
    let mut plan_us = None;
    if running.hooks().plan {
        // The first calls find nothing warm.
        let sizes = [1, 2, 64, 1024, 64, 64, 64];
        let took = sizes.into_iter().zip(1..).map(|(size, round)| running.plan(size, round));
        let took = took.collect::<Result<Vec<_>, String>>().map_err(at)?;
        plan_us = took.iter().rev().take(3).min().map(|best| best.as_nanos() as f64 / 1e3);
    }
    let (declared, manifest) = (trial.component.declared(), trial.component.manifest());
    Ok(CheckedComponent {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        world: declared.world.clone(),
        contract: declared.contract.clone(),
        bytes: bytes.len(),
        plan_us,
        imports: trial.component.imports().iter().filter_map(|name| short(name)).map(str::to_owned).collect(),
    })
}

impl CheckedComponent {
    /// What it is, but for its name.
    pub(in crate::cli) fn told(&self) -> String {
        let CheckedComponent { world, contract, bytes, plan_us, imports, .. } = self;
        let plan = plan_us.map(|us| format!(", plan of 64: {us:.1} us")).unwrap_or_default();
        let imports = if imports.is_empty() { "none".to_owned() } else { imports.join(" ") };
        let size = *bytes as f64 / 1e3;
        format!("{world} {contract}, {size:.0} KB{plan}, imports: {imports}")
    }
}

/// `host` of `sequor:plugin/host@0.1.0`; types alone are no import anybody needs to know of.
fn short(import: &str) -> Option<&str> {
    let name = import.split('@').next().unwrap_or(import);
    let name = name.strip_prefix("sequor:plugin/").unwrap_or(name);
    Some(name).filter(|name| *name != "types")
}
