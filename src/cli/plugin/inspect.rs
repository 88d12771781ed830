//! `sequor plugin inspect`: what a component says of itself.

use clap::{ArgMatches, Command};

use super::{Failed, failed, file, machine};
use crate::author::trial::Trial;
use crate::plugin::guest::Source;
use crate::plugin::manifest;

pub(super) fn command() -> Command {
    Command::new("inspect").about("Show what a component says of itself").arg(file::argument()).args(file::terms())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    for path in file::named(matches)? {
        let bytes = file::bytes(&path).map_err(failed)?;
        let terms = file::of_terms(matches)?;
        let trial = Trial::new(&path, &bytes, &machine(), terms)
            .map_err(|refused| Failed::Configuration(refused.to_string()))?;
        println!("file      {}, {} bytes", path.display(), bytes.len());
        println!("sha256    {}", trial.component.sha256());
        println!("imports   {}", trial.component.imports().join("  "));
        match trial.start() {
            Ok(running) => println!("memory    {:.1} MiB once configured", running.memory() as f64 / 1_048_576.0),
            Err(problem) => println!("memory    unknown: {problem}"),
        }
        match manifest::section(&bytes) {
            Ok(Some(text)) => print!("plugin.toml\n{}", indented(text)),
            _ => println!("plugin.toml   none: it is asked everything and shown everything"),
        }
    }
    Ok(())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
