//! The report that `sequor serve` prints on standard output.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::ovms::ServerName;
use crate::backend::onnx::library::Library;
use crate::config::server::Settings;
use crate::config::server::access::{ApiGroup, WireProtocol};
use crate::config::server::file::ControlMode;
use crate::config::units::{Span, human};
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

/// The line about the store: its directory and the number of sequences to resume.
pub(super) fn store(directory: &Path, usage: &TierUsage) -> String {
    let s = if usage.states == 1 { "" } else { "s" };
    let (kept, limit) = (human(usage.bytes), human(usage.limit));
    format!("state   {}   {} sequence{s} to resume, {kept} of {limit}", directory.display(), usage.states)
}

/// The line about a store that several servers share.
pub(super) fn shared(address: &str, lease: Span) -> String {
    format!("state   {address}   shared with other servers, lease {lease}")
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

/// The last part: addresses, readiness, and a command to try.
pub(super) fn tail(repository: &Repository, addresses: Addresses, settings: &Settings, took: Duration) -> String {
    let at = |address: Option<SocketAddr>| address.map_or("off".to_owned(), |a| a.to_string());
    let Addresses { http, grpc, metrics, admin } = addresses;
    let (scheme, note) = match settings.tls {
        Some(_) => ("https", "   (TLS on all but metrics)"),
        None => ("http", ""),
    };
    let admin = admin.map_or("off".to_owned(), |a| format!("{scheme}://{a}"));
    let (rest, grpc, metrics) = (readiness(repository, http, settings, took), at(grpc), at(metrics));
    format!("http  {}   grpc  {grpc}   metrics  {metrics}   admin and status page  {admin}{note}\n{rest}", at(http))
}

/// The last line: how many models are ready, and whether the server reports ready.
fn readiness(repository: &Repository, http: Option<SocketAddr>, settings: &Settings, took: Duration) -> String {
    let (statuses, took) = (repository.statuses(), seconds(took));
    let refused: Vec<&str> = statuses
        .iter()
        .filter(|status| !matches!(status.availability, Availability::Ready(_)))
        .map(|status| status.name.as_str())
        .collect();
    let (all, good) = (statuses.len(), statuses.len() - refused.len());
    let why = match refused.as_slice() {
        [] => "`sequor model list` names the model that refuses requests".to_owned(),
        [name] => format!("{name} is refused (above)"),
        [a, b] => format!("{a} and {b} are refused (above)"),
        more => format!("{} models are refused (above)", more.len()),
    };
    let (is_complete, is_strict) = (repository.complete(), settings.strict_readiness);
    match (is_complete, repository.ready()) {
        _ if all == 0 => format!("ready in {took} with 0 of 0 models. {}", without_models(settings)),
        (_, false) if is_due_to_lease(repository.waits_for_lease(), is_complete, is_strict) => format!(
            "serving {good} of {all} models after {took}, NOT READY: this server has no lease (state.url), and state.ready_without_lease is false"
        ),
        (true, _) => {
            let hint = hint(called_by().as_deref(), curl(http, settings).as_deref());
            format!("ready in {took} with {good} of {all} models.{hint}")
        }
        (false, true) => format!("ready in {took} with {good} of {all} models (--strict-readiness=false): {why}"),
        (false, false) => format!(
            "serving {good} of {all} models after {took}, NOT READY: {why}. Repair or remove {}, or start with --strict-readiness=false",
            if refused.len() > 1 { "them" } else { "it" }
        ),
    }
}

/// Whether a server that is not ready lacks only its lease. A refused model is named first, because it needs an operator.
pub(super) fn is_due_to_lease(waits_for_lease: bool, is_complete: bool, is_strict: bool) -> bool {
    waits_for_lease && (is_complete || !is_strict)
}

/// The commands to try: the demo, if the program takes commands, and a request.
fn hint(program: Option<&str>, curl: Option<&str>) -> String {
    match (program, curl) {
        (Some(program), Some(curl)) => format!("   try: {program} demo   or: {curl}"),
        (Some(program), None) => format!("   try: {program} demo"),
        (None, Some(curl)) => format!("   try: {curl}"),
        (None, None) => String::new(),
    }
}

/// A request that shows that the server answers.
fn curl(http: Option<SocketAddr>, settings: &Settings) -> Option<String> {
    let (port, headers) = (http?.port(), headers(settings));
    Some(match &settings.tls {
        None => format!("curl {headers}localhost:{port}/v2"),
        Some(tls) if tls.client_ca.as_os_str().is_empty() => {
            format!("curl {headers}--cacert CA.pem https://localhost:{port}/v2")
        }
        Some(_) => format!("curl {headers}--cacert CA.pem --cert FILE --key FILE https://localhost:{port}/v2"),
    })
}

/// The headers that the request needs, without their secrets.
fn headers(settings: &Settings) -> String {
    let group = ApiGroup::Metadata;
    let needs_key = settings.auth.as_ref().is_some_and(|auth| auth.keyed.need_key(Some(group)));
    let key = needs_key.then(|| "-H 'sequor-key: KEY' ".to_owned());
    let restriction = settings.restricted.of(WireProtocol::Http).of(group);
    let restricted = restriction.map(|restriction| format!("-H '{}: VALUE' ", restriction.header));
    key.into_iter().chain(restricted).collect()
}

/// Why the server has no models.
fn without_models(settings: &Settings) -> String {
    let folders: Vec<String> = settings.model.repository.iter().map(|path| path.display().to_string()).collect();
    let (folders, s) = (folders.join(", "), if folders.len() == 1 { "s" } else { "" });
    let program = called_by().unwrap_or_else(|| "sequor".to_owned());
    match settings.model.control_mode {
        ControlMode::None => {
            format!(
                "{folders} hold{s} no model: a model is a folder with 1/model.onnx in it. Models that come later are served after a restart"
            )
        }
        ControlMode::Poll => format!("{folders} hold{s} no model yet; it is scanned every {}", settings.model.poll),
        ControlMode::Explicit => {
            format!("No model is loaded: {program} model load NAME, or start with --load-model='*' or NAME")
        }
    }
}

/// The name by which the program was called; `None` if it is the name of another server, because then it takes no commands.
fn called_by() -> Option<String> {
    let program = std::env::args().next().unwrap_or_else(|| "sequor".to_owned());
    Some(program).filter(|program| ServerName::from_program(program.as_ref()).is_none())
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_a_command_only_if_the_program_takes_commands() {
        let curl = Some("curl localhost:1/v2");
        assert_eq!(hint(Some("sequor"), curl), "   try: sequor demo   or: curl localhost:1/v2");
        assert_eq!(hint(None, curl), "   try: curl localhost:1/v2");
        assert_eq!(hint(Some("sequor"), None), "   try: sequor demo");
        assert_eq!(hint(None, None), "");
    }

    #[test]
    fn a_refused_model_is_named_before_a_lease_that_is_away() {
        assert!(is_due_to_lease(true, true, true));
        assert!(is_due_to_lease(true, false, false), "no model makes this server not ready");
        assert!(!is_due_to_lease(true, false, true));
        assert!(!is_due_to_lease(false, false, true));
    }
}
