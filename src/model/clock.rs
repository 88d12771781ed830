//! The one clock that the cores are driven by: nanoseconds since the server began.

use std::time::{Instant, SystemTime};

use sequor_core::Time;

#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    zero: Instant,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock { zero: Instant::now() }
    }

    pub(super) fn now(self) -> Time {
        Time(u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Microseconds from 1970 to the zero, as the machine's calendar has it now.
    pub(super) fn zero_unix_us(self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.saturating_sub(self.zero.elapsed()).as_micros()).unwrap_or(u64::MAX)
    }

    /// When this time comes, as the operating system counts.
    pub(super) fn instant(self, at: Time) -> Option<Instant> {
        self.zero.checked_add(std::time::Duration::from_nanos(at.0))
    }
}
