//! The maximum number of lines that a plug-in may write per second, all its guests together.

use std::time::Duration;

use parking_lot::Mutex;

/// Maximum lines per second.
pub(crate) const LINES: u32 = 100;

#[derive(Debug, Default)]
pub struct LineBudget(Mutex<Second>);

#[derive(Debug, Default)]
struct Second {
    /// The time at which this second began.
    since: Option<Duration>,
    lines: u32,
    dropped: u64,
}

/// Whether a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineVerdict {
    /// The line is written. First a line reports that this many were dropped.
    Written(u64),
    Dropped,
}

impl LineBudget {
    /// Takes a line from the budget at `now`, on a clock that all guests share. If the clock went back, a new second begins.
    pub(crate) fn take(&self, now: Duration) -> LineVerdict {
        let mut second = self.0.lock();
        let goes_on = second.since.and_then(|since| now.checked_sub(since)).is_some_and(|gone| gone.as_secs() < 1);
        let mut dropped = 0;
        if !goes_on {
            dropped = second.dropped;
            *second = Second { since: Some(now), ..Second::default() };
        }
        if second.lines == LINES {
            second.dropped += 1;
            return LineVerdict::Dropped;
        }
        second.lines += 1;
        LineVerdict::Written(dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_log_lines_per_second_is_limited() {
        let (budget, at) = (LineBudget::default(), Duration::from_secs);
        let written = |now| (0..250).filter(|_| budget.take(now) != LineVerdict::Dropped).count();
        assert_eq!((written(at(5)), written(at(5)), budget.take(at(6))), (100, 0, LineVerdict::Written(400)));
        assert_eq!(
            (budget.take(at(3)), written(at(3)), written(at(4))),
            (LineVerdict::Written(0), 99, 100),
            "put back"
        );
    }
}
