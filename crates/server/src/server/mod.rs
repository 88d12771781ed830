//! The server: sockets, their tasks, and the drain. This module does not interpret requests.
//!
//! # Layout
//!
//! - [`listeners`]: the ports, bound before anything else; [`holder`] finds the process that has a port already.
//! - [`connection`]: one connection, HTTP/1.1 or HTTP/2, in one task, which owns a [`crate::executor`] · `activity`: whether it is active.
//! - [`connection_limit`], [`descriptors`]: the maximum number of connections · `first_bytes`, `request_body`: timeouts for arriving data ·
//!   `metered`: messages of upgraded connections · `write_timeout`, `stalled`: clients that stop reading.
//! - `dispatcher`: handles every request: its context, the listener's checks, its service · `response_body`: its answer, until the client has
//!   taken it.
//! - [`tls`]: certificates · `handshakes`: those that fail · [`keys`]: keys of operators and clients · `wrong_keys`: the log of wrong keys · `guard`: checks callers of the
//!   admin listener · `client_keys`: checks callers of the clients' listeners · `origin`: the calls that web pages may make · `restricted`:
//!   restricted groups of endpoints · `changed`: finds out whether files have changed.
//! - `checks`: the checks of all listeners · [`access`]: what the settings say about callers · `connection_options`: the options of new connections ·
//!   `live`: all that a reload of the configuration changes · [`reload`]: the reload.
//! - [`StreamServer`]: serves clients over byte streams that the caller provides.
//! - [`drain`]: the phases of a stop, and the signals that ask for it · `shutdown`: the part of it that connections see.
//! - [`poll`]: scans the model repository periodically · [`systemd`]: reports to a service manager.

pub mod access;
mod activity;
mod changed;
mod checks;
mod client_keys;
pub mod connection;
pub mod connection_limit;
mod connection_options;
pub mod descriptors;
mod dispatcher;
pub mod drain;
mod first_bytes;
mod guard;
mod handshakes;
pub mod holder;
mod in_memory;
pub mod keys;
pub mod listeners;
mod live;
mod metered;
mod origin;
pub mod poll;
pub mod reload;
mod request_body;
mod response_body;
mod restricted;
mod shutdown;
mod stalled;
pub mod systemd;
pub mod tls;
mod write_timeout;
mod wrong_keys;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use checks::Access;
pub use client_keys::ClientKeys;
pub use drain::{Drained, Stop};
pub use in_memory::StreamServer;
pub use keys::ApiKeys;
pub use listeners::{Addresses, BindError, Listeners};
pub use live::{LiveServer, draft_options};
pub use reload::{ConfigReloader, ReloadOptions, SettingsSource};
pub use tls::{Tls, TlsFiles};

use self::dispatcher::{Dispatcher, InferenceServices};
use crate::api::admin::{self, Admin};
use crate::api::kserve::Kserve;
use crate::api::kserve::infer::InferService;
use crate::api::tfs::Tfs;
use crate::api::tfs::predict::PredictService;
use crate::api::{self, Api, Check};
use crate::config::server::access::RestrictedGroups;
use crate::config::server::settings::SharedMemory;
use crate::config::server::{Connections, Drain, Grpc, ServerLimits};
use crate::model::Repository;
use crate::spans::Tracer;
use crate::telemetry::{Metrics, TlsListener, metrics};
use checks::{Checks, ListenerChecks, ListenerFacts};
use connection::ConnectionSetup;
use connection_limit::{ConnectionLimit, ConnectionPermit};
use connection_options::{ConnectionOptions, LiveConnectionOptions};
use live::{ConnectionLimits, LiveParts};
use request_body::BodyLimits;
use shutdown::Shutdown;
use tls::ListenerTls;
use wrong_keys::WrongKeyCounters;

/// The setting of the maximum size of a request.
const LIMITS_REQUEST: &str = "limits.request";

#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub limits: ServerLimits,
    pub connections: Connections,
    /// The system shared memory that clients may register.
    pub shared_memory: SharedMemory,
    pub drain: Drain,
    /// Maximum silence of an HTTP/2 or WebSocket connection before the server sends a ping; zero sends none.
    pub keepalive: Duration,
    /// TLS for all listeners except that of the metrics.
    pub tls: Option<Tls>,
    pub admin: AdminOptions,
    /// Origins whose web pages may call the clients' listeners, besides the server's own.
    pub allowed_origins: Vec<String>,
    /// Groups of endpoints that need a header.
    pub restricted: RestrictedGroups,
    /// If `None`, every caller may call all endpoints that are not restricted.
    pub client_keys: Option<ClientKeys>,
    /// Additional checks for every request of every listener.
    pub checks: Vec<Arc<dyn Check>>,
    /// `None`: requests are not traced.
    pub tracer: Option<Tracer>,
    /// `None`: the configuration cannot be reloaded.
    pub reload: Option<ReloadOptions>,
}

/// The options of the admin listener.
#[derive(Debug, Clone, Default)]
pub struct AdminOptions {
    /// If `None`, every caller that reaches the listener may do everything.
    pub keys: Option<ApiKeys>,
    pub serves: admin::AdminSetup,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let (limits, drain) = (ServerLimits::default(), Drain::default());
        let keepalive = Grpc::default().keepalive.0;
        ServerOptions {
            limits,
            shared_memory: SharedMemory::On,
            drain,
            connections: Connections::default(),
            keepalive,
            tls: None,
            admin: AdminOptions::default(),
            allowed_origins: Vec::new(),
            restricted: RestrictedGroups::default(),
            client_keys: None,
            checks: Vec::new(),
            tracer: None,
            reload: None,
        }
    }
}

impl ServerOptions {
    fn access(&self) -> Access {
        Access {
            operator_keys: self.admin.keys.clone(),
            client_keys: self.client_keys.clone(),
            allowed_origins: self.allowed_origins.clone(),
            restricted: self.restricted.clone(),
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct RunningServer {
    /// The addresses of the listeners, with the ports that the system chose.
    pub addresses: Addresses,
    drained: JoinHandle<Drained>,
    opened: CancellationToken,
    reloader: Option<Arc<ConfigReloader>>,
}

impl RunningServer {
    /// The reloads of the configuration, if it can be reloaded.
    pub fn reloader(&self) -> Option<Arc<ConfigReloader>> {
        self.reloader.clone()
    }

    /// Accepts the connections on sockets of the service manager. Call it once the models are loaded.
    pub fn open(&self) {
        self.opened.cancel();
    }

    /// Like [`RunningServer::join`], for a caller that waits for other events as well. Do not call it again after it has returned.
    pub async fn stopped(&mut self) -> Drained {
        (&mut self.drained).await.unwrap_or(Drained::Cut)
    }

    /// Waits until the server has stopped.
    pub async fn join(self) -> Drained {
        self.drained.await.unwrap_or(Drained::Cut)
    }
}

/// Starts a server on these ports. It serves until `stop` requests a stop. If `stop` is closed, it serves for ever.
pub fn start(
    listeners: Listeners,
    options: ServerOptions,
    repository: Repository,
    metrics: Metrics,
    stop: mpsc::Receiver<Stop>,
) -> RunningServer {
    let addresses = listeners.addresses();
    let asks_certificates = options.tls.as_ref().is_some_and(Tls::asks_clients);
    let always = options.checks.clone();
    let wrong_keys = WrongKeyCounters::default();
    let facts = ListenerFacts { always, asks_certificates, http: addresses.http, grpc: addresses.grpc, wrong_keys };
    let checks = Checks::new(facts, &options.access());
    let api = Api::traced(repository, metrics, options.limits, options.tracer.clone());
    let kserve = Kserve::new(&api, options.shared_memory);
    let shutdown = Shutdown::default();
    let ServerOptions { drain, tls, admin, checks: always, connections, keepalive, reload, .. } = options;
    let (drain, drain_asked) = (Arc::new(ArcSwap::from_pointee(drain)), Arc::new(Notify::new()));
    let admin = Admin::new(&api, admin.serves, Arc::clone(&drain_asked));
    let options = ConnectionOptions { connections, keepalive };
    let tasks = (tls, shutdown.clone());
    let setups = ListenerSetups::new((&api, &kserve, &admin), &checks, always, options, tasks);
    let live = LiveParts {
        api: api.clone(),
        checks,
        connections: LiveConnectionOptions::new(options),
        limits: setups.limits(),
        drain: Arc::clone(&drain),
        rights: Arc::clone(admin.rights()),
    };
    let (opened, options) = (CancellationToken::new(), live.connections.clone());
    let reloader = reload.map(|options| Arc::new(ConfigReloader::new(LiveServer(Arc::new(live)), options)));
    if let Some(reloader) = &reloader {
        admin.configure(Arc::<ConfigReloader>::clone(reloader));
    }
    setups.accept(listeners, &opened, &options);
    let drained = tokio::spawn(drain::run(api, drain, shutdown, stop, drain_asked));
    RunningServer { addresses, drained, opened, reloader }
}

/// What the connections of each listener begin with.
struct ListenerSetups {
    http: ConnectionSetup,
    grpc: ConnectionSetup,
    metrics: ConnectionSetup,
    admin: ConnectionSetup,
}

impl ListenerSetups {
    /// `always`: the checks of every listener, also of that of the metrics.
    fn new(
        (api, kserve, admin): (&Api, &Kserve, &Admin),
        checks: &Checks,
        always: Vec<Arc<dyn Check>>,
        options: ConnectionOptions,
        (tls, shutdown): (Option<Tls>, Shutdown),
    ) -> ListenerSetups {
        let ConnectionOptions { connections, keepalive } = options;
        // The admin listener does not count queued bytes, so that operators are served even if clients have filled the queue.
        let (message, stall) = (api.limits().request(), connections.body.0);
        let bodies = BodyLimits { queued: None, message, limited_by: LIMITS_REQUEST, stall };
        let limit = |max, per_peer| ConnectionLimit::new(max, per_peer, api.metrics().connections().clone());
        let reserved = |per_peer| limit(connections.reserved, per_peer);
        // Nothing counts the bytes there either, and every peer may call.
        let (message, limited_by) =
            (api::health::LONGEST_PROBE, "a fixed limit of health probes at the metrics listener");
        let of_probes = BodyLimits { message, limited_by, ..bodies.clone() };
        let scrapes = Dispatcher::new(None, metrics_app(api.clone()), ListenerChecks::new(always), of_probes);
        let metrics = ConnectionSetup {
            dispatcher: scrapes,
            keepalive,
            tls: None,
            shutdown,
            options: connections,
            limit: reserved(live::scrapes_per_peer(&connections)),
            metrics: api.metrics().clone(),
        };
        let dispatcher = clients((api, kserve), checks.http.clone(), connections.body.0);
        let limit = limit(connections.max, connections.per_peer);
        let tls = |listener| tls.as_ref().map(|tls| ListenerTls::new(tls, listener, api.metrics()));
        let http = ConnectionSetup { dispatcher, tls: tls(TlsListener::Http), limit, ..metrics.clone() };
        let dispatcher = http.dispatcher.with_checks(checks.grpc.clone());
        let grpc = ConnectionSetup { dispatcher, tls: tls(TlsListener::Grpc), ..http.clone() };
        let dispatcher = Dispatcher::new(None, admin_app(admin), checks.admin.clone(), bodies);
        let limit = reserved(connections.reserved);
        let admin = ConnectionSetup { dispatcher, tls: tls(TlsListener::Admin), limit, ..http.clone() };
        ListenerSetups { http, grpc, metrics, admin }
    }

    fn limits(&self) -> ConnectionLimits {
        let [clients, metrics, admin] = [&self.http, &self.metrics, &self.admin].map(|setup| setup.limit.clone());
        ConnectionLimits { clients, metrics, admin }
    }

    /// Accepts the connections of all listeners. Those of clients wait until `opened` if their sockets are of the service manager.
    fn accept(self, listeners: Listeners, opened: &CancellationToken, options: &LiveConnectionOptions) {
        let Listeners { http, grpc, metrics, admin, waits } = listeners;
        let at_once = CancellationToken::new();
        at_once.cancel();
        let clients = if waits { opened } else { &at_once };
        let all = [
            (http, self.http, clients),
            (grpc, self.grpc, clients),
            (metrics, self.metrics, &at_once),
            (admin, self.admin, &at_once),
        ];
        for (listener, setup, from) in all {
            let Some(listener) = listener else { continue };
            let (from, shutdown, options) = (from.clone(), setup.shutdown.clone(), options.clone());
            shutdown.clone().connections.spawn(async move {
                tokio::select! {
                    () = from.cancelled() => accept(listener, setup, options).await,
                    () = shutdown.closing.cancelled() => {}
                }
            });
        }
    }
}

/// The dispatcher of a clients' listener, with these checks.
fn clients((api, kserve): (&Api, &Kserve), checks: ListenerChecks, stall: Duration) -> Dispatcher {
    let (queued, message) = (Some(api.queued().clone()), api.limits().request());
    let bodies = BodyLimits { queued, message, limited_by: LIMITS_REQUEST, stall };
    let tfs = Tfs::new(api);
    let (infer, predict) = (InferService::new(kserve), PredictService::new(&tfs));
    let services = InferenceServices { api: api.clone(), kserve: infer, tfs: predict };
    Dispatcher::new(Some(services), app(api, kserve, &tfs), checks, bodies)
}

/// The routes for clients. They are the same on every port except that of the metrics.
pub fn app(api: &Api, kserve: &Kserve, tfs: &Tfs) -> Router {
    let grpc = tonic::service::Routes::new(api::kserve::grpc::service(kserve))
        .add_service(api::tfs::grpc::prediction_service(tfs))
        .add_service(api::tfs::grpc::model_service(tfs))
        .add_service(api::health::service(api));
    let http = api::kserve::http::routes(kserve).merge(api::tfs::http::routes(tfs));
    let grpc = reflected(grpc).into_axum_router().layer(from_fn(api::kserve::http::named_refusal));
    let grpc = grpc.merge(api::kserve::load_call::route(kserve));
    grpc.merge(http).fallback(api::kserve::http::not_found)
}

/// The routes for operators.
fn admin_app(admin: &Admin) -> Router {
    admin::routes(admin).fallback(api::kserve::http::not_found)
}

/// Adds the reflection service, in both of its versions.
fn reflected(mut grpc: tonic::service::Routes) -> tonic::service::Routes {
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(sequor_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(sequor_proto::TENSORFLOW_DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    match described().build_v1() {
        Ok(service) => grpc = grpc.add_service(service),
        Err(error) => tracing::error!(%error, "reflection is not served"),
    }
    if let Ok(service) = described().build_v1alpha() {
        grpc = grpc.add_service(service);
    }
    grpc
}

/// The routes of the metrics listener. Probes are answered here as well, because they cannot present a client's certificate.
fn metrics_app(api: Api) -> Router {
    let over_grpc = tonic::service::Routes::new(api::health::probes(&api)).into_axum_router();
    let health = over_grpc.merge(api::kserve::http::health(&api));
    let scrape = move || {
        api.repository().observe();
        api.peers().observe();
        api.observe();
        let text = api.metrics().encode();
        async move { ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text) }
    };
    let elsewhere = || async {
        let error = "Not Found: the metrics are at /metrics, health is at /v2/health/live and /v2/health/ready";
        (StatusCode::NOT_FOUND, Json(json!({ "error": error })))
    };
    health.route("/metrics", get(scrape)).fallback(elsewhere)
}

async fn accept(listener: TcpListener, serving: ConnectionSetup, options: LiveConnectionOptions) {
    let shutdown = serving.shutdown.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.closing.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(permit) = admit(&serving, peer) else { continue };
                shutdown.connections.spawn(connection::serve(stream, peer, permit, serving.with(options.get())));
            }
            Err(error) => refuse_a_while(&error).await,
        }
    }
}

/// Counts a connection. If there are too many, returns `None`, and the connection is closed.
fn admit(serving: &ConnectionSetup, peer: SocketAddr) -> Option<ConnectionPermit> {
    let admitted = serving.limit.admit(peer).inspect_err(|reason| {
        tracing::debug!(%peer, limit = reason.name(), "connection closed: too many are open");
        serving.metrics.connection_closed(*reason);
    });
    admitted.ok()
}

/// Pauses after a failed accept, for example if no file descriptors are left. If the connection went away before it was accepted, there is
/// no pause.
async fn refuse_a_while(error: &std::io::Error) {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        return;
    }
    tracing::warn!(%error, "no connection could be taken");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// A loopback address, for tests and for callers that choose their own address.
pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

#[cfg(test)]
mod tests;
