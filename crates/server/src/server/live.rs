//! The parts of a running server that a reload of the configuration changes.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::checks::{Access, Checks};
use super::connection_limit::ConnectionLimit;
use super::connection_options::{ConnectionOptions, LiveConnectionOptions};
use crate::api::admin::AdminRights;
use crate::api::{Api, ServerPhase};
use crate::config::model::draft;
use crate::config::server::file::AdminSection;
use crate::config::server::{Connections, Drain, Settings};
use crate::telemetry::log;

/// Clones are the same server.
#[derive(Debug, Clone)]
pub struct LiveServer(pub(super) Arc<LiveParts>);

#[derive(Debug)]
pub(super) struct LiveParts {
    pub(super) api: Api,
    pub(super) checks: Checks,
    pub(super) connections: LiveConnectionOptions,
    pub(super) limits: ConnectionLimits,
    pub(super) drain: Arc<ArcSwap<Drain>>,
    pub(super) rights: Arc<AdminRights>,
}

/// The limits of connections, by listener.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    /// That of HTTP and gRPC together.
    pub(super) clients: ConnectionLimit,
    pub(super) metrics: ConnectionLimit,
    pub(super) admin: ConnectionLimit,
}

impl ConnectionLimits {
    fn set(&self, connections: &Connections) {
        let Connections { max, per_peer, reserved, .. } = *connections;
        self.clients.set(max, per_peer);
        self.metrics.set(reserved, scrapes_per_peer(connections));
        self.admin.set(reserved, reserved);
    }
}

/// Maximum open connections of one peer at the metrics listener, which has no keys: one peer must not shut out the probes of others.
pub(super) fn scrapes_per_peer(connections: &Connections) -> usize {
    (connections.reserved / 2).max(1)
}

impl LiveServer {
    pub(super) fn api(&self) -> &Api {
        &self.0.api
    }

    /// Whether the server has begun to stop.
    pub(super) fn is_draining(&self) -> bool {
        *self.0.api.phases().borrow() > ServerPhase::Serving || self.0.api.repository().refuses_loads()
    }

    /// Applies the settings that can change. Nothing of this can fail: `access` was opened and the log level checked before.
    pub(super) fn apply(&self, settings: &Settings, access: &Access) {
        let parts = &*self.0;
        parts.checks.set(access);
        parts.api.set_limits(&settings.limits);
        let (connections, keepalive) = (settings.connections, settings.grpc.keepalive.0);
        parts.connections.set(ConnectionOptions { connections, keepalive });
        parts.limits.set(&connections);
        parts.drain.store(Arc::new(settings.drain));
        self.apply_to_operators(&settings.admin, settings.limits.request.0);
        self.apply_to_models(settings);
        if let Some(otlp) = &settings.otlp {
            parts.api.sample(otlp.sample);
        }
        if let Err(error) = log::configure(&settings.log.level) {
            tracing::error!(%error, "log.level was not changed");
        }
    }

    fn apply_to_operators(&self, admin: &AdminSection, largest: u64) {
        let AdminSection { upload, peek, capture, .. } = admin;
        self.0.rights.set(*upload, *peek, capture.0);
        match upload {
            true => self.0.api.repository().take_uploads(largest),
            false => self.0.api.repository().refuse_uploads(),
        }
    }

    fn apply_to_models(&self, settings: &Settings) {
        let repository = self.0.api.repository();
        repository.set_strict_readiness(settings.strict_readiness);
        repository.set_ready_without_lease(settings.state.ready_without_lease);
        repository.set_draft_options(draft_options(settings));
    }
}

/// How configurations of models are read with these settings.
pub fn draft_options(settings: &Settings) -> draft::Options {
    draft::Options {
        auto_complete: settings.model.auto_complete,
        default_max_batch_size: settings.model.default_max_batch_size,
        cpu_only: settings.cpu_only,
        limits: settings.limits,
    }
}
