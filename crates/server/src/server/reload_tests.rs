//! Tests that a reload reaches every component, and that a refused one changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use parking_lot::Mutex as SyncMutex;
use tempfile::TempDir;

use super::*;
use crate::api::{ConnectionOrder, RequestContext, RequestHead, ServerPhase};
use crate::config::server::file::keys;
use crate::config::server::{GivenFlags, HostInfo, load, reload};
use crate::model::Repository;
use crate::server::checks::ListenerChecks;
use crate::server::{Addresses, AdminOptions, Drained, Listeners, RunningServer, ServerOptions, Stop, local, start};
use crate::spans::{Exporter, TracedCall, Tracer};
use crate::telemetry::{Metrics, Surface};

const PATH: &str = "/etc/sequor.toml";

/// Each key that a reload applies, with a value that differs from that of [`Rig::base`].
const NEW_VALUES: [(&str, &str); 40] = [
    ("strict_readiness", "false"),
    ("state.ready_without_lease", "false"),
    ("model.auto_complete", "false"),
    ("model.default_max_batch_size", "7"),
    ("http.allowed_origins", "[\"http://example.org\"]"),
    ("http.restricted_api", "[\"trace:k=v\"]"),
    ("grpc.keepalive", "\"7s\""),
    ("grpc.restricted_protocol", "[\"trace:k=v\"]"),
    ("admin.keys_file", "\"FOLDER/other\""),
    ("admin.upload", "true"),
    ("admin.peek", "true"),
    ("admin.capture", "\"7MiB\""),
    ("auth.keys_file", "\"FOLDER/other\""),
    ("auth.restricted", "[\"trace\"]"),
    ("limits.in_flight", "7"),
    ("limits.queued", "\"1GiB\""),
    ("limits.state", "\"7MiB\""),
    ("limits.stream_unread", "\"7MiB\""),
    ("limits.instances", "7"),
    ("limits.slots", "7"),
    ("limits.inputs", "7"),
    ("limits.outputs", "7"),
    ("limits.parameters", "7"),
    ("limits.sequences_per_peer", "7"),
    ("limits.in_flight_per_peer", "7"),
    ("limits.queued_per_peer", "\"1GiB\""),
    ("connections.max", "7"),
    ("connections.per_peer", "7"),
    ("connections.reserved", "7"),
    ("connections.first_byte", "\"7s\""),
    ("connections.head", "\"7s\""),
    ("connections.body", "\"7s\""),
    ("connections.write", "\"7s\""),
    ("connections.idle", "\"7s\""),
    ("connections.streams", "7"),
    ("drain.announce", "\"7s\""),
    ("drain.finish", "\"7s\""),
    ("drain.exit_timeout", "\"7s\""),
    ("log.level", "\"debug\""),
    ("otlp.sample", "1.0"),
];

/// A file that the test writes in memory.
#[derive(Debug, Default)]
struct TestFile {
    text: SyncMutex<String>,
    /// Number of reads that have begun.
    reads: AtomicUsize,
    /// Whether reads hang.
    hangs: AtomicBool,
}

fn host() -> HostInfo {
    HostInfo { name: "here".to_owned(), memory: None }
}

impl TestFile {
    fn load(&self) -> Settings {
        load(Some((Path::new(PATH), &self.text.lock())), &|_| None, &GivenFlags::default(), &host()).expect("settings")
    }
}

impl SettingsSource for TestFile {
    fn read(&self, running: &Settings) -> Result<Reloaded, String> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let text = self.text.lock().clone();
        let reloaded = reload(Some((Path::new(PATH), &text)), &|_| None, &GivenFlags::default(), &host(), running);
        reloaded.map_err(|faults| faults.iter().map(|f| format!("{} {}", f.at, f.what)).collect::<Vec<_>>().join("\n"))
    }

    fn shown(&self, settings: &Settings) -> Vec<Shown> {
        settings.shown.clone()
    }
}

/// A server with settings of a file, and a model that does not load.
struct Rig {
    file: Arc<TestFile>,
    folder: TempDir,
    repository: Repository,
    tracer: Tracer,
    running: RunningServer,
    reloader: Arc<ConfigReloader>,
    stop: tokio::sync::mpsc::Sender<Stop>,
}

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        fs_err::write(folder.path().join("keys"), "anna:one").expect("written");
        fs_err::write(folder.path().join("other"), "anna:two").expect("written");
        let file = Arc::new(TestFile::default());
        *file.text.lock() = text(&Rig::base(folder.path()));
        let (settings, metrics, repository) = (file.load(), Metrics::new(false), Repository::empty());
        repository.load(&folder.path().join("absent"));
        let (tracer, _) =
            Exporter::start(settings.otlp.as_ref().expect("an endpoint"), metrics.spans()).expect("spans");
        let access = super::access::open(&settings).expect("keys");
        let options = ServerOptions {
            limits: settings.limits,
            connections: settings.connections,
            drain: settings.drain,
            admin: AdminOptions { keys: access.operator_keys, ..AdminOptions::default() },
            client_keys: access.client_keys,
            tracer: Some(tracer.clone()),
            reload: Some(ReloadOptions { running: settings, source: Arc::<TestFile>::clone(&file) }),
            ..ServerOptions::default()
        };
        let port = Some(local(0));
        let wanted = Addresses { http: port, grpc: port, metrics: port, admin: port };
        let (stop, stopped) = tokio::sync::mpsc::channel(2);
        let running = start(Listeners::bind(&wanted).expect("ports"), options, repository.clone(), metrics, stopped);
        let reloader = running.reloader().expect("a reloader");
        Rig { file, folder, repository, tracer, running, reloader, stop }
    }

    /// The settings at the start.
    fn base(folder: &Path) -> BTreeMap<&'static str, String> {
        let keys = format!("\"{}\"", folder.join("keys").display());
        let zero = "0.0".to_owned();
        let endpoint = "\"http://127.0.0.1:1\"".to_owned();
        BTreeMap::from([
            ("auth.keys_file", keys.clone()),
            ("admin.keys_file", keys),
            ("otlp.endpoint", endpoint),
            ("otlp.sample", zero),
        ])
    }

    /// Reloads with these values over those of the start.
    async fn reload(&self, values: &[(&'static str, &str)]) -> Result<ReloadReport, ReloadRefusal> {
        let mut all = Rig::base(self.folder.path());
        let folder = self.folder.path().display().to_string();
        all.extend(values.iter().map(|(key, value)| (*key, value.replace("FOLDER", &folder))));
        *self.file.text.lock() = text(&all);
        ConfigControl::reload(&*self.reloader, &caller()).await
    }

    /// What the component does or holds that the key is for.
    fn probe(&self, key: &str) -> String {
        let parts = &*self.reloader.live.0;
        let (limits, draft) = (parts.api.limits(), self.repository.draft_options());
        let (of_request, connections, drain) = (limits.of_request(), parts.connections.get(), **parts.drain.load());
        let of_connections = connections.connections;
        match key {
            "strict_readiness" => self.repository.ready().to_string(),
            "state.ready_without_lease" => self.repository.ready_without_lease().to_string(),
            "model.auto_complete" => draft.auto_complete.to_string(),
            "model.default_max_batch_size" => draft.default_max_batch_size.to_string(),
            "limits.instances" => draft.limits.instances.to_string(),
            "limits.slots" => draft.limits.slots.to_string(),
            "http.allowed_origins" => {
                let page = [("origin", "http://example.org"), ("content-type", "application/json"), KEY];
                admitted(&parts.checks.http, "/v2/logging", &page)
            }
            "http.restricted_api" => admitted(&parts.checks.http, "/v2/trace/setting", &[KEY]),
            "grpc.restricted_protocol" => {
                admitted(&parts.checks.grpc, "/inference.GRPCInferenceService/TraceSetting", &[KEY])
            }
            "auth.keys_file" => admitted(&parts.checks.http, "/v2/models/m/infer", &[KEY]),
            "auth.restricted" => admitted(&parts.checks.grpc, "/v2/models/m/infer", &[]),
            "admin.keys_file" => admitted(&parts.checks.admin, "/admin/config", &[KEY]),
            "admin.upload" => format!("{} {:?}", parts.rights.upload(), self.repository.upload_limit()),
            "admin.peek" => parts.rights.peek().to_string(),
            "admin.capture" => parts.rights.capture().to_string(),
            "limits.in_flight" => limits.in_flight().to_string(),
            "limits.queued" => parts.api.queued().limit().to_string(),
            "limits.state" => self.repository.state_bytes().1.to_string(),
            "limits.stream_unread" => limits.stream_unread().to_string(),
            "limits.inputs" => of_request.inputs.to_string(),
            "limits.outputs" => of_request.outputs.to_string(),
            "limits.parameters" => format!("{} {}", of_request.parameters, limits.parameters()),
            "limits.sequences_per_peer" => format!("{:?}", limits.sequences_per_peer()),
            "limits.in_flight_per_peer" => format!("{:?}", limits.in_flight_per_peer()),
            "limits.queued_per_peer" => format!("{:?}", limits.queued_per_peer()),
            "grpc.keepalive" => format!("{:?}", connections.keepalive),
            "connections.max" => parts.limits.clients.limits().0.to_string(),
            "connections.per_peer" => parts.limits.clients.limits().1.to_string(),
            "connections.reserved" => format!("{:?} {:?}", parts.limits.admin.limits(), parts.limits.metrics.limits()),
            "connections.first_byte" => of_connections.first_byte.to_string(),
            "connections.head" => of_connections.head.to_string(),
            "connections.body" => of_connections.body.to_string(),
            "connections.write" => of_connections.write.to_string(),
            "connections.idle" => of_connections.idle.to_string(),
            "connections.streams" => of_connections.streams.to_string(),
            "drain.announce" => drain.announce.to_string(),
            "drain.finish" => drain.finish.to_string(),
            "drain.exit_timeout" => drain.exit_timeout.to_string(),
            "log.level" => format!("{:?}", log::levels()),
            "otlp.sample" => {
                let call = TracedCall { surface: Surface::KserveGrpc, is_stream: false, client: None };
                self.tracer.begin(None, call, "m").is_some().to_string()
            }
            other => panic!("{other} is marked as reloaded, and no component is asked for it"),
        }
    }
}

const KEY: (&str, &str) = ("sequor-key", "one");

fn caller() -> Caller {
    Caller { name: "anna".to_owned(), address: local(1) }
}

fn text(values: &BTreeMap<&'static str, String>) -> String {
    values.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

/// Whether a POST request with these headers passes the checks.
fn admitted(checks: &ListenerChecks, path: &str, headers: &[(&'static str, &'static str)]) -> String {
    let of =
        |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let headers: HeaderMap = headers.iter().map(of).collect();
    let uri = path.parse().expect("a path");
    let mut context = RequestContext::new(&Arc::new(caller()), &ConnectionOrder::default(), &headers);
    let head = RequestHead { method: &Method::POST, uri: &uri, headers: &headers };
    checks.of_connection().check(&mut context, &head).is_ok().to_string()
}

#[tokio::test]
async fn every_key_that_is_marked_reaches_its_component() {
    log::init(crate::config::server::file::LogFormat::Text, "info", None).expect("the log of this process");
    let marked: BTreeSet<&str> = keys().filter(|key| key.reload).map(|key| key.path).collect();
    assert_eq!(marked, NEW_VALUES.iter().map(|(key, _)| *key).collect());
    let rig = Rig::new();
    rig.reload(&[]).await.expect("reloaded");
    for (key, value) in NEW_VALUES {
        let before = rig.probe(key);
        let report = rig.reload(&[(key, value)]).await.expect(key);
        assert_eq!((&report.changed[..], report.pending.len()), (&[key][..], 0), "{key}");
        assert_ne!(rig.probe(key), before, "{key}");
        rig.reload(&[]).await.expect(key);
        assert_eq!(rig.probe(key), before, "{key}: back again");
    }
}

#[tokio::test]
async fn the_audit_line_of_a_reload_names_every_changed_key() {
    let rig = Rig::new();
    let values: Vec<_> = NEW_VALUES.into_iter().filter(|(key, _)| *key != "log.level").collect();
    let report = rig.reload(&values).await.expect("reloaded");
    let last = &rig.reloader.live.api().changes().last()[0];
    assert_eq!((report.changed.len(), last.on.as_str()), (values.len(), report.changed.join(", ").as_str()));
}

#[tokio::test]
async fn a_refused_reload_changes_nothing_and_says_why() {
    let rig = Rig::new();
    let figures = || {
        let text = rig.running_metrics();
        [
            "sequor_config_reloads_total{outcome=\"applied\"}",
            "sequor_config_reloads_total{outcome=\"refused\"}",
            "sequor_config_last_reload_successful",
            "sequor_config_settings_pending_restart",
        ]
        .map(|name| text.lines().find_map(|line| line.strip_prefix(name)).map(|n| n.trim().to_owned()).expect(name))
    };
    assert_eq!(figures(), ["0", "0", "1", "0"]);
    let before = rig.probe("limits.in_flight");
    let refused = rig.reload(&[("limits.in_flight", "7"), ("limits.inputs", "0")]).await.unwrap_err();
    let ReloadRefusal::Invalid(why) = &refused else { panic!("{refused}") };
    assert!(why.starts_with("/etc/sequor.toml:4:8: limits.inputs must be more than 0"), "{why}");
    assert_eq!((rig.probe("limits.in_flight"), figures()), (before.clone(), ["0", "1", "0", "0"].map(str::to_owned)));
    for (key, value, want) in [
        ("auth.keys_file", "\"/nowhere\"", "/etc/sequor.toml:2:6: auth.keys_file: "),
        ("log.level", "\"loud\"", "/etc/sequor.toml:4:5: log.level: \"loud\" is not a log level"),
    ] {
        let refused = rig.reload(&[(key, value), ("limits.in_flight", "7")]).await.unwrap_err().to_string();
        assert!(refused.contains(want), "{refused}");
        assert_eq!(rig.probe("limits.in_flight"), before);
    }
    rig.reload(&[("limits.in_flight", "7"), ("http.port", "1")]).await.expect("reloaded");
    assert_eq!((rig.probe("limits.in_flight").as_str(), figures()), ("7", ["1", "3", "1", "1"].map(str::to_owned)));
    let waiting: Vec<Shown> = rig.reloader.running().into_iter().filter(|row| row.pending.is_some()).collect();
    assert_eq!((waiting.len(), waiting[0].key, waiting[0].pending.as_deref()), (1, "http.port", Some("1")));
    let last = &rig.reloader.live.api().changes().last()[0];
    assert_eq!((last.by.as_str(), last.what, last.on.as_str()), ("anna", "config reload", "limits.in_flight"));
}

impl Rig {
    fn running_metrics(&self) -> String {
        self.reloader.live.api().metrics().encode()
    }
}

#[tokio::test]
async fn a_server_that_loads_models_reloads_and_one_that_drains_does_not() {
    let rig = Rig::new();
    let loading = rig.repository.loading();
    rig.reload(&[("limits.slots", "7"), ("limits.in_flight", "7")]).await.expect("reloaded");
    assert_eq!((rig.probe("limits.slots").as_str(), rig.probe("limits.in_flight").as_str()), ("7", "7"));
    drop(loading);
    rig.reloader.live.api().set_phase(ServerPhase::Announcing);
    assert_eq!(rig.reload(&[("limits.in_flight", "8")]).await, Err(ReloadRefusal::Draining));
    assert_eq!(rig.probe("limits.in_flight"), "7");
}

#[tokio::test]
async fn a_drain_takes_the_times_that_were_reloaded() {
    let rig = Rig::new();
    // The runner ends a test that waits an hour.
    rig.reload(&[("drain.announce", "\"3600s\""), ("drain.exit_timeout", "\"3600s\"")]).await.expect("reloaded");
    rig.reload(&[("drain.announce", "\"0s\""), ("drain.finish", "\"0s\"")]).await.expect("reloaded");
    rig.stop.send(Stop::Drain).await.expect("sent");
    assert_eq!(rig.running.join().await, Drained::Clean);
}

/// Waits until this many reads of the file have begun.
async fn begun(file: &TestFile, reads: usize) {
    while file.reads.load(Ordering::SeqCst) < reads {
        tokio::task::yield_now().await;
    }
}

impl Rig {
    fn spawn_reload(&self) -> tokio::task::JoinHandle<Result<ReloadReport, ReloadRefusal>> {
        let (reloader, caller) = (Arc::clone(&self.reloader), caller());
        tokio::spawn(async move { ConfigControl::reload(&*reloader, &caller).await })
    }
}

#[tokio::test]
async fn reloads_run_one_after_the_other() {
    let rig = Rig::new();
    let file = Arc::clone(&rig.file);
    file.hangs.store(true, Ordering::SeqCst);
    let (first, second) = (rig.spawn_reload(), rig.spawn_reload());
    begun(&file, 1).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(file.reads.load(Ordering::SeqCst), 1);
    file.hangs.store(false, Ordering::SeqCst);
    assert!(first.await.expect("ended").is_ok() && second.await.expect("ended").is_ok());
    assert_eq!(file.reads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_file_that_cannot_be_read_refuses_the_reload_and_later_ones_work() {
    let rig = Rig::new();
    let file = Arc::clone(&rig.file);
    file.hangs.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let mut running = rig.reloader.running.lock().await;
        let refused = rig.reloader.read(&mut running, Duration::from_millis(50)).await.unwrap_err().to_string();
        assert!(refused.contains("were not read within 50ms"), "{refused}");
    }
    assert_eq!(file.reads.load(Ordering::SeqCst), 1, "one thread hangs at most");
    file.hangs.store(false, Ordering::SeqCst);
    rig.reload(&[("limits.in_flight", "7")]).await.expect("reloaded");
    assert_eq!(rig.probe("limits.in_flight"), "7");
}
