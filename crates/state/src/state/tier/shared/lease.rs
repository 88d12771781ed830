//! Until when this server may answer for its sequences. Reads only the clock of its own machine.
//!
//! Redis keeps the heartbeat for the lease from the time at which it got it. That is later than the time at which this server sent it, so
//! this server stops first. On Linux the clock goes on while the machine is suspended, as the clock of Redis does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The lease of this server on its sequences. Its times are those of [`LeaseClock::now`].
#[derive(Debug)]
pub struct LeaseClock {
    lease: Duration,
    /// Until when it holds, in nanoseconds; 0 if it does not.
    until: AtomicU64,
    /// The life of the heartbeat in Redis that it was given for.
    life: AtomicU64,
    /// How often it was lost, and until when the last lost one held.
    lost: AtomicU64,
    lost_at: AtomicU64,
    /// By how many nanoseconds a test has set the clock forward.
    #[cfg(test)]
    ahead: AtomicU64,
}

/// The part of a lease that two clocks may differ by: 1/16.
const MARGIN: u32 = 16;

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Time since the machine started. A machine without such a clock gets no lease.
fn machine_time() -> Duration {
    clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl LeaseClock {
    pub(super) fn new(lease: Duration) -> LeaseClock {
        LeaseClock {
            lease,
            until: AtomicU64::new(0),
            life: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            lost_at: AtomicU64::new(0),
            #[cfg(test)]
            ahead: AtomicU64::new(0),
        }
    }

    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    /// Time between two heartbeats.
    pub(super) fn interval(&self) -> Duration {
        self.lease / 4
    }

    pub(super) fn now(&self) -> Duration {
        #[cfg(test)]
        let now = machine_time() + Duration::from_nanos(self.ahead.load(Ordering::Acquire));
        #[cfg(not(test))]
        let now = machine_time();
        now
    }

    #[cfg(test)]
    pub(super) fn advance(&self, span: Duration) {
        self.ahead.fetch_add(nanos(span), Ordering::AcqRel);
    }

    /// Records a heartbeat that was sent at this time, and that Redis has, with its life there.
    pub(super) fn renewed(&self, sent: Duration, life: u64) {
        let until = sent.saturating_add(self.lease - self.lease / MARGIN);
        self.life.store(life, Ordering::Relaxed);
        self.until.store(nanos(until).max(1), Ordering::Release);
    }

    pub(super) fn life(&self) -> u64 {
        self.life.load(Ordering::Relaxed)
    }

    /// Whether this server may answer for its sequences at this time.
    pub(super) fn holds_at(&self, now: Duration) -> bool {
        nanos(now) < self.until.load(Ordering::Acquire)
    }

    /// Whether this server may answer for its sequences now.
    pub fn holds(&self) -> bool {
        self.holds_at(self.now())
    }

    /// Whether it holds now and was not lost since [`Self::lost`] gave this number.
    pub(super) fn holds_since(&self, lost: u64) -> bool {
        self.lost() == lost && self.holds()
    }

    /// Ends the lease until the next heartbeat, if its time is over. Returns whether it had one.
    pub(super) fn lapse(&self, now: Duration) -> bool {
        !self.holds_at(now) && self.end()
    }

    /// Ends the lease until the next heartbeat. Returns whether it had one.
    pub(super) fn end(&self) -> bool {
        let until = self.until.swap(0, Ordering::AcqRel);
        let had_one = until != 0;
        if had_one {
            self.lost_at.store(until.min(nanos(self.now())), Ordering::Release);
            self.lost.fetch_add(1, Ordering::AcqRel);
        }
        had_one
    }

    /// For how long it has not held, if it does not hold now and did before. Reads a lease that is over and was not ended yet, too.
    pub(super) fn away_for(&self) -> Option<Duration> {
        let now = self.now();
        if self.holds_at(now) {
            return None;
        }
        let until = self.until.load(Ordering::Acquire);
        let since = if until == 0 { self.lost_at.load(Ordering::Acquire) } else { until };
        (since != 0).then(|| Duration::from_nanos(nanos(now).saturating_sub(since)))
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_before_redis_forgets_the_heartbeat() {
        let clock = LeaseClock::new(Duration::from_secs(2));
        let sent = clock.now() + Duration::from_secs(10);
        assert!(!clock.holds_at(sent), "there is no heartbeat yet");
        clock.renewed(sent, 1);
        assert!(clock.holds_at(sent + Duration::from_millis(1874)));
        assert!(!clock.holds_at(sent + Duration::from_millis(1876)));
        assert!(!clock.lapse(sent + Duration::from_millis(1800)) && clock.lapse(sent + Duration::from_secs(3)));
        assert_eq!((clock.lapse(sent + Duration::from_secs(4)), clock.lost()), (false, 1), "it is lost once");
        assert!(!clock.holds_at(sent), "a lapsed lease does not hold before the next heartbeat");
        clock.renewed(clock.now(), 2);
        assert!(clock.holds_since(1) && !clock.holds_since(0), "it was lost in between");
    }

    #[test]
    fn a_lease_that_is_over_says_for_how_long() {
        let clock = LeaseClock::new(Duration::from_secs(2));
        assert_eq!(clock.away_for(), None, "it never had one");
        clock.renewed(clock.now(), 1);
        assert_eq!(clock.away_for(), None);
        let is_about = |away: Option<Duration>, seconds: u64| away.is_some_and(|away| away.as_secs() == seconds);
        clock.advance(Duration::from_secs(4));
        assert!(is_about(clock.away_for(), 2), "before the heartbeat notes it: {:?}", clock.away_for());
        clock.lapse(clock.now());
        clock.advance(Duration::from_secs(10));
        assert!(is_about(clock.away_for(), 12), "{:?}", clock.away_for());
        clock.renewed(clock.now(), 2);
        assert_eq!(clock.away_for(), None);
    }
}
