//! Decides whether a connection's thread may do a piece of work itself instead of waking the thread that owns it.
//!
//! The work is a step of a load or a call of its plug-in. Two conditions must hold:
//! - its recent mean duration is at most [`SHORT`];
//! - it did not exceed [`SLOW`] recently. One slow run closes the gate for [`FIRST_BAN`]. Each slow run after the gate has opened again
//!   doubles that time, up to [`LONGEST_BAN`]. After [`LONGEST_BAN`] without a slow run, the next one closes it for [`FIRST_BAN`] again.
//!
//! The caller passes the time, so that tests need no real clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sequor_core::Time;

/// Maximum mean duration.
const SHORT: Duration = Duration::from_micros(100);
/// Maximum duration of one run.
pub(super) const SLOW: Duration = Duration::from_millis(1);
/// The time for which the first slow run closes the gate.
const FIRST_BAN: Duration = Duration::from_secs(10);
/// The maximum of that time, and the time for which a slow run is remembered.
const LONGEST_BAN: Duration = Duration::from_mins(10);

/// Open while the work is known to be short. A new gate knows no durations, so it is closed.
#[derive(Debug, Default)]
pub struct InlineGate {
    /// Moving mean in nanoseconds; 0 if no duration is known.
    mean: AtomicU64,
    /// The end of the ban, in nanoseconds.
    opens_at: AtomicU64,
    ban: Mutex<Ban>,
}

/// Locked only by slow runs and [`InlineGate::forget`].
#[derive(Debug, Default)]
struct Ban {
    length: Duration,
    last_slow: Time,
}

impl InlineGate {
    /// Records the duration of one run.
    pub fn note(&self, took: Duration, now: Time) {
        if took > SLOW {
            self.ban(now);
        }
        // Limited, so that one long run does not outweigh many short ones. The ban handles the long run.
        let took = u64::try_from(took.min(4 * SHORT).as_nanos()).unwrap_or(u64::MAX);
        let was = self.mean.load(Ordering::Relaxed);
        let is = if was == 0 { took } else { was - was / 8 + took / 8 };
        self.mean.store(is.max(1), Ordering::Relaxed);
    }

    /// Forgets all durations, because other code does the work from now on.
    pub fn forget(&self) {
        let mut ban = self.ban.lock();
        *ban = Ban::default();
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

    #[cold]
    fn ban(&self, now: Time) {
        let mut ban = self.ban.lock();
        let opens_at = Time(self.opens_at.load(Ordering::Relaxed));
        let forgotten = ban.length.is_zero() || now - ban.last_slow >= LONGEST_BAN.max(ban.length);
        ban.length = if forgotten {
            FIRST_BAN
        } else if now >= opens_at {
            (2 * ban.length).min(LONGEST_BAN)
        } else {
            // The gate has not opened since the last slow run. The ban restarts with the same length.
            ban.length
        };
        ban.last_slow = now;
        self.opens_at.store((now + ban.length).0, Ordering::Relaxed);
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
    fn a_slow_run_closes_the_gate_for_ten_seconds_even_with_a_short_mean() {
        let gate = open();
        gate.note(Duration::from_millis(300), at(100));
        (0..1000).for_each(|_| gate.note(FAST, at(101)));
        assert!(!gate.is_open(at(100)) && !gate.is_open(at(109)));
        assert!(gate.is_open(at(110)));
    }

    #[test]
    fn the_ban_doubles_while_slow_runs_recur_up_to_ten_minutes() {
        let gate = open();
        let mut now = 0;
        for ban in [10, 20, 40, 80, 160, 320, 600, 600] {
            gate.note(Duration::from_millis(2), at(now));
            (0..20).for_each(|_| gate.note(FAST, at(now)));
            assert!(!gate.is_open(at(now + ban - 1)), "{ban}");
            assert!(gate.is_open(at(now + ban)), "{ban}");
            now += if ban < 600 { ban } else { 599 };
        }
    }

    #[test]
    fn a_slow_run_at_a_closed_gate_restarts_the_ban_without_doubling_it() {
        let gate = open();
        for now in [0, 3, 9] {
            gate.note(Duration::from_millis(2), at(now));
        }
        (0..20).for_each(|_| gate.note(FAST, at(9)));
        assert!(!gate.is_open(at(18)));
        assert!(gate.is_open(at(19)));
    }

    #[test]
    fn ten_minutes_without_a_slow_run_reset_the_ban_to_ten_seconds() {
        let gate = open();
        for now in [0, 10, 30] {
            gate.note(Duration::from_millis(2), at(now));
        }
        gate.note(Duration::from_millis(2), at(630));
        (0..20).for_each(|_| gate.note(FAST, at(630)));
        assert!(!gate.is_open(at(639)));
        assert!(gate.is_open(at(640)));
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
