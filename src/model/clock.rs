//! The one clock that the cores are driven by: nanoseconds since the server began. Where interleavings are tried it is a count, so that a
//! schedule can be run again.

use sequor_core::Time;

#[cfg(not(feature = "shuttle"))]
pub(super) use real::Clock;

#[cfg(feature = "shuttle")]
pub(super) use counted::Clock;

#[cfg(not(feature = "shuttle"))]
mod real {
    use std::time::{Instant, SystemTime};

    use super::Time;

    #[derive(Debug, Clone)]
    pub(in crate::model) struct Clock {
        zero: Instant,
    }

    impl Clock {
        pub(in crate::model) fn start() -> Clock {
            Clock { zero: Instant::now() }
        }

        pub(in crate::model) fn now(&self) -> Time {
            Time(u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX))
        }

        /// Microseconds from 1970 to the zero, as the machine's calendar has it now.
        pub(in crate::model) fn zero_unix_us(&self) -> u64 {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.saturating_sub(self.zero.elapsed()).as_micros()).unwrap_or(u64::MAX)
        }

        /// When this time comes, as the operating system counts.
        pub(in crate::model) fn instant(&self, at: Time) -> Option<Instant> {
            self.zero.checked_add(std::time::Duration::from_nanos(at.0))
        }
    }
}

#[cfg(feature = "shuttle")]
mod counted {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Time;

    /// A microsecond passes with every look.
    #[derive(Debug, Clone)]
    pub(in crate::model) struct Clock(Arc<AtomicU64>);

    impl Clock {
        pub(in crate::model) fn start() -> Clock {
            Clock(Arc::default())
        }

        pub(in crate::model) fn now(&self) -> Time {
            Time(self.0.fetch_add(1000, Ordering::Relaxed))
        }

        pub(in crate::model) fn zero_unix_us(&self) -> u64 {
            0
        }
    }
}
