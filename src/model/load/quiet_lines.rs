//! Limits the rate of log lines that name a model.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// Minimum time between two lines about one model.
const QUIET: Duration = Duration::from_secs(10);

/// By model: the number of events since the last line, and the time of that line.
#[derive(Debug, Default)]
pub(super) struct QuietLines(Mutex<HashMap<String, (u64, Option<Instant>)>>);

impl QuietLines {
    /// Counts events of a model. If the next line is due, returns the number of events since the last line.
    pub(super) fn count(&self, model: &str, events: u64, now: Instant) -> Option<u64> {
        let mut held = self.0.lock();
        let (count, written) = held.entry(model.to_owned()).or_default();
        *count += events;
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
    fn each_model_has_one_line_in_ten_seconds_with_the_number_of_events() {
        let (lines, start) = (QuietLines::default(), Instant::now());
        let after = |model, events, seconds| lines.count(model, events, start + Duration::from_secs(seconds));
        assert_eq!([after("a", 2, 0), after("a", 3, 9), after("b", 1, 9)], [Some(2), None, Some(1)]);
        assert_eq!([after("a", 4, 10), after("a", 1, 11), after("a", 1, 30)], [Some(7), None, Some(2)]);
    }
}
