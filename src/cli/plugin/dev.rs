//! `sequor plugin dev`: builds every change of the sources, and a running server uses the result at once.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{Failed, file, remote, worlds};

pub(super) fn command() -> Command {
    let folder = Arg::new("folder").value_name("FOLDER").value_parser(value_parser!(PathBuf)).default_value(".");
    Command::new("dev")
        .about("Build on every change, and let a model of a running server use the result; Ctrl-C restores the version from before")
        .arg(folder.help("The plug-in's folder"))
        .arg(Arg::new("model").long("model").value_name("MODEL").required(true).help("The model that uses it"))
        .arg(file::set())
        .args(remote::args())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let folder = matches.get_one::<PathBuf>("folder").cloned().unwrap_or_default();
    worlds::of_folder(&folder)?.dev(&folder, matches)
}
