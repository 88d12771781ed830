//! Writes the audit log's lines about wrong keys, and limits their rate.

use std::net::SocketAddr;
use std::time::Instant;

use parking_lot::Mutex;

use crate::telemetry::QuietLine;
use crate::telemetry::log::AUDIT;

/// The line about wrong keys.
#[derive(Debug, Default)]
pub(super) struct WrongKeys(Mutex<QuietLine>);

impl WrongKeys {
    /// Counts a wrong key, and writes a line if the minimum time has passed.
    pub(super) fn report(&self, from: SocketAddr, why: &str) {
        let count = self.0.lock().count(1, Instant::now());
        if let Some(count) = count {
            tracing::warn!(target: AUDIT, by = "unknown", %from, count, why, "refused");
        }
    }
}
