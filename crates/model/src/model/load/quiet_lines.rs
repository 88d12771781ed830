//! Limits the rate of log lines that name a model.

use std::collections::HashMap;
use std::time::Instant;

use crate::sync::Mutex;
use crate::telemetry::QuietLine;

/// A line for each model.
#[derive(Debug, Default)]
pub(super) struct QuietLines(Mutex<HashMap<String, QuietLine>>);

impl QuietLines {
    /// Counts events of a model. If the next line about it is due, returns the number of events since the last one.
    pub(super) fn count(&self, model: &str, events: u64, now: Instant) -> Option<u64> {
        self.0.lock().entry(model.to_owned()).or_default().count(events, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_a_line_of_its_own() {
        let (lines, now) = (QuietLines::default(), Instant::now());
        assert_eq!(
            [("a", 2), ("a", 3), ("b", 1)].map(|(model, n)| lines.count(model, n, now)),
            [Some(2), None, Some(1)]
        );
    }
}
