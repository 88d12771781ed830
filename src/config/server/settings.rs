//! Checks the merged layers and converts them to the server's own types.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Value;

use super::access::{ClientAuth, KeyedGroups, RestrictedGroups, Restrictions, WireProtocol};
use super::by_memory::{HostMemory, LimitsByMemory, by_memory};
use super::file::{
    AdminSection, AllowSharedMemory, CacheSection, Connections, ControlMode, Drain, GRANT_MODEL, GRANTS, Grpc, Http,
    LogSection, MetricsSection, ModelSection, PluginsSection, RateLimit, Runtime, ServerFile, ServerLimits,
    StateSection, TlsSection, keys,
};
use super::flags::GivenFlags;
use super::layers::{Layers, Origin};
use super::otlp::{self, OtlpSettings};
use super::rates::ResourceLimit;
use super::shown::{Shown, shown};
use crate::config::fault::{Fault, code, did_you_mean, in_order};
use crate::config::units::{Size, Span};

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
    /// Every served key with its value and origin, for operators.
    pub shown: Vec<Shown>,
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

/// Minimum size of a recording. Its file is replaced at half of the size.
const LEAST_RECORD: u64 = 64 << 10;

/// Merges the layers and checks the result. On error returns all faults. `variable` looks up an environment variable.
pub fn load(
    file: Option<(&Path, &str)>,
    variable: &dyn Fn(&str) -> Option<String>,
    given: &GivenFlags,
    host: &HostInfo,
) -> Result<Settings, Vec<Fault>> {
    let mut layers = Layers::default();
    if let Some((path, text)) = file {
        layers.file(path, text);
    }
    layers.environment(variable);
    layers.flags(given);
    let said = layers.merged();
    let mut faults = std::mem::take(&mut layers.faults);
    faults.extend(layers.not_served());
    faults.extend(meaningless(&said, &layers));
    let restricted = restricted(&said, &layers).map_err(|wrong| faults.extend(wrong));
    let auth = auth(&said, &layers).map_err(|wrong| faults.push(wrong));
    let node = said.node.as_deref().unwrap_or(&host.name);
    let otlp =
        otlp::resolve(&said.otlp, &layers.origin("otlp.endpoint"), variable, node).map_err(|wrong| faults.push(wrong));
    match (restricted, auth, otlp) {
        (Ok(restricted), Ok(auth), Ok(otlp)) if faults.is_empty() => {
            Ok(Settings { otlp, ..resolve(said, (restricted, auth), layers.origins, host) })
        }
        _ => Err(in_order(faults)),
    }
}

/// Faults of values that have the right type but no valid meaning.
fn meaningless(said: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let mut faults = Vec::new();
    if said.schema != 1 {
        let at = layers.file_at(&["schema"]);
        faults.push(Fault { at, code: code::VALUE, what: "schema must be 1".to_owned() });
    }
    if !said.http.enabled && !said.grpc.enabled {
        let what = "neither HTTP nor gRPC is enabled: nothing would be served".to_owned();
        faults.push(Fault { at: layers.origin("grpc.enabled").at(), code: code::VALUE, what });
    }
    let open = |is: bool, port: u16| if is { port } else { 0 };
    let ports = [
        ("http.port", open(said.http.enabled, said.http.port)),
        ("grpc.port", open(said.grpc.enabled, said.grpc.port)),
        ("metrics.port", open(said.metrics.enabled, said.metrics.port)),
        ("admin.port", open(said.admin.enabled, said.admin.port)),
    ];
    for (n, (path, port)) in ports.iter().enumerate() {
        let earlier = ports.iter().take(n).find(|(_, p)| p == port && *port != 0);
        if let Some((other, _)) = earlier {
            let key = if layers.origin(path) == Origin::Default { other } else { path };
            let what = format!("{other} and {path} are both {port}");
            faults.push(Fault { at: layers.origin(key).at(), code: code::VALUE, what });
        }
    }
    faults.extend(load_without_control(said, layers));
    faults.extend(unsafe_admin(said, layers));
    faults.extend(half_a_tls(said, layers));
    faults.extend(unclear_state(said, layers));
    if said.shared_memory.allow == Some(AllowSharedMemory::Prefix) {
        faults.extend(no_prefix(&said.shared_memory.prefix, layers));
    }
    if said.record_max.0 < LEAST_RECORD {
        let what = format!("record_max must be at least {}", Size(LEAST_RECORD));
        faults.push(Fault { at: layers.origin("record_max").at(), code: code::VALUE, what });
    }
    faults.extend(small_queue("limits.queued", Some(said.limits.queued), said, layers));
    faults.extend(small_queue("limits.queued_per_peer", said.limits.queued_per_peer, said, layers));
    for entry in &said.plugins.grants {
        let what = match entry.split_once('=').filter(|(plugin, _)| !plugin.is_empty()) {
            Some((_, grant)) if GRANTS.contains(&grant) => continue,
            Some((_, grant)) if grant.strip_prefix(GRANT_MODEL).is_some_and(|model| !model.is_empty()) => continue,
            Some((_, grant)) => {
                let (all, near) = (GRANTS.join(", "), did_you_mean(grant, GRANTS));
                format!("plugins.grants: \"{grant}\" is nothing that can be granted ({all}){near}")
            }
            None => format!("plugins.grants: \"{entry}\" names no plug-in; write NAME={entry}"),
        };
        faults.push(Fault { at: layers.origin("plugins.grants").at(), code: code::VALUE, what });
    }
    let wrong = said.rate_limit_resource.iter().filter_map(|text| ResourceLimit::parse(text).err());
    let at = || layers.origin("rate_limit_resource").at();
    faults.extend(wrong.map(|what| Fault { at: at(), code: code::VALUE, what }));
    faults.extend(against_rules(said, layers));
    faults
}

/// The fault for models to load at the start, in a server that loads all models. The sentence begins like Triton's.
fn load_without_control(said: &ServerFile, layers: &Layers) -> Option<Fault> {
    let mode = match said.model.control_mode {
        _ if said.model.load.is_empty() => return None,
        ControlMode::Explicit => return None,
        ControlMode::None => "none",
        ControlMode::Poll => "poll",
    };
    let what = format!(
        "Use of '--load-model' requires setting '--model-control-mode=explicit' as well. (model.control_mode is \"{mode}\": every \
         model of the repository is loaded)"
    );
    Some(Fault { at: layers.origin("model.load").at(), code: code::VALUE, what })
}

/// The fault for a prefix of shared memory that is missing, or that every key begins with.
fn no_prefix(prefix: &str, layers: &Layers) -> Option<Fault> {
    let (key, what) = match prefix {
        "" => {
            ("shared_memory.allow", "shared_memory.allow is \"prefix\", and shared_memory.prefix is missing".to_owned())
        }
        _ if prefix.trim_matches('/').is_empty() => {
            let what = format!(
                "shared_memory.prefix \"{prefix}\" allows every key: add the beginning of a name, or set shared_memory.allow = \"on\""
            );
            ("shared_memory.prefix", what)
        }
        _ => return None,
    };
    Some(Fault { at: layers.origin(key).at(), code: code::VALUE, what })
}

/// The shortest and the longest lease.
const LEASES: RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(60);

/// Faults of the settings for a store that several servers share.
fn unclear_state(said: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let at = |path: &str, what: String| Fault { at: layers.origin(path).at(), code: code::VALUE, what };
    let mut faults = Vec::new();
    if let Some(url) = &said.state.url {
        faults.extend(url.fault().map(|what| at("state.url", what.to_owned())));
        if !said.state.dir.as_os_str().is_empty() {
            let what = "state.url and state.dir are both set: sequences are stored either in Redis or in a directory";
            faults.push(at("state.url", what.to_owned()));
        }
    }
    if !LEASES.contains(&said.state.lease.0) {
        faults.push(at(
            "state.lease",
            format!("state.lease must be from {} to {}", Span(*LEASES.start()), Span(*LEASES.end())),
        ));
    }
    faults
}

/// The fault for a maximum of queued bytes that is smaller than the largest request.
fn small_queue(path: &'static str, queued: Option<Size>, said: &ServerFile, layers: &Layers) -> Option<Fault> {
    let (queued, request) = (queued?, said.limits.request);
    if queued >= request {
        return None;
    }
    let key = if layers.origin(path) == Origin::Default { "limits.request" } else { path };
    let what = format!("{path} ({queued}) must be at least limits.request ({request}), or such a request never fits");
    Some(Fault { at: layers.origin(key).at(), code: code::VALUE, what })
}

/// Faults of values that violate their key's rule.
fn against_rules(said: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let table = toml::Table::try_from(said).map(Value::Table).unwrap_or(Value::Table(toml::Table::new()));
    let of = |path: &str| path.split('.').try_fold(&table, |value, part| value.get(part));
    let refused = keys().filter_map(|key| Some((key.path, key.rule.refuse(key.kind, of(key.path)?)?)));
    let fault = |(path, why)| Fault { at: layers.origin(path).at(), code: code::VALUE, what: format!("{path} {why}") };
    refused.map(fault).collect()
}

/// The fault for an unprotected admin listener on an address that other machines can reach.
fn unsafe_admin(said: &ServerFile, layers: &Layers) -> Option<Fault> {
    let AdminSection { enabled, address, port, keys_file, .. } = &said.admin;
    let is_guarded = !keys_file.as_os_str().is_empty() || !said.tls.client_ca.as_os_str().is_empty();
    // A text that is not an address is refused when the listener is bound.
    let is_local = address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if !enabled || is_local || is_guarded {
        return None;
    }
    let what = format!(
        "admin on {address}:{port} without keys or client certificates would let anyone load code. \
         Set admin.keys_file, tls.client_ca, or admin.address = \"127.0.0.1\"."
    );
    Some(Fault { at: layers.origin("admin.address").at(), code: code::VALUE, what })
}

/// The fault for a certificate without its key, or a key without its certificate.
fn half_a_tls(said: &ServerFile, layers: &Layers) -> Option<Fault> {
    let TlsSection { cert, key, client_ca } = &said.tls;
    let [has_cert, has_key, has_ca] = [cert, key, client_ca].map(|path| !path.as_os_str().is_empty());
    let (there, lacks) = match (has_cert, has_key, has_ca) {
        (true, false, _) => ("tls.cert", "tls.key"),
        (false, true, _) => ("tls.key", "tls.cert"),
        (false, false, true) => ("tls.client_ca", "tls.cert and tls.key"),
        _ => return None,
    };
    Some(Fault {
        at: layers.origin(there).at(),
        code: code::VALUE,
        what: format!("{there} is of no use without {lacks}"),
    })
}

/// The restricted groups, or their faults.
fn restricted(said: &ServerFile, layers: &Layers) -> Result<RestrictedGroups, Vec<Fault>> {
    let parse = |path, texts, protocol| {
        let fault = |what| Fault { at: layers.origin(path).at(), code: code::VALUE, what };
        Restrictions::parse(texts, protocol).map_err(fault)
    };
    let http = parse("http.restricted_api", &said.http.restricted_api, WireProtocol::Http);
    let grpc = parse("grpc.restricted_protocol", &said.grpc.restricted_protocol, WireProtocol::Grpc);
    match (http, grpc) {
        (Ok(http), Ok(grpc)) => Ok(RestrictedGroups { http, grpc }),
        (http, grpc) => Err([http.err(), grpc.err()].into_iter().flatten().collect()),
    }
}

/// The settings of clients' keys, or their fault.
fn auth(said: &ServerFile, layers: &Layers) -> Result<Option<ClientAuth>, Fault> {
    let fault = |what| Fault { at: layers.origin("auth.restricted").at(), code: code::VALUE, what };
    let keyed = KeyedGroups::parse(said.auth.restricted.as_deref()).map_err(fault)?;
    let keys_file = said.auth.keys_file.clone();
    match (keys_file.as_os_str().is_empty(), &keyed) {
        (false, _) => Ok(Some(ClientAuth { keys_file, keyed })),
        (true, KeyedGroups::AllButHealth) => Ok(None),
        (true, KeyedGroups::Only(_)) => Err(fault("auth.restricted is of no use without auth.keys_file".to_owned())),
    }
}

/// The shared memory that clients may register. By default it is allowed only if all listeners are on local addresses.
fn shared_memory(said: &ServerFile) -> SharedMemory {
    let is_local = |address: &str| address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let http = !said.http.enabled || is_local(&said.http.address);
    let grpc = !said.grpc.enabled || is_local(&said.grpc.address);
    match said.shared_memory.allow {
        Some(AllowSharedMemory::On) => SharedMemory::On,
        Some(AllowSharedMemory::Prefix) => SharedMemory::Prefix(said.shared_memory.prefix.clone()),
        None if http && grpc => SharedMemory::On,
        Some(AllowSharedMemory::Off) | None => SharedMemory::Off,
    }
}

/// The capacities of the resources for which runs wait. Invalid entries were refused before.
fn rates(said: &ServerFile) -> Option<Vec<ResourceLimit>> {
    let limits = || said.rate_limit_resource.iter().filter_map(|text| ResourceLimit::parse(text).ok()).collect();
    (said.rate_limit == RateLimit::ExecutionCount).then(limits)
}

fn resolve(
    said: ServerFile,
    (restricted, auth): (RestrictedGroups, Option<ClientAuth>),
    origins: BTreeMap<&'static str, Origin>,
    host: &HostInfo,
) -> Settings {
    let (shared_memory, rates) = (shared_memory(&said), rates(&said));
    let LimitsByMemory { limits, sources } = by_memory(&said.limits, &origins, host.memory.as_ref());
    let said = ServerFile { limits, ..said };
    let shown = shown(&said, &origins, &sources);
    Settings {
        node: said.node.unwrap_or_else(|| host.name.clone()),
        exit_on_error: said.exit_on_error,
        cpu_only: said.cpu_only,
        strict_readiness: said.strict_readiness,
        record: (!said.record.as_os_str().is_empty()).then_some((said.record, said.record_max.0)),
        rates,
        model: said.model,
        http: said.http,
        grpc: said.grpc,
        metrics: said.metrics,
        admin: said.admin,
        tls: Some(said.tls).filter(|tls| !tls.cert.as_os_str().is_empty()),
        limits,
        cache: said.cache,
        connections: said.connections,
        shared_memory,
        restricted,
        auth,
        drain: said.drain,
        state: said.state,
        runtime: said.runtime,
        log: said.log,
        plugins: said.plugins,
        otlp: None,
        origins,
        shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::access::ApiGroup;
    use crate::config::units::Span;
    use std::time::Duration;

    const FILE: &str = "schema = 1\n[http]\nport = 9000\naddress = \"127.0.0.1\"\n[limits]\nrequest = \"1MiB\"\n";

    fn given(args: &[&str]) -> GivenFlags {
        let command = clap::Command::new("serve").args(crate::config::server::args());
        GivenFlags::from_matches(
            &command.try_get_matches_from(std::iter::once("serve").chain(args.iter().copied())).unwrap(),
        )
    }

    fn settings(file: &str, variables: &[(&str, &str)], args: &[&str]) -> Result<Settings, Vec<String>> {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let memory = HostMemory { bytes: 1 << 30, source: "MemTotal of /proc/meminfo".to_owned() };
        let host = HostInfo { name: "here".to_owned(), memory: Some(memory) };
        load(Some((Path::new("sequor.toml"), file)), &variable, &given(args), &host)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn flags_are_over_variables_over_the_file_over_defaults() {
        let settings = settings(
            FILE,
            &[("SEQUOR_HTTP_PORT", "9100"), ("SEQUOR_GRPC_PORT", "9101"), ("SEQUOR_MODEL_REPOSITORY", "/a, /b")],
            &["--grpc-port", "9201", "--model-control-mode", "explicit", "--exit-timeout-secs", "7"],
        )
        .unwrap();
        assert_eq!((settings.http.port, settings.http.address.as_str()), (9100, "127.0.0.1"));
        assert_eq!((settings.grpc.port, settings.metrics.port), (9201, 8002));
        assert_eq!(settings.model.repository, [Path::new("/a"), Path::new("/b")]);
        assert_eq!(
            (settings.model.control_mode, settings.drain.exit_timeout),
            (ControlMode::Explicit, Span(Duration::from_secs(7)))
        );
        assert_eq!(
            (settings.limits.request, settings.limits.queued, settings.limits.state, settings.node.as_str()),
            (Size(1 << 20), Size(256 << 20), Some(Size(512 << 20)), "here")
        );
        let origin = |path: &str| settings.origins.get(path).map_or_else(|| "default".to_owned(), ToString::to_string);
        assert_eq!(origin("http.port"), "SEQUOR_HTTP_PORT");
        assert_eq!(origin("http.address"), "sequor.toml:4:1");
        assert_eq!(origin("grpc.port"), "--grpc-port");
        assert_eq!(origin("drain.exit_timeout"), "--exit-timeout-secs");
        assert_eq!(origin("metrics.port"), "default");
    }

    #[test]
    fn limits_derived_from_the_memory_name_their_source() {
        let row = |args: &[&str], key: &str| {
            let shown = settings("", &[], args).unwrap().shown;
            shown.into_iter().find(|row| row.key == key).map(|row| (row.value, row.origin)).unwrap()
        };
        let row_of = |value: &str, origin: &str| (format!("\"{value}\""), origin.to_owned());
        let from = "default: a quarter of 1 GiB (MemTotal of /proc/meminfo)";
        assert_eq!(row(&[], "limits.queued"), row_of("256MiB", from));
        let from = "default: three quarters of 1 GiB (MemTotal of /proc/meminfo), less limits.queued";
        assert_eq!(row(&[], "limits.state"), row_of("512MiB", from));
        assert_eq!(row(&["--limits-queued", "1GiB"], "limits.queued"), row_of("1GiB", "--limits-queued"));
        assert_eq!(row(&["--limits-state", "1GiB"], "limits.state"), row_of("1GiB", "--limits-state"));
    }

    #[test]
    fn models_to_load_need_the_control_mode_in_which_they_are_chosen() {
        let explicit = settings("", &[], &["--load-model=vad", "--model-control-mode=explicit"]);
        assert_eq!(explicit.map(|settings| settings.model.load), Ok(vec!["vad".to_owned()]));
        let begin =
            "Use of '--load-model' requires setting '--model-control-mode=explicit' as well. (model.control_mode is";
        let refused = settings("", &[], &["--load-model=vad"]).unwrap_err();
        assert_eq!(refused, [format!("--load-model: {begin} \"none\": every model of the repository is loaded)")]);
        let refused = settings("[model]\nload = [\"vad\"]\ncontrol_mode = \"poll\"\n", &[], &[]).unwrap_err();
        assert_eq!(refused, [format!("sequor.toml:2:1: {begin} \"poll\": every model of the repository is loaded)")]);
    }

    #[test]
    fn a_recording_has_a_file_and_a_size() {
        let record = |args: &[&str]| settings("", &[], args).map(|s| s.record);
        assert_eq!(record(&[]), Ok(None));
        assert_eq!(record(&["--record", "/t.jsonl"]), Ok(Some((PathBuf::from("/t.jsonl"), 1 << 30))));
        assert_eq!(record(&["--record", "t", "--record-max", "64KiB"]), Ok(Some((PathBuf::from("t"), 64 << 10))));
        assert_eq!(
            record(&["--record-max", "1KiB"]),
            Err(vec!["--record-max: record_max must be at least 64KiB".to_owned()])
        );
    }

    #[test]
    fn settings_without_any_source_are_the_defaults() {
        let settings = load(None, &|_| None, &GivenFlags::default(), &HostInfo::default()).unwrap();
        assert_eq!((settings.http.port, settings.grpc.port, settings.metrics.port), (8000, 8001, 8002));
        assert_eq!((settings.limits.in_flight, settings.limits.state), (65536, None));
        assert!(settings.strict_readiness && !settings.exit_on_error && settings.origins.is_empty());
    }

    #[test]
    fn faults_of_all_settings_layers_are_reported_together() {
        let file = "[grpc]\nport = 8000\n[auth]\nrestricted = [\"trace\"]\n[otlp]\nendpoint = \"x y\"\n[plugins]\ntime = \"0s\"\ngrants = [\"edf=clok\", \"clock\"]\n[runtime]\nthreads_per_instance = 0\n";
        let variables = [("SEQUOR_LIMITS_STATE", "24GB"), ("SEQUOR_STATE_URL", "/x"), ("SEQUOR_LOG_FORMAT", "xml")];
        let faults = settings(file, &variables, &["--metrics-port", "70000", "--strict-readiness=maybe"]).unwrap_err();
        insta::assert_snapshot!(faults.join("\n"));
    }

    #[test]
    fn an_open_admin_needs_keys_or_client_certificates() {
        let open = ["--admin-address", "0.0.0.0"];
        let said = "--admin-address: admin on 0.0.0.0:8003 without keys or client certificates would let anyone load code. \
            Set admin.keys_file, tls.client_ca, or admin.address = \"127.0.0.1\".";
        assert_eq!(settings("", &[], &open).unwrap_err(), [said]);
        let with = |more: &[&str]| settings("", &[], &[&open[..], more].concat()).map(|s| s.admin.address);
        assert_eq!(with(&["--admin-keys-file", "k"]), Ok("0.0.0.0".to_owned()));
        let mutual = ["--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a"];
        assert_eq!(with(&mutual), Ok("0.0.0.0".to_owned()));
        assert_eq!(with(&["--admin-enabled=false"]), Ok("0.0.0.0".to_owned()));
        assert!(settings("", &[], &["--admin-address", "::1"]).is_ok());
        assert!(
            with(&["--tls-cert", "c", "--tls-key", "k"]).is_err(),
            "a server's certificate authenticates no client"
        );
    }

    #[test]
    fn tls_is_whole_or_not_at_all() {
        let tls = |args: &[&str]| settings("", &[], args).map(|s| s.tls.is_some());
        assert_eq!((tls(&[]), tls(&["--tls-cert", "c", "--tls-key", "k"])), (Ok(false), Ok(true)));
        assert_eq!(
            tls(&["--tls-cert", "c"]),
            Err(vec!["--tls-cert: tls.cert is of no use without tls.key".to_owned()])
        );
        assert!(tls(&["--tls-key", "k"]).is_err() && tls(&["--tls-client-ca", "a"]).is_err());
    }

    #[test]
    fn a_wrong_file_is_told_at_its_line() {
        let fault = |file: &str| settings(file, &[], &[]).unwrap_err().join("\n");
        assert_eq!(
            fault("[limits]\nstate = \"24GB\""),
            "sequor.toml:2:9: \"24GB\" is not a size (did you mean \"24GiB\"?)"
        );
        assert!(fault("[http]\nprot = 1").starts_with("sequor.toml:2:1: unknown field `prot`, expected"));
        assert!(fault("[http]\nport = 70000").starts_with("sequor.toml:2:8: invalid value"));
        assert_eq!(fault("\nschema = 2"), "sequor.toml:2:1: schema must be 1");
        for prefix in ["/", "//"] {
            let said = fault(&format!("[shared_memory]\nallow = \"prefix\"\nprefix = \"{prefix}\""));
            assert!(
                said.starts_with(&format!("sequor.toml:3:1: shared_memory.prefix \"{prefix}\" allows every")),
                "{said}"
            );
        }
        let prefix =
            |prefix: &str| settings(&format!("[shared_memory]\nallow = \"prefix\"\nprefix = \"{prefix}\""), &[], &[]);
        assert!(prefix("").is_err() && prefix("/triton-").is_ok());
    }

    #[test]
    fn restricted_groups_come_from_every_layer_and_are_shown_without_their_secrets() {
        let given = |file: &str, variables: &[(&str, &str)], args: &[&str]| settings(file, variables, args);
        let file = "[http]\nrestricted_api = [\"model-repository,health:k=s3cret\"]\n[grpc]\nrestricted_protocol = \"trace:k=s3cret\"\n";
        let from_file = given(file, &[], &[]).unwrap();
        let header = |settings: &Settings, protocol, group| {
            settings.restricted.of(protocol).of(group).map(|restriction| restriction.header.clone())
        };
        let (http, grpc) = (WireProtocol::Http, WireProtocol::Grpc);
        assert_eq!(header(&from_file, http, ApiGroup::Health).as_deref(), Some("k"));
        assert_eq!(header(&from_file, grpc, ApiGroup::Trace).as_deref(), Some("triton-grpc-protocol-k"));
        let variable = [("SEQUOR_HTTP_RESTRICTED_API", "health,trace:k=s3cret\n inference:other=s3cret ")];
        let from_variable = given(file, &variable, &[]).unwrap();
        assert_eq!(header(&from_variable, http, ApiGroup::Inference).as_deref(), Some("other"));
        let flags = ["--http-restricted-api=metadata,logging:a=s3cret", "--http-restricted-api", "health:b=s3cret"];
        let from_flags = given(file, &variable, &flags).unwrap();
        assert_eq!(header(&from_flags, http, ApiGroup::Logging).as_deref(), Some("a"));
        assert_eq!(header(&from_flags, http, ApiGroup::Health).as_deref(), Some("b"));
        assert_eq!(header(&from_flags, http, ApiGroup::Inference), None, "the flag takes the variable's place");
        for settings in [&from_file, &from_variable, &from_flags] {
            let shown = settings.shown.iter().find(|row| row.key == "http.restricted_api").unwrap();
            assert!(shown.value.contains("=***\""), "{shown:?}");
            assert!(!format!("{settings:?}").contains("s3cret"));
        }
    }

    #[test]
    fn a_fault_of_restricted_groups_has_its_place_and_no_secret() {
        let fault = |file: &str, args: &[&str]| settings(file, &[], args).unwrap_err().join("\n");
        let twice = ["--grpc-restricted-protocol=health:k=s3cret", "--grpc-restricted-protocol=health:k2=s3cret"];
        assert_eq!(
            fault("", &twice),
            "--grpc-restricted-protocol: restricted protocol 'health' can not be specified in multiple config groups"
        );
        let unknown = fault("[http]\nrestricted_api = [\"model-reposit:k=s3cret\"]\n", &[]);
        assert!(unknown.starts_with("sequor.toml:2:1: unknown restricted api 'model-reposit' ("), "{unknown}");
        for wrong in ["\"s3cret\"", "[\"s3cret\"]", "[[\"s3cret\"]]", "{ health = \"s3cret\" }"] {
            let said = fault(&format!("[http]\nrestricted_api = {wrong}\n"), &[]);
            assert!(!said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn the_file_is_named_by_flag_or_variable() {
        let variable = |name: &str| (name == "SEQUOR_CONFIG").then(|| "/v".to_owned());
        assert_eq!(config_path(&variable, &given(&["--config", "/f"])), Some(PathBuf::from("/f")));
        assert_eq!(config_path(&variable, &GivenFlags::default()), Some(PathBuf::from("/v")));
        assert_eq!(config_path(&|_| None, &GivenFlags::default()), None);
    }

    #[test]
    fn shared_memory_is_on_by_default_only_for_local_addresses() {
        let allowed = |text: &str| {
            let text = format!("schema = 1\n{text}");
            let file = Some((Path::new("sequor.toml"), text.as_str()));
            load(file, &|_| None, &GivenFlags::default(), &HostInfo::default()).map(|settings| settings.shared_memory)
        };
        const LOCAL: &str = "[http]\naddress = \"127.0.0.1\"\n[grpc]\naddress = \"::1\"\n";
        assert_eq!(allowed(""), Ok(SharedMemory::Off));
        assert_eq!(allowed(LOCAL), Ok(SharedMemory::On));
        assert_eq!(allowed("[http]\naddress = \"127.0.0.1\"\n[grpc]\nenabled = false\n"), Ok(SharedMemory::On));
        assert_eq!(allowed("[http]\naddress = \"127.0.0.1\"\n"), Ok(SharedMemory::Off));
        assert_eq!(allowed(&format!("{LOCAL}[shared_memory]\nallow = \"off\"")), Ok(SharedMemory::Off));
        assert_eq!(allowed("[shared_memory]\nallow = \"on\""), Ok(SharedMemory::On));
        let prefix = allowed("[shared_memory]\nallow = \"prefix\"\nprefix = \"triton-\"");
        assert_eq!(prefix, Ok(SharedMemory::Prefix("triton-".to_owned())));
        assert!(allowed("[shared_memory]\nallow = \"prefix\"").is_err());
    }
}
