//! Checks the merged layers and converts them to the server's own types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::access::{ClientAuth, KeyedGroups, RestrictedGroups, Restrictions, WireProtocol};
use super::by_memory::{HostMemory, LimitsByMemory, by_memory};
use super::file::{
    AdminSection, AllowSharedMemory, CacheSection, Connections, Drain, Grpc, Http, LogSection, MetricsSection,
    ModelSection, PluginsSection, RateLimit, Runtime, ServerFile, ServerLimits, StateSection, TlsSection,
};
use super::flags::GivenFlags;
use super::layers::{Layers, Origin};
use super::otlp::{self, OtlpSettings};
use super::rates::ResourceLimit;
use super::shown::{Shown, shown};
use super::validation::meaningless;
use crate::config::fault::{Fault, in_order};

/// Facts about the machine, for defaults that depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostInfo {
    pub name: String,
    /// `None` if it could not be found out.
    pub memory: Option<HostMemory>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub node: String,
    pub exit_on_error: bool,
    /// Whether instances that ask for a GPU run on the CPU.
    pub cpu_only: bool,
    pub strict_readiness: bool,
    /// The file in which requests are recorded, and the maximum size of the recording.
    pub record: Option<(PathBuf, u64)>,
    /// The capacity of each resource; `None` if runs wait for no resources.
    pub rates: Option<Vec<ResourceLimit>>,
    pub model: ModelSection,
    pub http: Http,
    pub grpc: Grpc,
    pub metrics: MetricsSection,
    pub admin: AdminSection,
    /// `None` if TLS is off.
    pub tls: Option<TlsSection>,
    /// If the memory of this process is known, `limits.queued` and `limits.state` are derived from it unless they are set.
    pub limits: ServerLimits,
    pub cache: CacheSection,
    pub connections: Connections,
    pub shared_memory: SharedMemory,
    /// The groups of endpoints that need a header with a secret.
    pub restricted: RestrictedGroups,
    /// `None`: clients need no key.
    pub auth: Option<ClientAuth>,
    pub drain: Drain,
    pub state: StateSection,
    pub runtime: Runtime,
    pub log: LogSection,
    pub plugins: PluginsSection,
    /// `None`: requests are not traced.
    pub otlp: Option<OtlpSettings>,
    /// The origin of each key; an absent key has its default.
    pub origins: BTreeMap<&'static str, Origin>,
    /// Every key with its value and origin, for operators.
    pub shown: Vec<Shown>,
    /// The layers that these settings were made of.
    pub(super) layers: Layers,
}

/// The system shared memory objects that clients may register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedMemory {
    Off,
    /// Objects whose keys begin with this prefix.
    Prefix(String),
    On,
}

/// The settings file, if one is named.
pub fn config_path(variable: &dyn Fn(&str) -> Option<String>, given: &GivenFlags) -> Option<PathBuf> {
    given.config.clone().or_else(|| variable("SEQUOR_CONFIG")).map(PathBuf::from)
}

/// Merges the layers and checks the result. On error returns all faults. `variable` looks up an environment variable.
pub fn load(
    file: Option<(&Path, &str)>,
    variable: &dyn Fn(&str) -> Option<String>,
    given: &GivenFlags,
    host: &HostInfo,
) -> Result<Settings, Vec<Fault>> {
    resolved(Layers::of(file, variable, given), variable, host)
}

/// Does the same, and also returns the settings if there are faults: values with a fault are left out. They are only for further checks.
pub fn load_all(
    file: Option<(&Path, &str)>,
    variable: &dyn Fn(&str) -> Option<String>,
    given: &GivenFlags,
    host: &HostInfo,
) -> (Settings, Vec<Fault>) {
    resolved_with_faults(Layers::of(file, variable, given), variable, host)
}

/// Checks merged layers and resolves them. On error returns all faults.
pub(super) fn resolved(
    layers: Layers,
    variable: &dyn Fn(&str) -> Option<String>,
    host: &HostInfo,
) -> Result<Settings, Vec<Fault>> {
    let (settings, faults) = resolved_with_faults(layers, variable, host);
    if faults.is_empty() { Ok(settings) } else { Err(faults) }
}

fn resolved_with_faults(
    mut layers: Layers,
    variable: &dyn Fn(&str) -> Option<String>,
    host: &HostInfo,
) -> (Settings, Vec<Fault>) {
    let file = layers.merged();
    let mut faults = std::mem::take(&mut layers.faults);
    faults.extend(meaningless(&file, &layers));
    let restricted = restricted(&file, &layers).unwrap_or_else(|wrong| {
        faults.extend(wrong);
        RestrictedGroups::default()
    });
    // A fault of a section with an entry that was left out may follow from that.
    let add_fault = |section: &str, wrong: Fault, faults: &mut Vec<Fault>| {
        faults.extend((!layers.is_incomplete(section)).then_some(wrong));
    };
    let auth = auth(&file, &layers).unwrap_or_else(|wrong| {
        add_fault("auth", wrong, &mut faults);
        None
    });
    let node = file.node.as_deref().unwrap_or(&host.name);
    let otlp = otlp::resolve(&file.otlp, &|key| layers.origin(key), variable, node).unwrap_or_else(|wrong| {
        add_fault("otlp", wrong, &mut faults);
        None
    });
    (Settings { otlp, ..resolve(file, (restricted, auth), layers, host) }, in_order(faults))
}

/// The restricted groups, or their faults.
fn restricted(file: &ServerFile, layers: &Layers) -> Result<RestrictedGroups, Vec<Fault>> {
    let parse = |path, texts, protocol| {
        let fault = |what| layers.fault(path, what);
        Restrictions::parse(texts, protocol).map_err(fault)
    };
    let http = parse("http.restricted_api", &file.http.restricted_api, WireProtocol::Http);
    let grpc = parse("grpc.restricted_protocol", &file.grpc.restricted_protocol, WireProtocol::Grpc);
    match (http, grpc) {
        (Ok(http), Ok(grpc)) => Ok(RestrictedGroups { http, grpc }),
        (http, grpc) => Err([http.err(), grpc.err()].into_iter().flatten().collect()),
    }
}

/// The settings of clients' keys, or their fault.
fn auth(file: &ServerFile, layers: &Layers) -> Result<Option<ClientAuth>, Fault> {
    let fault = |what| layers.fault("auth.restricted", what);
    let keyed = KeyedGroups::parse(file.auth.restricted.as_deref()).map_err(fault)?;
    let keys_file = file.auth.keys_file.clone();
    match (keys_file.as_os_str().is_empty(), &keyed) {
        (false, _) => Ok(Some(ClientAuth { keys_file, keyed })),
        (true, KeyedGroups::AllButHealth) => Ok(None),
        (true, KeyedGroups::Only(_)) => Err(fault("auth.restricted is of no use without auth.keys_file".to_owned())),
    }
}

/// The shared memory that clients may register. By default it is allowed only if all listeners are on local addresses.
fn shared_memory(file: &ServerFile) -> SharedMemory {
    let http = !file.http.enabled || file.http.address.is_local();
    let grpc = !file.grpc.enabled || file.grpc.address.is_local();
    match file.shared_memory.allow {
        Some(AllowSharedMemory::On) => SharedMemory::On,
        Some(AllowSharedMemory::Prefix) => SharedMemory::Prefix(file.shared_memory.prefix.clone()),
        None if http && grpc => SharedMemory::On,
        Some(AllowSharedMemory::Off) | None => SharedMemory::Off,
    }
}

/// The capacities of the resources for which runs wait. Invalid entries were refused before.
fn rates(file: &ServerFile) -> Option<Vec<ResourceLimit>> {
    let limits = || file.rate_limit_resource.iter().filter_map(|text| ResourceLimit::parse(text).ok()).collect();
    (file.rate_limit == RateLimit::ExecutionCount).then(limits)
}

fn resolve(
    file: ServerFile,
    (restricted, auth): (RestrictedGroups, Option<ClientAuth>),
    layers: Layers,
    host: &HostInfo,
) -> Settings {
    let origins = layers.origins.clone();
    let (shared_memory, rates) = (shared_memory(&file), rates(&file));
    let LimitsByMemory { limits, sources } = by_memory(&file.limits, &origins, host.memory.as_ref());
    let file = ServerFile { limits, ..file };
    let shown = shown(&file, &origins, &sources);
    Settings {
        node: file.node.unwrap_or_else(|| host.name.clone()),
        exit_on_error: file.exit_on_error,
        cpu_only: file.cpu_only,
        strict_readiness: file.strict_readiness,
        record: (!file.record.as_os_str().is_empty()).then_some((file.record, file.record_max.0)),
        rates,
        model: file.model,
        http: file.http,
        grpc: file.grpc,
        metrics: file.metrics,
        admin: file.admin,
        tls: Some(file.tls).filter(|tls| !tls.cert.as_os_str().is_empty()),
        limits,
        cache: file.cache,
        connections: file.connections,
        shared_memory,
        restricted,
        auth,
        drain: file.drain,
        state: file.state,
        runtime: file.runtime,
        log: file.log,
        plugins: file.plugins,
        otlp: None,
        origins,
        shown,
        layers,
    }
}
