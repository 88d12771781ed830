//! Arguments that several subcommands share: components by file or folder, and the options of a trial.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use serde_json::Value;

use super::{Failed, failed, remote};
use crate::author::trial::TrialOptions;
use crate::author::{AuthorError, Project};
use crate::config::units::{Size, Span};
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::Limits;

pub(super) fn argument() -> Arg {
    Arg::new("file")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .num_args(1..)
        .default_value(".")
        .help("Components, or folders of plug-ins that were built")
}

/// The argument for the case that describes the model of a processor or a state initializer.
pub(super) fn case() -> Arg {
    let case = Arg::new("case").long("case").value_name("FILE").value_parser(value_parser!(PathBuf));
    case.help("The case that describes the model of a processor or a state initializer [default: the first of cases/]")
}

/// The arguments for [`trial_options`].
pub(super) fn trial_arguments() -> Vec<Arg> {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    vec![
        set(),
        flag("time", "DURATION", "CPU time of a call [default: 2ms for schedulers, otherwise 10ms]")
            .value_parser(value_parser!(Span)),
        flag(
            "memory",
            "SIZE",
            "Maximum memory of an instance, as 64MiB; a number alone is MiB [default: what its language needs]",
        )
        .value_parser(memory),
        grant(),
    ]
}

/// The argument for the grants of the component.
pub(super) fn grant() -> Arg {
    let grant = Arg::new("grant").long("grant").value_name("NAME").action(ArgAction::Append);
    grant.help("clock, random, sequence-text or model:MODEL; no model answers here")
}

/// The configuration, limits and grants from the arguments.
pub(super) fn trial_options(matches: &ArgMatches) -> Result<TrialOptions, Failed> {
    let plain = Limits::default();
    // Not every command has these arguments.
    let time = matches.try_get_one::<Span>("time").ok().flatten().map_or(plain.time, |span| span.0);
    let memory = matches.try_get_one::<Size>("memory").ok().flatten().map(|size| size.0).or(plain.memory);
    let grants: Vec<&str> = matches.get_many::<String>("grant").into_iter().flatten().map(String::as_str).collect();
    let grants = Grants::parse(grants).map_err(Failed::Configuration)?;
    Ok(TrialOptions { config: config(matches)?, limits: Limits { time, memory }, grants })
}

/// `64MiB`, or `64`.
fn memory(text: &str) -> Result<Size, String> {
    let mib = text.parse::<u64>().ok().map(|mib| Size(mib.saturating_mul(1 << 20)));
    let size: Size = mib.map_or_else(|| text.parse(), Ok)?;
    if (1..=4 << 30).contains(&size.0) {
        Ok(size)
    } else {
        Err("memory is more than nothing, and 4GiB at most".to_owned())
    }
}

/// Converts `--set a=1 --set b.c=x` to JSON.
pub(super) fn config(matches: &ArgMatches) -> Result<String, Failed> {
    let entries: Vec<&(String, Value)> = matches.try_get_many("set").ok().flatten().into_iter().flatten().collect();
    Ok(remote::plugin::config(&entries)?.to_string())
}

pub(super) fn set() -> Arg {
    let help = "An entry of its configuration; KEY may be a path: weights.gold=4";
    let set = Arg::new("set").long("set").value_name("KEY=VALUE").action(ArgAction::Append);
    set.value_parser(remote::plugin::entry).help(help)
}

/// The component files of the arguments. A folder means the component that was built in it.
pub(super) fn named(matches: &ArgMatches) -> Result<Vec<PathBuf>, Failed> {
    let given = matches.get_many::<PathBuf>("file").into_iter().flatten();
    given.map(|path| built(path)).collect::<Result<_, _>>().map_err(failed)
}

/// The component of a folder, or the file itself. If a source in the folder is newer, prints a note.
fn built(path: &Path) -> Result<PathBuf, AuthorError> {
    let file = component(path)?;
    if let Some(source) = path.is_dir().then(|| newer_source(path, &file)).flatten() {
        eprintln!(
            "sequor: note: {} is older than {}; sequor plugin build makes a new one",
            file.display(),
            source.display()
        );
    }
    Ok(file)
}

/// The first source of a folder that changed after its component was built.
fn newer_source(folder: &Path, component: &Path) -> Option<PathBuf> {
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    let built = changed(component)?;
    let files = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_source = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        ["plugin.toml", "plugin.py", "plugin.js", "plugin.c", "Cargo.toml"].contains(&name) || name.ends_with(".rs")
    };
    let mut newer: Vec<PathBuf> = files(folder)
        .chain(files(&folder.join("src")))
        .filter(is_source)
        .filter(|path| changed(path).is_some_and(|at| at > built))
        .collect();
    newer.sort();
    newer.into_iter().next()
}

/// The component of a folder, or the file itself.
pub(super) fn component(path: &Path) -> Result<PathBuf, AuthorError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let project = Project::open(path)?;
    let name = project.manifests.first().map(|manifest| manifest.name.clone()).unwrap_or_default();
    Ok(if path == Path::new(".") { PathBuf::from(format!("{name}.wasm")) } else { path.join(format!("{name}.wasm")) })
}

pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, AuthorError> {
    std::fs::read(path).map_err(|e| {
        let hint = match e.kind() {
            std::io::ErrorKind::NotFound => unbuilt(path),
            _ => String::new(),
        };
        AuthorError::File { path: path.to_owned(), what: format!("{e}{hint}") }
    })
}

/// How to get a component that is not there. `--out` may have put it elsewhere.
fn unbuilt(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(
        "; sequor plugin build makes it. If --out DIR put it elsewhere, name that file: sequor plugin check DIR/{name}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_that_is_not_there_may_lie_in_another_folder() {
        let folder = tempfile::tempdir().unwrap();
        let missing = bytes(&folder.path().join("mine.wasm")).unwrap_err().to_string();
        assert!(missing.ends_with("sequor plugin check DIR/mine.wasm"), "{missing}");
    }

    #[test]
    fn a_command_without_limits_takes_grants() {
        let command = clap::Command::new("test").arg(grant());
        let matches = command.get_matches_from(["test", "--grant", "clock", "--grant", "model:decoder"]);
        let options = trial_options(&matches).ok().unwrap();
        assert!(options.grants.clock && options.grants.models);
        assert_eq!((options.limits, options.config.as_str()), (Limits::default(), "{}"));
    }

    #[test]
    fn a_source_that_is_newer_than_its_component_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds: u64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        let write = |name: &str, seconds: u64| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::File::create(&path).unwrap().set_modified(at(seconds)).unwrap();
            path
        };
        let component = write("mine.wasm", 100);
        write("plugin.toml", 90);
        write("README.md", 200);
        let source = write("src/lib.rs", 80);
        assert_eq!(newer_source(folder.path(), &component), None);
        write("src/lib.rs", 110);
        assert_eq!(newer_source(folder.path(), &component), Some(source));
        assert_eq!(newer_source(folder.path(), &folder.path().join("none.wasm")), None, "it was never built");
    }

    #[test]
    fn memory_is_a_size_or_a_number_of_mebibytes() {
        let read = |text: &str| memory(text).ok().map(|size| size.0);
        let limits = ["64", "64MiB", "512KiB", "4096"].map(read);
        assert_eq!(limits, [64 << 20, 64 << 20, 512 << 10, 4 << 30].map(Some));
        assert_eq!(["0", "0B", "4097", "5GiB", "64MB", "much"].map(read), [None; 6]);
    }
}
