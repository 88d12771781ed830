//! Limits the rate of a log line.

use std::time::{Duration, Instant};

/// Minimum time between two lines.
const QUIET: Duration = Duration::from_secs(10);

/// A line that reports events: how many there were since the last line, and when that was written.
#[derive(Debug, Default)]
pub struct QuietLine {
    count: u64,
    written: Option<Instant>,
}

impl QuietLine {
    /// Counts events. If the next line is due, returns the number of events since the last line.
    pub fn count(&mut self, events: u64, now: Instant) -> Option<u64> {
        self.count += events;
        if self.written.is_some_and(|at| now.saturating_duration_since(at) < QUIET) {
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_line_in_ten_seconds_with_the_number_of_events() {
        let (mut line, start) = (QuietLine::default(), Instant::now());
        let mut after = |events, seconds| line.count(events, start + Duration::from_secs(seconds));
        assert_eq!([after(2, 0), after(1, 1), after(3, 9)], [Some(2), None, None]);
        assert_eq!([after(4, 10), after(1, 11), after(1, 30)], [Some(8), None, Some(2)]);
    }
}
