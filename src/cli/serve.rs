//! `sequor serve`: serves a model repository until a signal or an operator stops it.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};

use super::settings::{self, ProcessSettings};
use super::{Failed, environment, folders, heaps, launch, plugin_host, report, variable};
use crate::api::admin::ConfigControl as _;
use crate::config::ovms::command as ovms;
use crate::config::server::file::ControlMode;
use crate::config::server::settings::SharedMemory;
use crate::config::server::{self, GivenFlags, Settings, Shown};
use crate::model::{Availability, Repository, RepositoryControl, RepositorySource, remove_abandoned_folders};
use crate::server::{ReloadOptions, ServerOptions, drain, reload, systemd};
use crate::spans::{Exporter, Tracer};
use crate::telemetry::Metrics;
use crate::telemetry::log;

/// The command's name.
pub(super) const NAME: &str = "serve";
/// Maximum time in which a stopping server sends its last spans.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// The end of the help, which a terminal shows.
const EXAMPLES: &str = "Examples:
  sequor serve --model-repository models
  sequor serve --config /etc/sequor/sequor.toml

Each flag is also a key of the settings file and a variable: the flag wins, then the variable, then the file.
Flags of tritonserver and of OVMS are taken too (docs/reference/server.md).
Durations have a unit (250ms, 5s, 10m), sizes too (512KiB, 64MiB, 4GiB).";

pub(super) fn command() -> Command {
    let (about, examples) = ("Serve the models of a repository over HTTP (8000) and gRPC (8001)", EXAMPLES);
    let directory =
        Arg::new("directory").value_name("DIR").help("Model repository: the same as --model-repository DIR");
    Command::new(NAME)
        .about(about)
        .after_help(examples)
        .arg(directory.conflicts_with("model-repository"))
        .args(server::args())
        .args(ovms::args())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let began = Instant::now();
    launch::small_pages();
    let mut given = GivenFlags::from_matches(matches);
    if let Some(directory) = matches.get_one::<String>("directory") {
        given.set("model.repository", "DIR".to_owned(), directory.clone());
    }
    let (_folder, source) = super::ovms::repository(matches, &mut given)?.unzip();
    let settings = settings::load(&given)?;
    if settings.model.repository.is_empty() {
        let what = "no model repository: name one with --model-repository DIR, or [model] repository in the configuration file";
        return Err(Failed::Configuration(what.to_owned()));
    }
    settings.model.repository.iter().try_for_each(|path| folders::refuse_object_store(path))?;
    settings.model.repository.iter().try_for_each(|path| folders::refuse_model_folder(path))?;
    log::init(settings.log.format, &settings.log.level, variable("RUST_LOG").as_deref())
        .map_err(|e| Failed::Configuration(e.to_string()))?;
    for notice in &given.notices {
        tracing::warn!("{notice}");
    }
    for notice in environment::misspelt(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())) {
        tracing::warn!("{notice}");
    }
    remove_abandoned_folders();
    // Also before the first model is read: with fewer descriptors than that, it would fail for a reason that is hard to guess.
    ProcessSettings::before_start(&given).check_descriptors(&settings)?;
    let runtime = launch::sockets()?;
    let served = runtime.block_on(serve(&settings, &given, source, began));
    // Do not drop the runtime: that would wait for a load which the server has abandoned.
    runtime.shutdown_background();
    served
}

async fn serve(
    settings: &Settings,
    given: &GivenFlags,
    models: Option<Arc<dyn RepositorySource>>,
    began: Instant,
) -> Result<(), Failed> {
    let listeners = launch::bind(settings)?;
    let no_signals = |e: std::io::Error| Failed::Failed(format!("no signals: {e}"));
    let (stop, hangups) = (drain::signals().map_err(no_signals)?, reload::hangups().map_err(no_signals)?);
    let library = launch::find_runtime(&settings.runtime.onnxruntime)?;
    let metrics = Metrics::new(settings.metrics.triton_names);
    let repository = launch::repository(&library, settings, &metrics)?;
    record(&repository, settings)?;
    let loading = repository.loading();
    let (tracer, exporter) = tracer(settings, &metrics)?.unzip();
    let source = ProcessSettings::new(given);
    source.check_descriptors(settings)?;
    let settings = &source.fit(settings.clone());
    let reload = Some(ReloadOptions { running: settings.clone(), source: Arc::new(source) });
    let options = ServerOptions { tracer, reload, ..launch::server_options(settings, &library, &repository)? };
    // Before any request and any reload, which may take a right away again.
    govern(&repository, settings, models)?;
    let mut running = crate::server::start(listeners, options, repository.clone(), metrics, stop);
    if let Some(reloader) = running.reloader() {
        tokio::spawn(reloader.follow(hangups));
    }
    let config = server::config_path(&variable, given);
    print_line(&report::head(&settings.node, config.as_deref(), &library));
    if let Some(store) = repository.store() {
        print_line(&match store.shared() {
            Some(shared) => report::shared(shared.address(), settings.state.lease),
            None => report::store(&settings.state.dir, &store.usage()),
        });
    }
    let stopped = tokio::select! {
        loaded = load(&repository, settings) => loaded.map(|()| None)?,
        drained = running.stopped() => Some(drained),
    };
    // A stopping server loads nothing more, so its loads may end before the server has stopped.
    if stopped.is_some() || repository.refuses_loads() {
        let drained = match stopped {
            Some(drained) => drained,
            None => running.join().await,
        };
        let lost = repository.live_unkept();
        flush(exporter).await;
        let _ = tokio::task::spawn_blocking(move || repository.leave()).await;
        drain::log_end(drained, lost);
        return Ok(());
    }
    crate::device::trim();
    tokio::spawn(heaps::give_back());
    drop(loading);
    if settings.model.control_mode == ControlMode::Poll {
        tokio::spawn(crate::server::poll::run(repository.clone(), settings.model.poll.0));
    }
    print_line(report::models(&repository).trim_end());
    print_line(&report::tail(&repository, running.addresses, settings, began.elapsed()));
    if settings.exit_on_error && !repository.complete() {
        let names = unloaded(&repository).join(", ");
        return Err(Failed::Failed(format!("exit_on_error is set, and these models did not load: {names}")));
    }
    if settings.model.control_mode == ControlMode::None && repository.statuses().is_empty() {
        tracing::warn!(repository = ?settings.model.repository, "the repository holds no model");
    }
    // A reload may have changed the settings while models were loaded.
    let shown = running.reloader().map_or_else(|| settings.shown.clone(), |reloader| reloader.running());
    log_readiness(&repository, (settings, &shown), began);
    running.open();
    systemd::ready();
    let drained = running.join().await;
    let lost = repository.live_unkept();
    flush(exporter).await;
    let stopping = repository.clone();
    let _ = tokio::task::spawn_blocking(move || stopping.stop()).await;
    drain::log_end(drained, lost);
    Ok(())
}

/// Logs whether the server is ready, and its limits of memory.
fn log_readiness(repository: &Repository, (settings, shown): (&Settings, &[Shown]), began: Instant) {
    if repository.ready() {
        let (models, seconds) = (repository.statuses().len(), began.elapsed().as_secs_f64());
        tracing::info!(models, seconds, "the server is ready");
    } else if report::is_due_to_lease(repository.waits_for_lease(), repository.complete(), settings.strict_readiness) {
        tracing::warn!("the server is not ready: it has no lease (state.url), and state.ready_without_lease is false");
    } else {
        let models = unloaded(repository).join(", ");
        tracing::warn!(models, "the server is not ready: a model is not served, and strict_readiness is set");
    }
    tracing::info!("memory: {}", memory_limits(shown));
    tracing::info!("shared memory: {}", shared_memory(&settings.shared_memory));
}

/// Starts the export of spans, if a collector is configured.
fn tracer(settings: &Settings, metrics: &Metrics) -> Result<Option<(Tracer, Exporter)>, Failed> {
    let Some(otlp) = &settings.otlp else { return Ok(None) };
    let started = Exporter::start(otlp, metrics.spans());
    let (tracer, exporter) = started.map_err(|e| Failed::Configuration(format!("otlp.endpoint: {e}")))?;
    tracing::info!(collector = otlp.endpoint, sample = otlp.sample, "spans of requests are exported");
    Ok(Some((tracer, exporter)))
}

/// Sends the last spans.
async fn flush(exporter: Option<Exporter>) {
    if let Some(exporter) = exporter {
        exporter.flush(LAST_SPANS).await;
    }
}

fn record(repository: &Repository, settings: &Settings) -> Result<(), Failed> {
    let Some((path, most)) = &settings.record else { return Ok(()) };
    let failed =
        |e: std::io::Error| Failed::Configuration(format!("{}: nothing can be recorded there: {e}", path.display()));
    repository.record(path, *most).map_err(failed)
}

/// Configures which changes of models are possible while the server runs.
fn govern(
    repository: &Repository,
    settings: &Settings,
    source: Option<Arc<dyn RepositorySource>>,
) -> Result<(), Failed> {
    let (mode, directories) = (settings.model.control_mode, settings.model.repository.clone());
    repository.govern(RepositoryControl { mode, directories });
    if let Some(source) = source {
        repository.follow(source);
    }
    if settings.admin.upload {
        repository.take_uploads(settings.limits.request.0);
    }
    if settings.plugins.watch {
        plugin_host::watch(repository)?;
    }
    Ok(())
}

/// The models that should be served but are not ready.
fn unloaded(repository: &Repository) -> Vec<String> {
    let all = repository.statuses().into_iter();
    all.filter(|status| !matches!(status.availability, Availability::Ready(_))).map(|status| status.name).collect()
}

/// The limits of memory for requests, states and tensors, and their origins, for the log.
fn memory_limits(shown: &[Shown]) -> String {
    let keys = ["limits.queued", "limits.state", "limits.tensors"];
    let rows = keys.into_iter().filter_map(|key| shown.iter().find(|row| row.key == key));
    let text = rows.map(|Shown { key, value, origin, .. }| match value.trim_matches('"') {
        "" => format!("{key} without a maximum ({origin})"),
        value => format!("{key} {value} ({origin})"),
    });
    text.collect::<Vec<_>>().join(", ")
}

/// The system shared memory that clients may register, for the log.
fn shared_memory(allowed: &SharedMemory) -> String {
    match allowed {
        SharedMemory::Off => "off (shared_memory.allow): clients cannot register regions".to_owned(),
        SharedMemory::Prefix(prefix) => {
            format!("clients can read and write objects of /dev/shm that begin with {prefix:?}")
        }
        SharedMemory::On => "clients can read and write every object of /dev/shm that this user can".to_owned(),
    }
}

/// Prints a line for the operator. If standard output is closed, the server continues.
fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

async fn load(repository: &Repository, settings: &Settings) -> Result<(), Failed> {
    let wanted = match settings.model.control_mode {
        ControlMode::None | ControlMode::Poll => vec!["*".to_owned()],
        ControlMode::Explicit => settings.model.load.clone(),
    };
    let loads = repository.clone();
    match tokio::task::spawn_blocking(move || loads.load_wanted(&wanted)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(Failed::Configuration(format!("the model repository cannot be read: {error}"))),
        Err(error) => return Err(Failed::Failed(format!("loading was cut short: {error}"))),
    }
    for status in repository.statuses() {
        if let Availability::Failed(faults) = &status.availability {
            for fault in faults {
                tracing::error!(model = status.name, "{fault}");
            }
        }
    }
    Ok(())
}
