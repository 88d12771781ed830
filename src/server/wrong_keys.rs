//! Writes the audit log's lines about wrong keys, and limits their rate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::telemetry::log::AUDIT;

/// Minimum time between two lines about wrong keys.
const QUIET: Duration = Duration::from_secs(10);

/// The number of wrong keys since the last line, and the time of that line. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct WrongKeys(Arc<Mutex<(u64, Option<Instant>)>>);

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
        if let Some(count) = self.count(Instant::now()) {
            tracing::warn!(target: AUDIT, by = "unknown", %from, count, why, "refused");
        }
    }

    /// Counts a wrong key. If the next line is due, returns the number of wrong keys since the last line.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut held = self.0.lock();
        let (count, written) = &mut *held;
        *count += 1;
        if written.is_some_and(|at| now.saturating_duration_since(at) < QUIET) {
            return None;
        }
        *written = Some(now);
        Some(std::mem::take(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_write_one_line_in_ten_seconds_with_their_number() {
        let (wrong, start) = (WrongKeys::default(), Instant::now());
        let after = |seconds| wrong.count(start + Duration::from_secs(seconds));
        assert_eq!(
            [after(0), after(1), after(9), after(10), after(11), after(30)],
            [Some(1), None, None, Some(3), None, Some(2)]
        );
    }
}
