//! Serves clients over byte streams that the caller provides, without ports and without a drain.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use super::checks::{ListenerChecks, ListenerFacts};
use super::connection::{ConnectionSetup, OpenedConnection, talk};
use super::connection_limit::ConnectionLimit;
use super::shutdown::Shutdown;
use super::write_timeout::WriteTimeout;
use super::wrong_keys::WrongKeyCounters;
use super::{ServerOptions, Tls, clients};
use crate::api::kserve::Kserve;
use crate::api::{Api, Caller};
use crate::config::server::access::WireProtocol;
use crate::model::Repository;
use crate::telemetry::Metrics;

/// Serves the clients' endpoints on streams that the caller has accepted. All clones are the same server.
#[derive(Debug, Clone)]
pub struct StreamServer(ConnectionSetup);

impl StreamServer {
    /// The options for TLS, drain and operators have no effect.
    pub fn new(options: ServerOptions, repository: Repository, metrics: Metrics) -> StreamServer {
        let asks_certificates = options.tls.as_ref().is_some_and(Tls::asks_clients);
        let (always, wrong_keys) = (options.checks.clone(), WrongKeyCounters::default());
        let facts = ListenerFacts { always, asks_certificates, http: None, grpc: None, wrong_keys };
        let checks = ListenerChecks::new(facts.clients(&options.access(), WireProtocol::Http));
        let ServerOptions { limits, shared_memory, connections, keepalive, tracer, .. } = options;
        let api = Api::traced(repository, metrics, limits, tracer);
        let kserve = Kserve::new(&api, shared_memory);
        StreamServer(ConnectionSetup {
            dispatcher: clients((&api, &kserve), checks, connections.body.0),
            keepalive,
            tls: None,
            shutdown: Shutdown::default(),
            options: connections,
            limit: ConnectionLimit::new(connections.max, connections.per_peer, api.metrics().connections().clone()),
            metrics: api.metrics().clone(),
        })
    }

    /// Serves one client until either side ends the connection. A client beyond the maximum of connections is not served.
    pub async fn serve<S>(&self, stream: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let serving = self.0.clone();
        match serving.limit.admit(peer) {
            Ok(permit) => {
                let caller = Caller { name: Caller::LOCAL.to_owned(), address: peer };
                let opened = OpenedConnection {
                    caller: Arc::new(caller),
                    permit: Arc::new(permit),
                    activity: serving.dispatcher.activity(),
                };
                let limit = serving.options.write.0;
                let stream = WriteTimeout::new(stream, limit, opened.activity.clone(), serving.metrics.clone());
                talk(stream, opened, serving).await;
            }
            Err(reason) => serving.metrics.connection_closed(reason),
        }
    }
}
