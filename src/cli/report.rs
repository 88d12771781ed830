//! What `sequor serve` says of itself on standard output once it serves.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::backend::onnx::library::Library;
use crate::config::units::human;
use crate::model::repository::ReadyVersion;
use crate::model::{Availability, ModelStatus, Repository};
use crate::server::Addresses;
use crate::state::tier::TierUsage;

/// The first line: program, configuration, runtime, machine.
pub(super) fn head(node: &str, config: Option<&Path>, library: &Library) -> String {
    let config = config.map_or("none".to_owned(), |path| path.display().to_string());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let folder = library.path.parent().map(|p| p.display().to_string()).unwrap_or_default();
    let cores = format!("{cores} core{}", if cores == 1 { "" } else { "s" });
    let version = env!("CARGO_PKG_VERSION");
    let gpus = if library.has_gpu_provider() { "and GPUs for models that ask" } else { "CPU only" };
    format!(
        "sequor {version}   node {node}   config {config}   onnxruntime {} ({folder})   {cores}, {gpus}",
        library.version
    )
}

/// Where sequences are kept, and how many were.
pub(super) fn store(directory: &Path, usage: &TierUsage) -> String {
    let s = if usage.states == 1 { "" } else { "s" };
    let (kept, limit) = (human(usage.bytes), human(usage.limit));
    format!("state   {}   {} sequence{s} to resume, {kept} of {limit}", directory.display(), usage.states)
}

/// A line for every model and version.
pub(super) fn models(repository: &Repository) -> String {
    let mut out = String::new();
    let limit = repository.state_bytes().1;
    for status in repository.statuses() {
        match &status.availability {
            Availability::Ready(versions) => {
                for version in versions {
                    let _ = writeln!(out, "{}", ready(&status, version, limit));
                }
            }
            Availability::Failed(faults) => {
                for fault in faults {
                    let _ = writeln!(out, "  {:<18} -  REFUSED  {fault}", status.name);
                }
            }
        }
    }
    out
}

fn ready(status: &ModelStatus, version: &ReadyVersion, limit: u64) -> String {
    let ReadyVersion { version, strategy, instances, slots, state_bytes, on, .. } = version.clone();
    let on = on.map(|on| format!(" on {on}")).unwrap_or_default();
    let took = seconds(status.took);
    let name = &status.name;
    if slots == 0 {
        let s = if instances == 1 { "" } else { "s" };
        return format!(
            "  {name:<18} {version}  ready    {strategy:<8} {instances} instance{s}{on}, stateless   {took}"
        );
    }
    let of_each = slots / u32::from(instances.max(1));
    let full = u64::from(slots).saturating_mul(state_bytes);
    let limit = if limit == u64::MAX { String::new() } else { format!(" (limit {})", human(limit)) };
    format!(
        "  {name:<18} {version}  ready    {strategy:<8} {instances} x {of_each} slots{on}   {} a sequence, {} when full{limit}   {took}",
        human(state_bytes),
        human(full)
    )
}

/// Where it listens, how long it took, and something to try.
pub(super) fn tail(repository: &Repository, addresses: Addresses, tls: bool, took: Duration) -> String {
    let statuses = repository.statuses();
    let good = statuses.iter().filter(|s| matches!(s.availability, Availability::Ready(_))).count();
    let at = |address: Option<SocketAddr>| address.map_or("off".to_owned(), |a| a.to_string());
    let Addresses { http, grpc, metrics, admin } = addresses;
    let admin = admin.map_or("off".to_owned(), |a| format!("{}://{a}", if tls { "https" } else { "http" }));
    let listens = format!(
        "http  {}   grpc  {}   metrics  {}   admin and status page  {admin}{}",
        at(http),
        at(grpc),
        at(metrics),
        if tls { "   (TLS on all but metrics)" } else { "" }
    );
    let curl = http.map(|a| format!("   or: curl localhost:{}/v2", a.port())).unwrap_or_default();
    let program = std::env::args().next().unwrap_or_else(|| "sequor".to_owned());
    let next = match statuses.len() {
        0 => format!("No model is loaded: {program} model load NAME, or start with --load-model='*' or NAME"),
        _ => format!("  try: {program} demo{curl}"),
    };
    format!("{listens}\nready in {} with {good} of {} models. {next}", seconds(took), statuses.len())
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}
