//! Starts a server from settings: ports, runtime, repository. `serve` and `demo` share it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sequor_core::Hold;

use super::{Failed, plugin_host};
use crate::api;
use crate::backend::LoadOptions;
use crate::backend::onnx::OnnxBackend;
use crate::backend::onnx::library::{self, Library, System};
use crate::config::server::store_url::StoreUrl;
use crate::config::server::{Connections, ListenAddress, Settings, Shown};
use crate::model::repository::{epoch_now, first_id_of};
use crate::model::{Repository, RepositoryOptions, SequenceStore};
use crate::server::{
    Addresses, AdminOptions, Listeners, ServerOptions, Tls, TlsFiles, access, draft_options, listeners,
};
use crate::state::tier::{self, OpenedStore, SharedOptions, SharedStore, Tier as _};
use crate::telemetry::Metrics;

/// Maximum memory that is kept for reuse by answers.
const REPLY_POOL: usize = 64 << 20;

/// Idle time after which a thread that decodes large requests ends.
const DECODER_REST: Duration = Duration::from_secs(3);

/// Binds the ports. Call it before anything slow.
pub(super) fn bind(settings: &Settings) -> Result<Listeners, Failed> {
    let at = |enabled: bool, address: ListenAddress, port: u16| enabled.then(|| SocketAddr::new(address.0, port));
    let Settings { http, grpc, metrics, admin, .. } = settings;
    let wanted = Addresses {
        http: at(http.enabled, http.address, http.port),
        grpc: at(grpc.enabled, grpc.address, grpc.port),
        metrics: at(metrics.enabled, metrics.address.unwrap_or(http.address), metrics.port),
        admin: at(admin.enabled, admin.address, admin.port),
    };
    let passed = listeners::passed().map_err(|e| Failed::Failed(e.to_string()))?;
    Listeners::bind_with(&wanted, passed).map_err(|e| Failed::Failed(e.to_string()))
}

/// Finds the ONNX Runtime library.
pub(super) fn find_runtime(setting: &Path) -> Result<Library, Failed> {
    let setting = (!setting.as_os_str().is_empty()).then_some(setting);
    library::find(setting, &System).map_err(|e| Failed::Failed(e.to_string()))
}

/// Builds an empty repository with this runtime library and the store of sequences.
pub(super) fn repository(library: &Library, settings: &Settings, metrics: &Metrics) -> Result<Repository, Failed> {
    over(library, settings, metrics, stored(settings)?)
}

/// Builds the same for a trial. It opens no store, because a server may have it open. With `keeps`, it refuses models that need a store.
pub(super) fn trial(
    library: &Library,
    settings: &Settings,
    metrics: &Metrics,
    keeps: bool,
) -> Result<Repository, Failed> {
    over(library, settings, metrics, RepositoryOptions { keeps, ..RepositoryOptions::default() })
}

fn over(
    library: &Library,
    settings: &Settings,
    metrics: &Metrics,
    stored: RepositoryOptions,
) -> Result<Repository, Failed> {
    let failed = |e: &dyn std::fmt::Display| Failed::Failed(format!("{}: {e}", library.path.display()));
    let backend = OnnxBackend::new(&library.path).map_err(|e| failed(&e))?;
    backend.set_log_level(settings.runtime.log_level);
    backend.limit_tensors(settings.limits.tensors.map_or(u64::MAX, |size| size.0));
    let options = RepositoryOptions {
        config: draft_options(settings),
        load: LoadOptions {
            threads: settings.runtime.threads_per_instance,
            spinning: settings.runtime.spinning,
            ..LoadOptions::default()
        },
        state_limit: settings.limits.state.map_or(u64::MAX, |size| size.0),
        rates: settings.rates.clone(),
        cache: settings.cache.size.map_or(0, |size| size.0),
        reply_pool: REPLY_POOL,
        strict_readiness: settings.strict_readiness,
        ready_without_lease: settings.state.ready_without_lease,
        hold: hold(&super::variable),
        ..stored
    };
    let repository = Repository::new(Arc::new(backend), options, metrics.clone()).map_err(|e| failed(&e))?;
    plugin_host::enable_plugins(&repository, &settings.plugins)?;
    Ok(repository)
}

/// Connects to the store that several servers share.
fn shared(settings: &Settings, url: &StoreUrl) -> Result<RepositoryOptions, Failed> {
    let options = RepositoryOptions::default();
    let failed = |e: &dyn std::fmt::Display| {
        let what = e.to_string();
        Failed::Configuration(format!("state.url: {}", what.strip_suffix(" (state.url)").unwrap_or(&what)))
    };
    let store = SharedStore::open(SharedOptions {
        url: url.expose().to_owned(),
        shown: url.shown(),
        node: settings.node.clone(),
        lease: settings.state.lease.0,
    });
    let store = store.map_err(|e| failed(&e))?;
    let epoch = store.tier().next_epoch(epoch_now()).map_err(|e| failed(&e))?;
    let store = SequenceStore::of_servers(store, epoch, options.clock.clone()).map_err(|e| failed(&e))?;
    Ok(RepositoryOptions { store: Some(Arc::new(store)), first_id: Some(first_id_of(epoch)), ..options })
}

/// Opens the store of sequences, if one is configured. Also returns a first id for assigned sequence ids that no earlier server has used.
fn stored(settings: &Settings) -> Result<RepositoryOptions, Failed> {
    if let Some(url) = &settings.state.url {
        return shared(settings, url);
    }
    let options = RepositoryOptions::default();
    let Some(directory) = some(&settings.state.dir) else { return Ok(options) };
    let failed = |e: &dyn std::fmt::Display| Failed::Configuration(format!("state.dir: {e}"));
    let patience = settings.drain.exit_timeout.0;
    let OpenedStore { tier, set_aside } =
        tier::open(directory, settings.state.disk_limit.0, patience).map_err(|e| failed(&e))?;
    if let Some((why, aside)) = set_aside {
        tracing::error!(%why, aside = %aside.display(), "the store of sequences is damaged and was moved aside; no sequence is resumed");
    }
    let epoch = tier.next_epoch(epoch_now()).map_err(|e| failed(&e))?;
    let store = SequenceStore::new(Arc::new(tier), epoch, options.clock.clone()).map_err(|e| failed(&e))?;
    Ok(RepositoryOptions { store: Some(Arc::new(store)), first_id: Some(first_id_of(epoch)), ..options })
}

/// Triton's test aids from its environment variables. A model holds its first run until this many requests wait with a slot, and this many
/// without one. Applies to models that schedule `direct` or batch stateless requests.
fn hold(variable: &dyn Fn(&str) -> Option<String>) -> Option<Hold> {
    let number = |name| variable(name)?.parse::<u32>().ok().filter(|n| *n > 0);
    let requests = number("TRITONSERVER_DELAY_SCHEDULER")?;
    Some(Hold { requests, backlog: number("TRITONSERVER_BACKLOG_DELAY_SCHEDULER").unwrap_or(0) })
}

/// Builds the server's options. Reads key files and certificates.
pub(super) fn server_options(
    settings: &Settings,
    library: &Library,
    repository: &Repository,
) -> Result<ServerOptions, Failed> {
    let wrong = |setting: &str, e: &dyn std::fmt::Display| Failed::Configuration(format!("{setting}: {e}"));
    let access = access::open(settings).map_err(|(setting, e)| wrong(setting, &e))?;
    let tls = settings.tls.as_ref().map(|tls| Tls::open(TlsFiles::from(tls))).transpose();
    let tls = tls.map_err(|e| wrong("[tls]", &e))?;
    let serves = api::admin::AdminSetup {
        plugins: Some(Arc::new(repository.clone())),
        plugins_dir: repository.registry().and_then(|registry| registry.rules().dir.clone()),
        upload: settings.admin.upload,
        peek: settings.admin.peek,
        capture: settings.admin.capture.0,
        node: settings.node.clone(),
        runtime: format!("onnxruntime {}", library.version),
        settings: shown(settings),
    };
    Ok(ServerOptions {
        limits: settings.limits,
        connections: settings.connections,
        shared_memory: settings.shared_memory.clone(),
        drain: settings.drain,
        keepalive: settings.grpc.keepalive.0,
        tls,
        admin: AdminOptions { keys: access.operator_keys, serves },
        allowed_origins: access.allowed_origins,
        restricted: access.restricted,
        client_keys: access.client_keys,
        checks: Vec::new(),
        tracer: None,
        reload: None,
    })
}

/// The settings for operators, with the absolute path of the plug-in folder and the limits of connections that are in force.
pub(super) fn shown(settings: &Settings) -> Vec<Shown> {
    let mut shown = settings.shown.clone();
    let folder = some(&settings.plugins.dir).and_then(|dir| std::path::absolute(dir).ok());
    if let Some((folder, row)) = folder.zip(shown.iter_mut().find(|row| row.key == "plugins.dir")) {
        row.value = toml::Value::String(folder.display().to_string()).to_string();
    }
    let Connections { max, per_peer, .. } = settings.connections;
    for (key, value) in [("connections.max", max), ("connections.per_peer", per_peer)] {
        let lowered = |row: &&mut Shown| row.key == key && row.value != value.to_string();
        if let Some(row) = shown.iter_mut().find(lowered) {
            row.value = value.to_string();
            row.origin.push_str(", lowered by ulimit -n");
        }
    }
    shown
}

/// The path, unless it is empty, which means that it is not set.
fn some(path: &PathBuf) -> Option<&PathBuf> {
    (!path.as_os_str().is_empty()).then_some(path)
}

/// Turns huge pages off for this process. The allocator would take huge pages, of which an idle server fills a fraction. Small pages save
/// 15 MiB and make no request slower. If the system cannot do this, the server runs anyway.
pub(super) fn small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(%error, "huge pages stay");
    }
}

/// Builds the runtime for sockets.
pub(super) fn sockets() -> Result<tokio::runtime::Runtime, Failed> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // When a thread ends, its memory goes back to the system.
    let built = builder.enable_all().thread_name("sequor-socket").thread_keep_alive(DECODER_REST).build();
    built.map_err(|e| Failed::Failed(format!("no threads for sockets: {e}")))
}
