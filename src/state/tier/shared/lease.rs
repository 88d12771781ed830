//! Until when this server may answer for its sequences. Reads only its own monotonic clock.
//!
//! Redis keeps the heartbeat for the lease from the time at which it got it. That is later than the time at which this server sent it, so
//! this server stops first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The lease of this server on its sequences. Its times are nanoseconds since it was made.
#[derive(Debug)]
pub struct LeaseClock {
    zero: Instant,
    lease: Duration,
    /// Until when it holds; 0 if it does not.
    until: AtomicU64,
    /// How often it was lost.
    lost: AtomicU64,
}

/// The part of a lease that two clocks may differ by: 1/16.
const MARGIN: u32 = 16;

impl LeaseClock {
    pub(super) fn new(lease: Duration) -> LeaseClock {
        LeaseClock { zero: Instant::now(), lease, until: AtomicU64::new(0), lost: AtomicU64::new(0) }
    }

    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    /// Time between two heartbeats.
    pub(super) fn interval(&self) -> Duration {
        self.lease / 4
    }

    fn since_zero(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.zero).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records a heartbeat that was sent at this time, and that Redis has.
    pub(super) fn renewed(&self, sent: Instant) {
        let until = sent + (self.lease - self.lease / MARGIN);
        self.until.store(self.since_zero(until).max(1), Ordering::Release);
    }

    /// Whether this server may answer for its sequences at this time.
    pub(super) fn holds_at(&self, now: Instant) -> bool {
        self.since_zero(now) < self.until.load(Ordering::Acquire)
    }

    /// Whether this server may answer for its sequences now.
    pub fn holds(&self) -> bool {
        self.holds_at(Instant::now())
    }

    /// Ends the lease until the next heartbeat, if its time is over. Returns whether it had one.
    pub(super) fn lapse(&self, now: Instant) -> bool {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 || self.since_zero(now) < until {
            return false;
        }
        self.until.store(0, Ordering::Release);
        self.lost.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_before_redis_forgets_the_heartbeat() {
        let clock = LeaseClock::new(Duration::from_secs(2));
        let sent = clock.zero + Duration::from_secs(10);
        assert!(!clock.holds_at(sent), "there is no heartbeat yet");
        clock.renewed(sent);
        assert!(clock.holds_at(sent + Duration::from_millis(1874)));
        assert!(!clock.holds_at(sent + Duration::from_millis(1876)));
        assert!(!clock.lapse(sent + Duration::from_millis(1800)) && clock.lapse(sent + Duration::from_secs(3)));
        assert_eq!((clock.lapse(sent + Duration::from_secs(4)), clock.lost()), (false, 1), "it is lost once");
        assert!(!clock.holds_at(sent), "a lapsed lease does not hold before the next heartbeat");
    }
}
