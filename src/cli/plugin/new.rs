//! `sequor plugin new`: makes a folder with a working plug-in.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::json;

use super::{Failed, failed, remote};
use crate::author::language::Language;
use crate::author::languages::{LANGUAGES, named};
use crate::author::rust::Rust;
use crate::author::template;
use crate::author::world::AuthorWorld;
use crate::author::worlds::{self, WORLDS};
use crate::cli::stdout;

pub(super) fn command() -> Command {
    let languages = LANGUAGES.map(Language::name);
    Command::new("new")
        .about("Make a folder with a working plug-in, for you to change")
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .required(true)
                .help("Name of the plug-in: [a-z][a-z0-9-]*, at most 63 characters"),
        )
        .arg(
            Arg::new("world")
                .long("world")
                .default_value("scheduler")
                .value_parser(PossibleValuesParser::new(WORLDS.map(AuthorWorld::name)))
                .help("Kind of the plug-in"),
        )
        .arg(
            Arg::new("lang")
                .long("lang")
                .default_value("rust")
                .value_parser(PossibleValuesParser::new(languages))
                .help("Language"),
        )
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Folder to make [default: ./NAME]"),
        )
        .arg(remote::output())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let name = matches.get_one::<String>("name").map(String::as_str).unwrap_or_default();
    let language = matches.get_one::<String>("lang").and_then(|name| named(name)).unwrap_or(&Rust);
    let world = matches.get_one::<String>("world").map(String::as_str).unwrap_or_default();
    let world = worlds::named(world).map_err(Failed::Configuration)?;
    let folder = matches.get_one::<PathBuf>("dir").cloned().unwrap_or_else(|| PathBuf::from(name));
    template::write(name, world, language, &folder).map_err(failed)?;
    if remote::wants_json(matches) {
        return remote::print_json(
            &json!({ "name": name, "world": world.name(), "language": language.name(), "folder": folder }),
        );
    }
    stdout::line(format_args!("{}   next: cd {} && sequor plugin build", folder.display(), folder.display()))
}
