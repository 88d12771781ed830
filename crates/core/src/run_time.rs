//! An estimate of the run time of a full batch, from the batches that ran.

use std::time::Duration;

use crate::faults::{Planted, fault};
use crate::time::Time;

/// Each batch has a weight of one part in this many in the average of its size.
const WEIGHT: i128 = 8;

/// Estimates the run time of a full batch: the moving average over the largest batches so far. Smaller batches are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTime {
    rows: u32,
    nanos: u64,
}

impl RunTime {
    /// Learns from a batch of this many rows.
    pub(crate) fn learn(&mut self, rows: u32, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if rows > self.rows || fault(Planted::RunTimeOfAnyBatch) {
            *self = RunTime { rows, nanos };
        } else if rows == self.rows {
            let (old, new) = (i128::from(self.nanos), i128::from(nanos));
            self.nanos = u64::try_from(old + (new - old) / WEIGHT).unwrap_or(u64::MAX);
        }
    }

    /// Nanoseconds; 0 until a batch has run.
    pub(crate) fn nanos(self) -> u64 {
        self.nanos
    }
}

/// The end of an instance's last batch. A batch that was taken while another ran begins when that one ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LastRun(Time);

impl LastRun {
    /// The run time of a batch that was taken at `taken` and has ended now.
    pub(crate) fn took(&mut self, taken: Time, now: Time) -> Duration {
        let began = taken.max(std::mem::replace(&mut self.0, now));
        now - began
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_time_estimate_uses_the_largest_batches() {
        let (mut time, ns) = (RunTime::default(), Duration::from_nanos);
        assert_eq!(time.nanos(), 0);
        time.learn(2, ns(500));
        time.learn(1, ns(90_000));
        assert_eq!(time.nanos(), 500);
        time.learn(4, ns(800));
        time.learn(4, ns(1600));
        time.learn(2, ns(1));
        assert_eq!(time.nanos(), 900);
        time.learn(4, ns(100));
        assert_eq!(time.nanos(), 800);
    }

    #[test]
    fn the_run_time_of_a_queued_batch_starts_at_the_end_of_the_batch_before() {
        let mut last = LastRun::default();
        assert_eq!(last.took(Time(10), Time(30)), Duration::from_nanos(20));
        assert_eq!(last.took(Time(15), Time(55)), Duration::from_nanos(25));
        assert_eq!(last.took(Time(90), Time(99)), Duration::from_nanos(9));
    }
}
