//! `sequor plugin build`: builds components from folders.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::json;

use super::{Failed, failed, machine, remote};
use crate::author::{self, Machine, Project};
use crate::cli::stdout;

pub(super) fn command() -> Command {
    let path = || value_parser!(PathBuf);
    Command::new("build")
        .about("Compile plug-ins into components: NAME.wasm beside plugin.toml")
        .arg(
            Arg::new("folder")
                .value_name("FOLDER")
                .value_parser(path())
                .num_args(1..)
                .default_value(".")
                .help("Folders of plug-ins"),
        )
        .arg(Arg::new("out").long("out").value_name("DIR").value_parser(path()).help("Where the components go"))
        .arg(
            Arg::new("manifest")
                .long("manifest")
                .value_name("FILE")
                .value_parser(path())
                .num_args(1..)
                .action(ArgAction::Append)
                .help("In place of plugin.toml; one module becomes as many plug-ins as there are manifests"),
        )
        .arg(Arg::new("quiet").long("quiet").action(ArgAction::SetTrue).help("Print only what goes wrong"))
        .arg(remote::output())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let manifests: Vec<PathBuf> = matches.get_many("manifest").into_iter().flatten().cloned().collect();
    let folders: Vec<&PathBuf> = matches.get_many("folder").into_iter().flatten().collect();
    let quiet = matches.get_flag("quiet");
    let machine = if quiet { Machine { say: |_| (), quiet, ..machine() } } else { machine() };
    let (as_json, mut all) = (remote::wants_json(matches), Vec::new());
    for folder in folders {
        let project = match manifests.as_slice() {
            [] => Project::open(folder),
            given => Project::with_manifests(folder, given),
        };
        let project = project.map_err(failed)?;
        let out = matches.get_one::<PathBuf>("out").unwrap_or(folder);
        for built in author::build(&project, out, &machine).map_err(failed)? {
            if !quiet && !as_json {
                let next = next(matches, &built.path);
                stdout::line(format_args!("{}   {:.0} KB{next}", built.path.display(), built.bytes as f64 / 1e3))?;
            }
            all.push(json!({ "file": built.path, "bytes": built.bytes }));
        }
    }
    if as_json {
        remote::print_json(&all.into())?;
    }
    Ok(())
}

/// What comes next for a component that `--out` put where `sequor plugin check` does not look.
fn next(matches: &ArgMatches, component: &Path) -> String {
    if matches.contains_id("out") { format!("   sequor plugin check {}", component.display()) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_that_is_built_elsewhere_is_named_for_the_check() {
        let next = |args: &[&str]| next(&command().get_matches_from(args), Path::new("out/mine.wasm"));
        assert_eq!(next(&["build", "--out", "out"]), "   sequor plugin check out/mine.wasm");
        assert_eq!(next(&["build"]), "");
    }
}
