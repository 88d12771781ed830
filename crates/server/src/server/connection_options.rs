//! The options of new connections. A reload of the configuration changes them; open connections keep those with which they began.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::config::server::Connections;

/// The options with which a connection begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ConnectionOptions {
    pub(super) connections: Connections,
    /// Maximum silence of an HTTP/2 or WebSocket connection before the server sends a ping; zero sends none.
    pub(super) keepalive: Duration,
}

/// The options of connections that begin now. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct LiveConnectionOptions(Arc<ArcSwap<ConnectionOptions>>);

impl LiveConnectionOptions {
    pub(super) fn new(options: ConnectionOptions) -> LiveConnectionOptions {
        LiveConnectionOptions(Arc::new(ArcSwap::from_pointee(options)))
    }

    pub(super) fn get(&self) -> ConnectionOptions {
        **self.0.load()
    }

    pub(super) fn set(&self, options: ConnectionOptions) {
        self.0.store(Arc::new(options));
    }
}
