//! Writes the audit log's lines about wrong keys, and limits their rate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::telemetry::QuietLine;
use crate::telemetry::log::AUDIT;

/// The line about wrong keys. Clones share its counter.
#[derive(Debug, Clone, Default)]
pub(super) struct WrongKeys(Arc<Mutex<QuietLine>>);

/// The counters of all listeners. A reload of the configuration keeps them.
#[derive(Debug, Clone, Default)]
pub(super) struct WrongKeyCounters {
    pub(super) http: ClientCounters,
    pub(super) grpc: ClientCounters,
    pub(super) operators: WrongKeys,
}

/// The counters of one listener for clients.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientCounters {
    pub(super) keys: WrongKeys,
    /// Wrong values of the headers of restricted groups.
    pub(super) restricted: WrongKeys,
}

impl WrongKeys {
    /// Counts a wrong key, and writes a line if the minimum time has passed.
    pub(super) fn report(&self, from: SocketAddr, why: &str) {
        let count = self.0.lock().count(1, Instant::now());
        if let Some(count) = count {
            tracing::warn!(target: AUDIT, by = "unknown", %from, count, why, "refused");
        }
    }
}
