//! `sequor check`: reports all errors of a repository at once, and does a dry run of every model without errors. It opens no port and
//! stores nothing.
//!
//! Models are loaded one after the other as `serve` loads them, and unloaded before the next one. So a repository can be checked on a
//! machine that cannot serve all of it.

mod dry_run;
mod finding;
mod rows;
mod sample;

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use self::finding::{CheckReport, Finding, ServableVersion};
use super::folders::refuse_object_store;
use super::plugin::machine;
use super::plugin::scheduler::check::tried;
use super::{Failed, launch, settings, stdout, variable};
use crate::author::trial::TrialOptions;
use crate::backend::onnx::library::Library;
use crate::config::fault::code;
use crate::config::model::versions;
use crate::config::server::file::ControlMode;
use crate::config::server::{self, GivenFlags, Settings};
use crate::config::units::human;
use crate::model::repository::ReadyVersion;
use crate::model::{Availability, Repository, RepositoryControl};
use crate::scheduling;
use crate::scheduling::report::PluginControl as _;
use crate::telemetry::Metrics;
use sequor_wasm::grants::GrantTable;
use sequor_wasm::limits::Limits;

pub(super) fn command() -> Command {
    let repositories = Arg::new("repository")
        .value_name("REPO")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .action(ArgAction::Append)
        .help("Directory of models in Triton's layout, or of one model");
    let config =
        Arg::new("config").long("config").value_name("FILE").help("The server's settings file, checked as well");
    let plugins = Arg::new("plugins-dir")
        .long("plugins-dir")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .help("Directory of plug-ins, NAME.wasm each; overrides plugins.dir of the settings file");
    let output = Arg::new("output")
        .long("output")
        .value_name("FORM")
        .default_value("table")
        .value_parser(PossibleValuesParser::new(["table", "json"]))
        .help("Output format");
    Command::new("check")
        .about("List every fault of a model repository, and run each model that has none")
        .after_help("Exit: 0 no errors, 3 errors.")
        .args([repositories, config, plugins, output])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let given = GivenFlags::of_file(matches.get_one::<String>("config").cloned());
    let mut settings = settings::load(&given)?;
    if let Some(folder) = matches.get_one::<PathBuf>("plugins-dir") {
        settings.plugins.dir.clone_from(folder);
    }
    let library = launch::find_runtime(&settings.runtime.onnxruntime)?;
    let has_settings = server::config_path(&variable, &given).is_some();
    let mut report = CheckReport::new(has_settings);
    let paths: Vec<&PathBuf> = matches.get_many("repository").into_iter().flatten().collect();
    let roots = paths.iter().map(|path| root_of(path)).collect::<Result<Vec<_>, _>>()?;
    let repositories: Vec<PathBuf> = roots.iter().filter(|root| !versions::is_model_directory(root)).cloned().collect();
    for root in &roots {
        check(root, &repositories, &library, &settings, &mut report)?;
    }
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => stdout::line(format_args!("{}", report.json()))?,
        _ => stdout::text(format_args!("{}", report.table()))?,
    }
    match report.errors() {
        0 if report.models == 0 => Err(Failed::Configuration(format!(
            "no model in {}: a model is a folder with config.pbtxt, or with a folder for each version (1, 2, ...)",
            in_words(&paths)
        ))),
        0 => Ok(()),
        1 => Err(Failed::Configuration("1 error".to_owned())),
        n => Err(Failed::Configuration(format!("{n} errors"))),
    }
}

fn in_words(paths: &[&PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn root_of(path: &Path) -> Result<PathBuf, Failed> {
    refuse_object_store(path)?;
    std::fs::canonicalize(path).map_err(|error| {
        Failed::Configuration(match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no file or directory {}", path.display()),
            _ => format!("{}: {error}", path.display()),
        })
    })
}

/// Checks one argument: a repository or a model. `repositories` are all repositories that `serve` would serve together.
fn check(
    root: &Path,
    repositories: &[PathBuf],
    library: &Library,
    settings: &Settings,
    report: &mut CheckReport,
) -> Result<(), Failed> {
    let failed = |e: std::io::Error| Failed::Configuration(format!("{}: {e}", root.display()));
    if versions::is_model_directory(root) {
        let base = root.parent().unwrap_or(root);
        return model(root, (base, &[]), library, settings, report);
    }
    let mut folders = Vec::new();
    for entry in fs_err::read_dir(root).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    for folder in folders {
        if versions::may_be_model(&folder) {
            model(&folder, (root, repositories), library, settings, report)?;
        } else {
            let what =
                "no model: neither config.pbtxt nor a directory with a number for its name; serve passes it over";
            report.push(Finding::note(name_of(&folder), code::NOTE_NO_MODEL, what.to_owned()));
        }
    }
    Ok(())
}

fn name_of(folder: &Path) -> String {
    folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

fn model(
    folder: &Path,
    (base, repositories): (&Path, &[PathBuf]),
    library: &Library,
    settings: &Settings,
    report: &mut CheckReport,
) -> Result<(), Failed> {
    report.models += 1;
    let metrics = Metrics::new(false);
    // Like `serve`, refuses durable models if the settings name no state directory.
    let keeps = report.has_settings && settings.state.dir.as_os_str().is_empty() && settings.state.url.is_none();
    let repository = launch::trial(library, settings, &metrics, keeps)?;
    repository.govern(RepositoryControl { mode: ControlMode::None, directories: repositories.to_vec() });
    repository.load(folder);
    // Members of an ensemble are loaded with it, but have their own check.
    for status in repository.statuses().into_iter().filter(|status| status.name == name_of(folder)) {
        match status.availability {
            Availability::Failed(faults) => {
                for fault in faults {
                    report.push_once(Finding::error(&status.name, base, fault));
                }
            }
            Availability::Ready(versions) => {
                let alone = versions.len() == 1;
                for version in versions {
                    let place =
                        if alone { status.name.clone() } else { format!("{}/{}", status.name, version.version) };
                    good(&repository, &metrics, &status.name, (&place, base), version, settings, report)?;
                }
            }
        }
    }
    plugins(&repository, settings, report)?;
    repository.stop();
    Ok(())
}

/// Tries each scheduler of a repository once, like `sequor plugin check`. Loading the model has already tried its processors and its
/// initializer.
fn plugins(repository: &Repository, settings: &Settings, report: &mut CheckReport) -> Result<(), Failed> {
    let plugins = &settings.plugins;
    let table = GrantTable::parse(plugins.grants.iter().map(String::as_str)).map_err(Failed::Configuration)?;
    for plugin in repository.list().into_iter().filter(|plugin| plugin.world == scheduling::WORLD) {
        if !report.plugins.insert(plugin.name.clone()) {
            continue;
        }
        let file = format!("{}.wasm", plugin.name);
        let config = plugin.attached.first().map(|at| at.config.clone()).unwrap_or_default();
        let grants = table.for_plugin(&plugin.name);
        let limits = Limits { time: plugins.time.0, memory: plugins.memory.map(|size| size.0) };
        let tried = tried(&plugins.dir.join(&file), TrialOptions { config, limits, grants }, &machine());
        report.push(Finding::plugin(file, tried.as_ref().map_err(Clone::clone)));
    }
    Ok(())
}

/// Reports a version that `serve` would serve: its dry run, and warnings about its use.
fn good(
    repository: &Repository,
    metrics: &Metrics,
    name: &str,
    (place, base): (&str, &Path),
    version: ReadyVersion,
    settings: &Settings,
    report: &mut CheckReport,
) -> Result<(), Failed> {
    let full = u64::from(version.slots).saturating_mul(version.state_bytes);
    if let Some(limit) = settings.limits.state.map(|size| size.0).filter(|limit| full > *limit) {
        let what = format!("{} of state when all slots are taken; limits.state is {}", human(full), human(limit));
        report.push(Finding::note(place.to_owned(), code::NOTE_MEMORY, what));
    }
    for warning in &version.warnings {
        report.push(Finding::warning(base, warning));
    }
    if version.wants_store && !report.has_settings {
        let what = "[durability] needs a place for states: set state.dir or state.url in the server's settings, and give \
                    them to this check with --config FILE";
        report.push(Finding::note(place.to_owned(), code::NOTE_STORE, what.to_owned()));
    }
    let counts = metrics.model(name, version.version);
    let run = dry_run::run(repository, name, &version, &counts);
    match launch::sockets()?.block_on(run) {
        Err(what) => report.push(Finding::run(place.to_owned(), &what)),
        Ok(ran) => {
            if let Some(what) = ran.depends() {
                report.push(Finding::note(place.to_owned(), code::NOTE_BATCH, what));
            }
            for what in ran.depends_on_padding() {
                report.push(Finding::note(place.to_owned(), code::NOTE_PADDING, what));
            }
            report.push(Finding::good(place.to_owned(), ServableVersion { version, ran }));
        }
    }
    Ok(())
}
