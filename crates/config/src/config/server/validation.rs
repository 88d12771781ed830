//! Checks values that have the right type but no valid meaning, alone or together with others.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Value;

use super::file::{AdminSection, AllowSharedMemory, ControlMode, GRANT_MODEL, GRANTS, ServerFile, TlsSection, keys};
use super::layers::{Layers, Origin};
use super::rates::ResourceLimit;
use crate::config::fault::{Fault, code, did_you_mean};
use crate::config::units::{Size, Span};

/// Minimum size of a recording. Its file is replaced at half of the size.
const LEAST_RECORD: u64 = 1 << 20;

/// A check, and the sections of the file that it reads.
type MeaningCheck = (&'static [&'static str], fn(&ServerFile, &Layers) -> Vec<Fault>);

const CHECKS: [MeaningCheck; 11] = [
    (&[""], |file, layers| wrong_schema(file, layers).into_iter().collect()),
    (&["http", "grpc"], |file, layers| nothing_served(file, layers).into_iter().collect()),
    (&["http", "grpc", "metrics", "admin"], same_ports),
    (&["model"], |file, layers| load_without_control(file, layers).into_iter().collect()),
    (&["admin", "tls"], |file, layers| unsafe_admin(file, layers).into_iter().collect()),
    (&["tls"], |file, layers| half_a_tls(file, layers).into_iter().collect()),
    (&["state"], unclear_state),
    (&["shared_memory"], |file, layers| no_prefix(file, layers).into_iter().collect()),
    (&[""], unclear_records_and_rates),
    (&["limits"], small_queues),
    (&["plugins"], wrong_grants),
];

/// Faults of values that have the right type but no valid meaning. A check that reads a section with a faulty entry is left out, because its
/// fault could follow from that one.
pub(super) fn meaningless(file: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let is_whole = |sections: &[&str]| !sections.iter().any(|section| layers.is_incomplete(section));
    let checks = CHECKS.iter().filter(|(sections, _)| is_whole(sections));
    let mut faults: Vec<Fault> = checks.flat_map(|(_, check)| check(file, layers)).collect();
    faults.extend(against_rules(file, layers));
    faults
}

fn wrong_schema(file: &ServerFile, layers: &Layers) -> Option<Fault> {
    let wrong = || Fault { at: layers.file_at(&["schema"]), code: code::VALUE, what: "schema must be 1".to_owned() };
    (file.schema != 1).then(wrong)
}

fn nothing_served(file: &ServerFile, layers: &Layers) -> Option<Fault> {
    let what = || "neither HTTP nor gRPC is enabled: nothing would be served".to_owned();
    (!file.http.enabled && !file.grpc.enabled).then(|| layers.fault("grpc.enabled", what()))
}

/// Faults of the recording's size and of the capacities of resources.
fn unclear_records_and_rates(file: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let small = (file.record_max.0 < LEAST_RECORD).then(|| {
        let what = format!("record_max must be at least {}", Size(LEAST_RECORD));
        layers.fault("record_max", what)
    });
    let wrong = file.rate_limit_resource.iter().filter_map(|text| ResourceLimit::parse(text).err());
    small.into_iter().chain(wrong.map(|what| layers.fault("rate_limit_resource", what))).collect()
}

/// Faults of listeners that have the port of another one.
fn same_ports(file: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let mut faults = Vec::new();
    let open = |is: bool, port: u16| if is { port } else { 0 };
    let ports = [
        ("http.port", open(file.http.enabled, file.http.port)),
        ("grpc.port", open(file.grpc.enabled, file.grpc.port)),
        ("metrics.port", open(file.metrics.enabled, file.metrics.port)),
        ("admin.port", open(file.admin.enabled, file.admin.port)),
    ];
    for (n, (path, port)) in ports.iter().enumerate() {
        let earlier = ports.iter().take(n).find(|(_, p)| p == port && *port != 0);
        if let Some((other, _)) = earlier {
            let key = if layers.origin(path) == Origin::Default { other } else { path };
            let what = format!("{other} and {path} are both {port}");
            faults.push(layers.fault(key, what));
        }
    }
    faults
}

/// Faults of grants that name no plug-in, or nothing that can be granted.
fn wrong_grants(file: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let mut faults = Vec::new();
    for entry in &file.plugins.grants {
        let what = match entry.split_once('=').filter(|(plugin, _)| !plugin.is_empty()) {
            Some((_, grant)) if GRANTS.contains(&grant) => continue,
            Some((_, grant)) if grant.strip_prefix(GRANT_MODEL).is_some_and(|model| !model.is_empty()) => continue,
            Some((_, grant)) => {
                let (all, near) = (GRANTS.join(", "), did_you_mean(grant, GRANTS));
                format!("plugins.grants: \"{grant}\" is nothing that can be granted ({all}){near}")
            }
            None => format!("plugins.grants: \"{entry}\" names no plug-in; write NAME={entry}"),
        };
        faults.push(layers.fault("plugins.grants", what));
    }
    faults
}

/// The fault for models to load at the start, in a server that loads all models. The sentence begins like Triton's.
fn load_without_control(file: &ServerFile, layers: &Layers) -> Option<Fault> {
    let mode = match file.model.control_mode {
        _ if file.model.load.is_empty() => return None,
        ControlMode::Explicit => return None,
        ControlMode::None => "none",
        ControlMode::Poll => "poll",
    };
    let what = format!(
        "Use of '--load-model' requires setting '--model-control-mode=explicit' as well. (model.control_mode is \"{mode}\": every \
         model of the repository is loaded)"
    );
    Some(layers.fault("model.load", what))
}

/// The fault for a prefix of shared memory that is missing, or that every key begins with.
fn no_prefix(file: &ServerFile, layers: &Layers) -> Option<Fault> {
    if file.shared_memory.allow != Some(AllowSharedMemory::Prefix) {
        return None;
    }
    let prefix = file.shared_memory.prefix.as_str();
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
    Some(layers.fault(key, what))
}

/// The shortest and the longest lease.
const LEASES: RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(60);

/// Faults of the settings for a store that several servers share.
fn unclear_state(file: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let at = |path: &str, what: String| layers.fault(path, what);
    let mut faults = Vec::new();
    if let Some(url) = &file.state.url {
        faults.extend(url.fault().map(|what| at("state.url", what.to_owned())));
        if !file.state.dir.as_os_str().is_empty() {
            let what = "state.url and state.dir are both set: sequences are stored either in Redis or in a directory";
            faults.push(at("state.url", what.to_owned()));
        }
    }
    if !LEASES.contains(&file.state.lease.0) {
        faults.push(at(
            "state.lease",
            format!("state.lease must be from {} to {}", Span(*LEASES.start()), Span(*LEASES.end())),
        ));
    }
    faults
}

fn small_queues(file: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let all = small_queue("limits.queued", Some(file.limits.queued), file, layers);
    let of_peer = small_queue("limits.queued_per_peer", file.limits.queued_per_peer, file, layers);
    all.into_iter().chain(of_peer).collect()
}

/// The fault for a maximum of queued bytes that is smaller than the largest request.
fn small_queue(path: &'static str, queued: Option<Size>, file: &ServerFile, layers: &Layers) -> Option<Fault> {
    let (queued, request) = (queued?, file.limits.request);
    if queued >= request {
        return None;
    }
    let key = if layers.origin(path) == Origin::Default { "limits.request" } else { path };
    let what = format!("{path} ({queued}) must be at least limits.request ({request}), or such a request never fits");
    Some(layers.fault(key, what))
}

/// Faults of values that violate their key's rule.
fn against_rules(file: &ServerFile, layers: &Layers) -> Vec<Fault> {
    let table = toml::Table::try_from(file).map(Value::Table).unwrap_or(Value::Table(toml::Table::new()));
    let of = |path: &str| path.split('.').try_fold(&table, |value, part| value.get(part));
    let refused = keys().filter_map(|key| Some((key.path, key.rule.refuse(key.kind, of(key.path)?)?)));
    let fault = |(path, why)| layers.fault(path, format!("{path} {why}"));
    refused.map(fault).collect()
}

/// The fault for an unprotected admin listener on an address that other machines can reach.
fn unsafe_admin(file: &ServerFile, layers: &Layers) -> Option<Fault> {
    let AdminSection { enabled, address, port, keys_file, .. } = &file.admin;
    let is_guarded = !keys_file.as_os_str().is_empty() || !file.tls.client_ca.as_os_str().is_empty();
    if !enabled || address.is_local() || is_guarded {
        return None;
    }
    let what = format!(
        "admin on {address}:{port} without keys or client certificates would let anyone load code. \
         Set admin.keys_file, tls.client_ca, or admin.address = \"127.0.0.1\"."
    );
    Some(layers.fault("admin.address", what))
}

/// The fault for a certificate without its key, or a key without its certificate.
fn half_a_tls(file: &ServerFile, layers: &Layers) -> Option<Fault> {
    let TlsSection { cert, key, client_ca } = &file.tls;
    let [has_cert, has_key, has_ca] = [cert, key, client_ca].map(|path| !path.as_os_str().is_empty());
    let (there, lacks) = match (has_cert, has_key, has_ca) {
        (true, false, _) => ("tls.cert", "tls.key"),
        (false, true, _) => ("tls.key", "tls.cert"),
        (false, false, true) => ("tls.client_ca", "tls.cert and tls.key"),
        _ => return None,
    };
    Some(layers.fault(there, format!("{there} is of no use without {lacks}")))
}
