//! `sequor plugin inspect`: what a component says of itself.

use std::path::Path;

use clap::{ArgMatches, Command};
use serde::Serialize;

use super::{Failed, failed, file, machine, remote};
use crate::author::trial::Trial;
use sequor_wasm::manifest;

pub(super) fn command() -> Command {
    let about = "Show what a component says of itself";
    Command::new("inspect").about(about).arg(file::argument()).args(file::terms()).arg(remote::output())
}

/// A component as `inspect` prints it.
#[derive(Debug, Serialize)]
struct InspectedComponent {
    file: String,
    bytes: usize,
    sha256: String,
    imports: Vec<String>,
    /// Bytes of its memory once it is configured; or why it could not be.
    memory: Option<u64>,
    error: Option<String>,
    /// Its plugin.toml, if it has one.
    manifest: Option<String>,
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let (as_json, mut all) = (remote::wants_json(matches), Vec::new());
    for path in file::named(matches)? {
        let seen = look(&path, matches)?;
        if as_json {
            all.push(serde_json::json!(seen));
        } else {
            print!("{}", told(&seen));
        }
    }
    if as_json {
        remote::print_json(&all.into());
    }
    Ok(())
}

fn look(path: &Path, matches: &ArgMatches) -> Result<InspectedComponent, Failed> {
    let bytes = file::bytes(path).map_err(failed)?;
    let terms = file::of_terms(matches)?;
    let trial =
        Trial::new(path, &bytes, &machine(), terms).map_err(|refused| Failed::Configuration(refused.to_string()))?;
    let (memory, error) = match trial.start() {
        Ok(running) => (Some(running.memory()), None),
        Err(problem) => (None, Some(problem.to_string())),
    };
    Ok(InspectedComponent {
        file: path.display().to_string(),
        bytes: bytes.len(),
        sha256: trial.component.sha256().to_owned(),
        imports: trial.component.imports().to_vec(),
        memory,
        error,
        manifest: manifest::section(&bytes).ok().flatten().map(str::to_owned),
    })
}

fn told(seen: &InspectedComponent) -> String {
    let InspectedComponent { file, bytes, sha256, imports, memory, error, manifest } = seen;
    let memory = match (memory, error) {
        (Some(memory), _) => format!("{:.1} MiB once configured", *memory as f64 / 1_048_576.0),
        (None, error) => format!("unknown: {}", error.as_deref().unwrap_or_default()),
    };
    let manifest = match manifest {
        Some(text) => format!("plugin.toml\n{}", indented(text)),
        None => "plugin.toml   none: it is asked everything and shown everything\n".to_owned(),
    };
    let imports = imports.join("  ");
    format!("file      {file}, {bytes} bytes\nsha256    {sha256}\nimports   {imports}\nmemory    {memory}\n{manifest}")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
