//! When to look whether a sequence that another server wants can be given up.

use std::time::Duration;

use sequor_core::Time;

/// Since when another server wants a sequence, and when to look next whether the table can give it up. The longer that takes, the longer are
/// the intervals, because each look locks the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct LookTimes {
    since: Time,
    next: Time,
}

/// The interval to the next look is the time that has passed since the sequence was wanted, divided by this, within the bounds below.
const LOOK_INTERVAL_DIVISOR: u32 = 8;
const MIN_LOOK_INTERVAL: Duration = Duration::from_micros(500);
pub(super) const MAX_LOOK_INTERVAL: Duration = Duration::from_millis(50);

impl LookTimes {
    pub(super) fn new(now: Time) -> LookTimes {
        LookTimes { since: now, next: now }
    }

    /// Whether it is time for a look. If it is, sets the time of the next one.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next =
                now + (now.since(self.since) / LOOK_INTERVAL_DIVISOR).clamp(MIN_LOOK_INTERVAL, MAX_LOOK_INTERVAL);
        }
        is_due
    }

    /// Makes the next look due at once.
    pub(super) fn set_due(&mut self) {
        self.next = self.since;
    }
}
