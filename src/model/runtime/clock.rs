//! The one clock that drives the cores, in nanoseconds since the server began. Tests may use a clock that stands still until they advance it.
//! The interleaving tests count instead, so that a schedule can be run again. A [`Stopwatch`] measures by the same clock how long a thread worked.

use sequor_core::Time;

#[cfg(not(feature = "shuttle"))]
pub(in crate::model) use real::Stopwatch;

#[cfg(not(feature = "shuttle"))]
pub use real::Clock;

#[cfg(feature = "shuttle")]
pub(in crate::model) use crate::telemetry::OwnTime as Stopwatch;

#[cfg(feature = "shuttle")]
pub use counted::Clock;

#[cfg(not(feature = "shuttle"))]
mod real {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant, SystemTime};

    use super::Time;
    use crate::telemetry::OwnTime;

    /// Clones show the same time.
    #[derive(Debug, Clone)]
    pub struct Clock(Source);

    #[derive(Debug, Clone)]
    enum Source {
        /// The system's clock, and where it stood at zero.
        System(Instant),
        Manual {
            now: Arc<AtomicU64>,
            /// Whether work takes as long as this clock says.
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
        /// A clock for tests. It moves by [`Clock::advance`] alone. How long work takes is measured as always.
        pub fn manual() -> Clock {
            Clock(Source::Manual { now: Arc::default(), times_work: false })
        }

        /// The same for tests of where short steps run: a step takes no time while the clock stands still, however slow the machine is.
        #[cfg(test)]
        pub(in crate::model) fn manual_for_work() -> Clock {
            Clock(Source::Manual { now: Arc::default(), times_work: true })
        }

        /// Moves a manual clock. The system's clock takes no notice.
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

        /// Microseconds from 1970 to the zero, as the machine's calendar has it now.
        pub(in crate::model) fn zero_unix_us(&self) -> u64 {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let now = Duration::from_nanos(self.now().0);
            u64::try_from(since.saturating_sub(now).as_micros()).unwrap_or(u64::MAX)
        }

        /// The time since 1970. A manual clock began then.
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

        /// When this time comes, as the operating system counts. `None` if it does not say.
        pub(in crate::model) fn instant(&self, at: Time) -> Option<Instant> {
            match &self.0 {
                Source::System(zero) => zero.checked_add(Duration::from_nanos(at.0)),
                Source::Manual { .. } => None,
            }
        }
    }

    /// How long a piece of work takes.
    #[derive(Debug)]
    pub(in crate::model) enum Stopwatch {
        /// Without the time in which the system ran other threads.
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

    /// A microsecond passes with every look.
    #[derive(Debug, Clone, Default)]
    pub struct Clock(Arc<AtomicU64>);

    impl Clock {
        pub fn now(&self) -> Time {
            Time(self.0.fetch_add(1000, Ordering::Relaxed))
        }

        pub(in crate::model) fn stopwatch(&self) -> super::Stopwatch {
            super::Stopwatch::begin()
        }

        /// It comes after some more looks.
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
