//! The server: sockets, what runs on them, and the way out. What requests mean is not known here.
//!
//! # Layout
//!
//! - [`listeners`]: the ports, bound before anything else is done; [`holder`] says who has a port that is taken.
//! - [`connection`]: one connection, HTTP/1.1 or HTTP/2, in one task, which owns a [`crate::executor`]; `activity`: whether it has any.
//! - [`connection_limit`], [`descriptors`]: how many connections there may be · `first_bytes`, `request_body`: what must arrive in time · `metered`: messages of upgraded connections · `write_timeout`: clients that stop reading.
//! - `dispatcher`: the one way of every request: its context, the checks of the listener, where it goes.
//! - [`tls`]: certificates · [`keys`]: keys of operators and clients · `wrong_keys`: the log of wrong ones · `guard`: who may call what is for operators · `client_keys`: the same for clients · `origin`: what web pages may call · `restricted`: groups of endpoints that need a header · `changed`: files that are read again.
//! - [`StreamServer`]: the same for clients over byte streams of the caller's own.
//! - [`drain`]: the phases of going out, and the signals that ask for it · `shutdown`: what connections learn of it.
//! - [`poll`]: looks at the model repository again and again · [`systemd`]: reports to a service manager.

mod activity;
mod changed;
mod client_keys;
pub mod connection;
pub mod connection_limit;
pub mod descriptors;
mod dispatcher;
pub mod drain;
mod first_bytes;
mod guard;
pub mod holder;
mod in_memory;
pub mod keys;
pub mod listeners;
mod metered;
mod origin;
pub mod poll;
mod request_body;
mod restricted;
mod shutdown;
pub mod systemd;
pub mod tls;
mod write_timeout;
mod wrong_keys;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use client_keys::ClientKeys;
pub use drain::{Drained, Stop};
pub use in_memory::StreamServer;
pub use keys::ApiKeys;
pub use listeners::{Addresses, BindError, Listeners};
pub use tls::{Tls, TlsFiles};

use self::dispatcher::{Dispatcher, InferenceServices};
use crate::api::admin::{self, Admin};
use crate::api::kserve::Kserve;
use crate::api::kserve::infer::InferService;
use crate::api::tfs::Tfs;
use crate::api::tfs::predict::PredictService;
use crate::api::{self, Api, Check};
use crate::config::server::access::{RestrictedGroups, WireProtocol};
use crate::config::server::settings::SharedMemory;
use crate::config::server::{Connections, Drain, Grpc, ServerLimits};
use crate::model::Repository;
use crate::telemetry::{Metrics, metrics};
use client_keys::ClientKeyCheck;
use connection::ConnectionSetup;
use connection_limit::{ConnectionLimit, ConnectionPermit};
use guard::Guard;
use origin::OriginCheck;
use request_body::BodyLimits;
use restricted::RestrictedCheck;
use shutdown::Shutdown;

#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub limits: ServerLimits,
    pub connections: Connections,
    /// Which system shared memory clients may register.
    pub shared_memory: SharedMemory,
    pub drain: Drain,
    /// How often a silent HTTP/2 client is asked whether it is there; zero is never.
    pub keepalive: Duration,
    /// Of all listeners but that of the metrics.
    pub tls: Option<Tls>,
    pub admin: AdminOptions,
    /// Origins whose web pages may call the clients' listeners, beside the server's own.
    pub allowed_origins: Vec<String>,
    /// Groups of endpoints that need a header.
    pub restricted: RestrictedGroups,
    /// Without keys, every caller may call what is not restricted.
    pub client_keys: Option<ClientKeys>,
    /// Conditions that every request of every listener must meet.
    pub checks: Vec<Arc<dyn Check>>,
}

/// The admin listener: what it serves, and who may call it.
#[derive(Debug, Clone, Default)]
pub struct AdminOptions {
    /// Without keys, every caller that reaches the listener may do everything.
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
        }
    }
}

/// A server that serves.
#[derive(Debug)]
pub struct RunningServer {
    /// Where it does, with the ports that the system chose.
    pub addresses: Addresses,
    drained: JoinHandle<Drained>,
    opened: CancellationToken,
}

impl RunningServer {
    /// Takes the connections that wait at sockets of the service manager. The models are loaded.
    pub fn open(&self) {
        self.opened.cancel();
    }

    /// As [`RunningServer::join`], for a caller that waits for something else as well. Not to be called again once it has returned.
    pub async fn stopped(&mut self) -> Drained {
        (&mut self.drained).await.unwrap_or(Drained::Cut)
    }

    /// Waits until the server has gone out.
    pub async fn join(self) -> Drained {
        self.drained.await.unwrap_or(Drained::Cut)
    }
}

/// Serves on these ports until `stop` says otherwise. A closed `stop` never does.
pub fn start(
    listeners: Listeners,
    options: ServerOptions,
    repository: Repository,
    metrics: Metrics,
    stop: mpsc::Receiver<Stop>,
) -> RunningServer {
    let addresses = listeners.addresses();
    let [http, grpc] = [WireProtocol::Http, WireProtocol::Grpc].map(|listener| client_checks(&options, listener));
    let api = Api::new(repository, metrics, options.limits);
    let kserve = Kserve::new(&api, options.shared_memory);
    let shutdown = Shutdown::default();
    let ServerOptions { drain, tls, admin, checks, connections, keepalive, .. } = options;
    let drain_asked = Arc::new(Notify::new());
    let guard = Guard::new(admin.keys, tls.as_ref().is_some_and(Tls::asks_clients));
    let for_operators = admin_app(&Admin::new(&api, admin.serves, Arc::clone(&drain_asked)));
    // Operators are served also when clients have filled the queue.
    let message = api.limits().request.to_usize();
    let bodies = BodyLimits { queued: None, message, stall: connections.body.0 };
    let guarded = [checks.clone(), vec![Arc::new(guard) as Arc<dyn Check>]].concat();
    let for_operators = Dispatcher::new(None, for_operators, guarded, bodies.clone());
    let scrapes = Dispatcher::new(None, metrics_app(api.clone()), checks.clone(), bodies);
    let limit = |max, per_peer| ConnectionLimit::new(max, per_peer, api.metrics().connections().clone());
    let reserved = || limit(connections.reserved, connections.reserved);
    let dispatcher = clients((&api, &kserve), http, connections.body.0);
    let plain = ConnectionSetup {
        dispatcher: scrapes,
        keepalive,
        tls: None,
        shutdown: shutdown.clone(),
        options: connections,
        limit: reserved(),
        metrics: api.metrics().clone(),
    };
    let public =
        ConnectionSetup { dispatcher, tls, limit: limit(connections.max, connections.per_peer), ..plain.clone() };
    let operators = ConnectionSetup { dispatcher: for_operators, limit: reserved(), ..public.clone() };
    let over_grpc = ConnectionSetup { dispatcher: public.dispatcher.with_checks(grpc), ..public.clone() };
    let Listeners { http, grpc, metrics, admin, waits } = listeners;
    let (opened, at_once) = (CancellationToken::new(), CancellationToken::new());
    at_once.cancel();
    let clients = if waits { &opened } else { &at_once };
    let all =
        [(http, public, clients), (grpc, over_grpc, clients), (metrics, plain, &at_once), (admin, operators, &at_once)];
    for (listener, serving, from) in all {
        if let Some(listener) = listener {
            let (from, closing) = (from.clone(), shutdown.closing.clone());
            shutdown.connections.spawn(async move {
                tokio::select! {
                    () = from.cancelled() => accept(listener, serving).await,
                    () = closing.cancelled() => {}
                }
            });
        }
    }
    let drained = tokio::spawn(drain::run(api, drain, shutdown, stop, drain_asked));
    RunningServer { addresses, drained, opened }
}

/// The checks of a listener for clients: those of every listener, that of web pages, and those that the settings ask for.
fn client_checks(options: &ServerOptions, listener: WireProtocol) -> Vec<Arc<dyn Check>> {
    let mut checks = options.checks.clone();
    checks.push(Arc::new(OriginCheck { allowed: options.allowed_origins.clone() }));
    if !options.restricted.is_empty() {
        checks.push(Arc::new(RestrictedCheck::new(options.restricted.clone(), listener)));
    }
    checks.extend(options.client_keys.clone().map(|keys| Arc::new(ClientKeyCheck::new(keys)) as Arc<dyn Check>));
    checks
}

/// What clients call, with these checks.
fn clients((api, kserve): (&Api, &Kserve), checks: Vec<Arc<dyn Check>>, stall: Duration) -> Dispatcher {
    let bodies = BodyLimits { queued: Some(api.queued().clone()), message: api.limits().request.to_usize(), stall };
    let tfs = Tfs::new(api);
    let (infer, predict) = (InferService::new(kserve), PredictService::new(&tfs));
    let services = InferenceServices { api: api.clone(), kserve: infer, tfs: predict };
    Dispatcher::new(Some(services), app(api, kserve, &tfs), checks, bodies)
}

/// Everything that clients call: the same on every port but that of the metrics.
pub fn app(api: &Api, kserve: &Kserve, tfs: &Tfs) -> Router {
    let grpc = tonic::service::Routes::new(api::kserve::grpc::service(kserve))
        .add_service(api::tfs::grpc::prediction_service(tfs))
        .add_service(api::tfs::grpc::model_service(tfs))
        .add_service(api::health::service(api));
    let http = api::kserve::http::routes(kserve).merge(api::tfs::http::routes(tfs));
    reflected(grpc).into_axum_router().merge(http).fallback(api::kserve::http::not_found)
}

/// Everything that operators call.
fn admin_app(admin: &Admin) -> Router {
    admin::routes(admin).fallback(api::kserve::http::not_found)
}

/// Adds what tells of the services: reflection, in both of its versions.
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

fn metrics_app(api: Api) -> Router {
    let scrape = move || {
        api.repository().observe();
        api.peers().observe();
        api.observe();
        let text = api.metrics().encode();
        async move { ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text) }
    };
    let elsewhere =
        || async { (StatusCode::NOT_FOUND, Json(json!({ "error": "Not Found: the metrics are at /metrics" }))) };
    Router::new().route("/metrics", get(scrape)).fallback(elsewhere)
}

async fn accept(listener: TcpListener, serving: ConnectionSetup) {
    let shutdown = serving.shutdown.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.closing.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(permit) = admit(&serving, peer) else { continue };
                shutdown.connections.spawn(connection::serve(stream, peer, permit, serving.clone()));
            }
            Err(error) => refuse_a_while(&error).await,
        }
    }
}

/// Counts the connection; `None` if there are too many, and then it is closed.
fn admit(serving: &ConnectionSetup, peer: SocketAddr) -> Option<ConnectionPermit> {
    let admitted = serving.limit.admit(peer).inspect_err(|reason| {
        tracing::debug!(%peer, limit = reason.name(), "connection closed: too many are open");
        serving.metrics.connection_closed(*reason);
    });
    admitted.ok()
}

/// A connection that has gone before it was accepted needs nothing. Any other error (no file descriptors left) needs a pause before the next try.
async fn refuse_a_while(error: &std::io::Error) {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        return;
    }
    tracing::warn!(%error, "no connection could be taken");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// For tests and for those who serve on an address of their own choice.
pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

#[cfg(test)]
mod tests;
