//! Decides whether a connection's thread may do a piece of work itself instead of waking the thread that owns it.
//!
//! The work is a step of a load or a call of its plug-in. Two conditions must hold:
//! - its recent mean duration is at most [`SHORT`];
//! - it did not exceed [`SLOW`] recently. A slow run closes the gate for [`PAUSE`] times its duration, so that slow runs take at most a
//!   thousandth of a connection thread's time. A thread that is interrupted once, on a busy machine, loses little.
//!
//! The caller passes the time, so that tests need no real clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sequor_core::Time;

/// Maximum mean duration.
const SHORT: Duration = Duration::from_micros(100);
/// Maximum duration of one run.
pub(super) const SLOW: Duration = Duration::from_millis(1);
/// How many times its duration a slow run closes the gate.
const PAUSE: u32 = 1000;
/// The maximum of that time.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Open while the work is known to be short. A new gate knows no durations, so it is closed.
#[derive(Debug, Default)]
pub struct InlineGate {
    /// Moving mean in nanoseconds; 0 if no duration is known.
    mean: AtomicU64,
    /// The time until which slow runs close it, in nanoseconds.
    opens_at: AtomicU64,
}

impl InlineGate {
    /// Records the duration of one run.
    pub fn note(&self, took: Duration, now: Time) {
        if took > SLOW {
            let pause = took.saturating_mul(PAUSE).min(LONGEST_PAUSE);
            self.opens_at.fetch_max((now + pause).0, Ordering::Relaxed);
        }
        // Limited, so that one long run does not outweigh many short ones. The pause handles the long run.
        let took = u64::try_from(took.min(4 * SHORT).as_nanos()).unwrap_or(u64::MAX);
        let was = self.mean.load(Ordering::Relaxed);
        let is = if was == 0 { took } else { was - was / 8 + took / 8 };
        self.mean.store(is.max(1), Ordering::Relaxed);
    }

    /// Forgets all durations, because other code does the work from now on.
    pub fn forget(&self) {
        self.opens_at.store(0, Ordering::Relaxed);
        self.mean.store(0, Ordering::Relaxed);
    }

    /// Whether a connection's thread may do the work now.
    pub fn is_open(&self, now: Time) -> bool {
        let mean = self.mean.load(Ordering::Relaxed);
        // Under the interleaving tests, durations are not real.
        cfg!(feature = "shuttle")
            || (mean > 0 && u128::from(mean) <= SHORT.as_nanos() && now.0 >= self.opens_at.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_micros(20);

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    /// A gate that has only seen short runs.
    fn open() -> InlineGate {
        let gate = InlineGate::default();
        (0..2).for_each(|_| gate.note(FAST, at(0)));
        assert!(gate.is_open(at(0)));
        gate
    }

    #[test]
    fn a_gate_opens_once_the_mean_is_short() {
        let gate = InlineGate::default();
        assert!(!gate.is_open(at(0)), "nothing is known");
        gate.note(SLOW, at(0));
        assert!(!gate.is_open(at(0)), "the mean is long");
        (0..20).for_each(|_| gate.note(FAST, at(0)));
        assert!(gate.is_open(at(0)));
        (0..9).for_each(|_| gate.note(2 * SHORT, at(0)));
        assert!(!gate.is_open(at(0)));
    }

    #[test]
    fn a_slow_run_closes_the_gate_for_a_thousand_times_its_duration_even_with_a_short_mean() {
        for (took, pause) in [(2, 2), (30, 30), (300, 300), (5000, 600)] {
            let gate = open();
            gate.note(Duration::from_millis(took), at(100));
            (0..1000).for_each(|_| gate.note(FAST, at(101)));
            assert!(!gate.is_open(at(100)) && !gate.is_open(at(100 + pause - 1)), "{took}");
            assert!(gate.is_open(at(100 + pause)), "{took}");
        }
    }

    #[test]
    fn a_slow_run_at_a_closed_gate_can_only_lengthen_the_pause() {
        let gate = open();
        gate.note(Duration::from_millis(20), at(0));
        gate.note(Duration::from_millis(2), at(1));
        (0..20).for_each(|_| gate.note(FAST, at(1)));
        assert!(!gate.is_open(at(19)));
        assert!(gate.is_open(at(20)));
        gate.note(Duration::from_millis(20), at(20));
        gate.note(Duration::from_millis(20), at(25));
        (0..20).for_each(|_| gate.note(FAST, at(25)));
        assert!(!gate.is_open(at(44)));
        assert!(gate.is_open(at(45)));
    }

    #[test]
    fn a_gate_for_new_code_starts_without_measurements() {
        let gate = open();
        gate.note(Duration::from_millis(2), at(1));
        gate.forget();
        assert!(!gate.is_open(at(1)));
        (0..2).for_each(|_| gate.note(FAST, at(1)));
        assert!(gate.is_open(at(1)));
    }
}
