//! The one clock that drives the cores, in nanoseconds since the server began. Tests may use a clock that moves only when they advance it.
//! The interleaving tests use a counter, so that a schedule can be repeated. A [`Stopwatch`] measures a thread's work by the same clock.

use sequor_core::Time;

#[cfg(not(feature = "shuttle"))]
pub(in crate::model) use real::Stopwatch;

#[cfg(not(feature = "shuttle"))]
pub use real::Clock;

#[cfg(feature = "shuttle")]
pub(in crate::model) use crate::executor::OwnTime as Stopwatch;

#[cfg(feature = "shuttle")]
pub use counted::Clock;

#[cfg(not(feature = "shuttle"))]
mod real {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant, SystemTime};

    use super::Time;
    use crate::executor::OwnTime;

    /// Clones show the same time.
    #[derive(Debug, Clone)]
    pub struct Clock(Source);

    #[derive(Debug, Clone)]
    enum Source {
        /// The system's clock, with its instant of zero.
        System(Instant),
        Manual {
            now: Arc<AtomicU64>,
            /// Whether the duration of work is measured by this clock.
            times_work: bool,
        },
    }

    impl Default for Clock {
        /// The system's clock, from now on.
        fn default() -> Self {
            Clock(Source::System(Instant::now()))
        }
    }

    impl Clock {
        /// A clock for tests. Only [`Clock::advance`] moves it. The duration of work is still measured in real time.
        pub fn manual() -> Clock {
            Clock(Source::Manual { now: Arc::default(), times_work: false })
        }

        /// The same for tests of where short steps run: work takes no time while the clock stands still, even on a slow machine.
        #[cfg(test)]
        pub(in crate::model) fn manual_for_work() -> Clock {
            Clock(Source::Manual { now: Arc::default(), times_work: true })
        }

        /// Advances a manual clock. Has no effect on the system's clock.
        pub fn advance(&self, by: Duration) {
            if let Source::Manual { now, .. } = &self.0 {
                now.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        }

        pub fn now(&self) -> Time {
            match &self.0 {
                Source::System(zero) => Time(u64::try_from(zero.elapsed().as_nanos()).unwrap_or(u64::MAX)),
                Source::Manual { now, .. } => Time(now.load(Ordering::Relaxed)),
            }
        }

        /// Unix time of the clock's zero in microseconds, by the machine's current calendar.
        pub(in crate::model) fn zero_unix_us(&self) -> u64 {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let now = Duration::from_nanos(self.now().0);
            u64::try_from(since.saturating_sub(now).as_micros()).unwrap_or(u64::MAX)
        }

        /// The time since 1970. A manual clock's zero is 1970.
        pub(in crate::model) fn wall(&self) -> Duration {
            match &self.0 {
                Source::System(_) => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
                Source::Manual { now, .. } => Duration::from_nanos(now.load(Ordering::Relaxed)),
            }
        }

        /// Measures work that begins now on this thread.
        pub(in crate::model) fn stopwatch(&self) -> Stopwatch {
            match &self.0 {
                Source::Manual { times_work: true, .. } => Stopwatch::Manual { clock: self.clone(), began: self.now() },
                _ => Stopwatch::Own(OwnTime::begin()),
            }
        }

        /// The operating system's instant of this time. `None` for a manual clock, or if it cannot be represented.
        pub(in crate::model) fn instant(&self, at: Time) -> Option<Instant> {
            match &self.0 {
                Source::System(zero) => zero.checked_add(Duration::from_nanos(at.0)),
                Source::Manual { .. } => None,
            }
        }
    }

    /// The duration of a piece of work.
    #[derive(Debug)]
    pub(in crate::model) enum Stopwatch {
        /// Excludes the time in which the system ran other threads.
        Own(OwnTime),
        Manual {
            clock: Clock,
            began: Time,
        },
    }

    impl Stopwatch {
        pub(in crate::model) fn elapsed(&self) -> Duration {
            match self {
                Stopwatch::Own(time) => time.elapsed(),
                Stopwatch::Manual { clock, began } => clock.now() - *began,
            }
        }
    }
}

impl crate::processing::health::ProcessorTime for Clock {
    fn now(&self) -> Time {
        Clock::now(self)
    }
}

#[cfg(feature = "shuttle")]
mod counted {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use std::time::Instant;

    use super::Time;

    /// Advances by a microsecond at each reading.
    #[derive(Debug, Clone, Default)]
    pub struct Clock(Arc<AtomicU64>);

    impl Clock {
        pub fn now(&self) -> Time {
            Time(self.0.fetch_add(1000, Ordering::Relaxed))
        }

        pub(in crate::model) fn stopwatch(&self) -> super::Stopwatch {
            super::Stopwatch::begin()
        }

        /// An instant that a few more readings reach.
        pub(in crate::model) fn instant(&self, _: Time) -> Option<Instant> {
            Some(Instant::now())
        }

        pub(in crate::model) fn zero_unix_us(&self) -> u64 {
            0
        }

        pub(in crate::model) fn wall(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
    }
}
