//! Records the CPU time of a call's thread at the first tick within the call. The ticker thread does that, so it also covers a guest that
//! never checks the epoch. A call that ends before a tick costs no clock read. [`super::budget`] decides whether a call took too long.
//!
//! A call that waits for a host function is suspended, and may resume on another thread. So it consists of segments, each on one thread.
//! The first one counts from its first tick. Every later one counts from its beginning to its end.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use nix::time::ClockId;
use parking_lot::Mutex;

/// The CPU clock of a thread, as Linux numbers it: `CPUCLOCK_SCHED` of one thread.
const OF_A_THREAD: i32 = 0b110;

thread_local! {
    /// The CPU clock of this thread, in the form that other threads can read.
    static OWN: i32 = !nix::unistd::gettid().as_raw() << 3 | OF_A_THREAD;
}

/// The clocks of all instances.
#[derive(Debug, Default)]
pub(crate) struct CallClocks(Mutex<Vec<Weak<ClockSample>>>);

/// The clock of one instance, which one thread at a time calls.
#[derive(Debug, Default, Clone)]
pub(crate) struct CallClock(Arc<ClockSample>);

#[derive(Debug, Default)]
struct ClockSample {
    /// Odd while a segment of a call runs; different for each segment.
    call: AtomicU64,
    /// The CPU clock of its thread.
    clock: AtomicI32,
    /// The clock's nanoseconds at the first tick in call `met`. Only ticks write these two.
    nanos: AtomicU64,
    met: AtomicU64,
    /// Nanoseconds of the earlier segments.
    used: AtomicU64,
    /// The clock when this segment began; 0 in the first one.
    resumed: AtomicU64,
}

impl CallClocks {
    pub(crate) fn add(&self) -> CallClock {
        let clock = CallClock::default();
        let mut all = self.0.lock();
        // Without a ticker (simulation) only this drops the clocks of ended instances.
        all.retain(|seen| seen.strong_count() > 0);
        all.push(Arc::downgrade(&clock.0));
        clock
    }

    pub(crate) fn tick(&self) {
        self.0.lock().retain(|seen| seen.upgrade().map(|seen| seen.tick()).is_some());
    }
}

impl ClockSample {
    fn tick(&self) {
        let call = self.call.load(Ordering::Acquire);
        if call.is_multiple_of(2) || self.met.load(Ordering::Relaxed) == call {
            return;
        }
        // If the call has ended by now, the value belongs to no call and is not read.
        if let Ok(now) = ClockId::from_raw(self.clock.load(Ordering::Relaxed)).now() {
            let nanos = u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX);
            self.nanos.store(nanos, Ordering::Relaxed);
            self.met.store(call, Ordering::Release);
        }
    }
}

impl CallClock {
    /// Begins a call on this thread.
    pub(crate) fn begin(&self) {
        self.0.used.store(0, Ordering::Relaxed);
        self.0.resumed.store(0, Ordering::Relaxed);
        self.begin_segment();
    }

    fn begin_segment(&self) {
        let call = self.0.call.load(Ordering::Relaxed);
        self.0.clock.store(OWN.with(|own| *own), Ordering::Relaxed);
        self.0.call.store(call + 1 + call % 2, Ordering::Release);
    }

    /// Suspends the call. The thread that ran it must call this.
    pub(crate) fn suspend(&self) {
        let began = match self.0.resumed.load(Ordering::Relaxed) {
            0 => self.at_first_tick(),
            nanos => Some(Duration::from_nanos(nanos)),
        };
        if let Some(began) = began {
            let spent = own_time().saturating_sub(began);
            self.0.used.fetch_add(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        self.end();
    }

    /// Resumes a suspended call on this thread. Has no effect on a call that runs.
    pub(crate) fn resume(&self) {
        if self.segment() % 2 == 1 {
            return;
        }
        let now = u64::try_from(own_time().as_nanos()).unwrap_or(u64::MAX).max(1);
        self.0.resumed.store(now, Ordering::Relaxed);
        self.begin_segment();
    }

    /// The number of the current segment.
    pub(crate) fn segment(&self) -> u64 {
        self.0.call.load(Ordering::Relaxed)
    }

    /// CPU time of the earlier segments.
    pub(crate) fn used(&self) -> Duration {
        Duration::from_nanos(self.0.used.load(Ordering::Relaxed))
    }

    /// The clock of this thread when this segment began; `None` in the first segment.
    pub(crate) fn resumed_at(&self) -> Option<Duration> {
        Some(self.0.resumed.load(Ordering::Relaxed)).filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    pub(crate) fn end(&self) {
        let call = self.0.call.load(Ordering::Relaxed);
        self.0.call.store(call + call % 2, Ordering::Release);
    }

    /// The CPU clock of this call's thread at the first tick; `None` before it.
    pub(crate) fn at_first_tick(&self) -> Option<Duration> {
        let call = self.0.call.load(Ordering::Relaxed);
        let met = call % 2 == 1 && self.0.met.load(Ordering::Acquire) == call;
        met.then(|| Duration::from_nanos(self.0.nanos.load(Ordering::Relaxed)))
    }
}

/// CPU time of this thread.
pub(crate) fn own_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tick_in_a_call_notes_the_clock_of_its_thread() {
        let clocks = CallClocks::default();
        let clock = clocks.add();
        clocks.tick();
        assert_eq!(clock.at_first_tick(), None, "no call is under way");
        for _ in 0..2 {
            clock.begin();
            assert_eq!(clock.at_first_tick(), None, "a new call");
            let before = own_time();
            std::thread::scope(|scope| scope.spawn(|| clocks.tick()).join()).unwrap();
            let noted = clock.at_first_tick().unwrap();
            assert!(before <= noted && noted <= own_time(), "{before:?} {noted:?}");
            clocks.tick();
            assert_eq!(clock.at_first_tick(), Some(noted), "the first");
            clock.end();
            assert_eq!(clock.at_first_tick(), None);
        }
    }

    #[test]
    fn segments_of_a_call_add_up_across_threads_without_the_gaps_between_them() {
        let clock = CallClocks::default().add();
        let spin = |most: Duration| {
            let began = own_time();
            while own_time() - began < most {}
        };
        clock.begin();
        let first = clock.segment();
        clock.resume();
        assert_eq!((clock.segment(), clock.used(), clock.resumed_at()), (first, Duration::ZERO, None), "under way");
        clock.suspend();
        assert_eq!(clock.used(), Duration::ZERO, "no tick met the first segment");
        let work = || {
            clock.resume();
            spin(Duration::from_millis(2));
            clock.suspend();
        };
        std::thread::scope(|scope| scope.spawn(work).join()).unwrap();
        let used = clock.used();
        assert!(used >= Duration::from_millis(2), "{used:?}");
        spin(Duration::from_millis(5));
        clock.resume();
        clock.suspend();
        assert!(clock.used() < used + Duration::from_millis(2), "suspended: {:?}", clock.used() - used);
        clock.begin();
        assert_eq!((clock.used(), clock.resumed_at()), (Duration::ZERO, None), "a new call");
    }

    #[test]
    fn the_clock_of_a_dropped_instance_is_forgotten() {
        let clocks = CallClocks::default();
        let (stays, goes) = (clocks.add(), clocks.add());
        drop(goes);
        clocks.tick();
        assert_eq!(clocks.0.lock().len(), 1);
        drop((stays, clocks.add()));
        let last = clocks.add();
        assert_eq!(clocks.0.lock().len(), 1, "without a tick as well");
        drop(last);
    }
}
