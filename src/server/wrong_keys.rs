//! Lines of the audit log about wrong keys: few, however many are tried.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::telemetry::log::AUDIT;

/// A line about wrong keys is followed by the next one after this long at the earliest.
const QUIET: Duration = Duration::from_secs(10);

/// Wrong keys that were shown, and when the last line about them was written.
#[derive(Debug, Default)]
pub(super) struct WrongKeys(Mutex<(u64, Option<Instant>)>);

impl WrongKeys {
    /// Counts a wrong key, and writes a line if it is time for one.
    pub(super) fn report(&self, from: SocketAddr, why: &str) {
        if let Some(count) = self.count(Instant::now()) {
            tracing::warn!(target: AUDIT, by = "unknown", %from, count, why, "refused");
        }
    }

    /// Counts one. How many there were since the last line, if it is time for the next one.
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
