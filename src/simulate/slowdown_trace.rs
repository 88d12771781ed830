//! The slowness of the machine at each moment of a recorded day. A run takes its table's time only if nothing else uses the processor. A
//! waiting request waits through all moments before it, so an average slowness would give waits that are too short.

use sequor_core::Time;

/// A batch of the recorded day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedBatch {
    /// Number of rows.
    pub batch: u32,
    pub micros: u64,
    /// The time at which it began.
    pub at: Time,
}

/// The slowness of runs relative to others of their size, in the order in which they began.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SlowdownTrace(Vec<(Time, f64)>);

impl SlowdownTrace {
    pub(super) fn new(mut runs: Vec<(Time, f64)>) -> SlowdownTrace {
        runs.sort_unstable_by_key(|(at, _)| *at);
        runs.dedup_by_key(|(at, _)| *at);
        SlowdownTrace(runs)
    }

    /// The slowness of the recorded run that began nearest to this time; 1 if there is none.
    pub(super) fn slowness(&self, now: Time) -> f64 {
        let after = self.0.partition_point(|(at, _)| *at < now);
        let before = after.checked_sub(1).and_then(|n| self.0.get(n));
        let away = |of: &(Time, f64)| of.0.0.abs_diff(now.0);
        before.into_iter().chain(self.0.get(after)).min_by_key(|of| away(of)).map_or(1.0, |(_, slowness)| *slowness)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_as_slow_as_the_recorded_run_nearest_in_time() {
        let moments = SlowdownTrace::new(vec![(Time(50), 3.0), (Time(10), 1.0), (Time(20), 2.0), (Time(20), 2.0)]);
        let at = |now| moments.slowness(Time(now));
        assert_eq!([0, 10, 14, 16, 20, 34, 36, 99].map(at), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!(SlowdownTrace::default().slowness(Time(5)), 1.0);
    }
}
