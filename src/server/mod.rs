//! The server: sockets, what runs on them, and the way out. What requests mean is not known here.
//!
//! # Layout
//!
//! - [`listeners`]: the ports, bound before anything else is done; [`holder`] says who has a port that is taken.
//! - [`connection`]: one connection, HTTP/1.1 or HTTP/2, in one task; `tasks`: its requests, within that one; `front`: where they go.
//! - [`drain`]: the phases of going out, and the signals that ask for it.
//! - [`poll`]: looks at the model repository again and again.

pub mod connection;
pub mod drain;
mod front;
pub mod holder;
pub mod listeners;
pub mod poll;
mod tasks;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::header;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use drain::{DrainOptions, Drained, Stop};
pub use listeners::{Addresses, BindError, Listeners};

use self::front::Front;
use crate::api::{self, Api};
use crate::model::Repository;
use crate::telemetry::{Metrics, metrics};

#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    pub limits: api::Limits,
    pub drain: DrainOptions,
    /// How often a silent HTTP/2 client is asked whether it is there; zero is never.
    pub keepalive: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let (limits, drain) = (api::Limits::default(), DrainOptions::default());
        ServerOptions { limits, drain, keepalive: Duration::from_secs(30) }
    }
}

/// A server that serves.
#[derive(Debug)]
pub struct Running {
    /// Where it does, with the ports that the system chose.
    pub addresses: Addresses,
    drained: JoinHandle<Drained>,
}

impl Running {
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
) -> Running {
    let addresses = listeners.addresses();
    let api = Api::new(repository, metrics, options.limits);
    let house =
        House { connections: TaskTracker::new(), closing: CancellationToken::new(), cut: CancellationToken::new() };
    let calls = Front::new(Some(api::kserve::grpc::service(&api)), app(&api));
    let scrapes = Front::new(None, metrics_app(api.clone()));
    let Listeners { http, grpc, metrics } = listeners;
    for (listener, front) in [(http, calls.clone()), (grpc, calls), (metrics, scrapes)] {
        if let Some(listener) = listener {
            house.connections.spawn(accept(listener, front, options.keepalive, house.clone()));
        }
    }
    let drained = tokio::spawn(drain::run(api, options.drain, house, stop));
    Running { addresses, drained }
}

/// Everything that clients call: the same on every port but that of the metrics.
pub fn app(api: &Api) -> Router {
    let reflection = |build: Result<_, tonic_reflection::server::Error>| {
        build.inspect_err(|error| tracing::error!(%error, "reflection is not served")).ok()
    };
    let mut grpc = tonic::service::Routes::new(api::kserve::grpc::service(api)).add_service(api::health::service(api));
    if let Some(service) = reflection(described().build_v1()) {
        grpc = grpc.add_service(service);
    }
    if let Ok(service) = described().build_v1alpha() {
        grpc = grpc.add_service(service);
    }
    grpc.into_axum_router().merge(api::kserve::http::routes(api)).fallback(api::kserve::http::not_found)
}

fn described() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(crate::config::proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

fn metrics_app(api: Api) -> Router {
    let scrape = move || {
        api.repository().observe();
        let text = api.metrics().encode();
        async move { ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text) }
    };
    Router::new().route("/metrics", get(scrape))
}

/// What all connections of a server share.
#[derive(Debug, Clone)]
pub(crate) struct House {
    /// Listeners and connections that still live.
    pub(crate) connections: TaskTracker,
    /// No new connections; old ones end when what is on them is answered.
    pub(crate) closing: CancellationToken,
    /// Connections end now.
    pub(crate) cut: CancellationToken,
}

async fn accept(listener: TcpListener, front: Front, keepalive: Duration, house: House) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = house.closing.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (front, house) = (front.clone(), house.clone());
                let connections = house.connections.clone();
                connections.spawn(connection::serve(stream, peer, front, keepalive, house));
            }
            Err(error) => refuse_a_while(&error).await,
        }
    }
}

/// A connection that was gone before it was taken is nobody's loss. Anything else (no file descriptors left) does not pass by trying at once.
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
