//! Measures the time that a piece of work occupied its thread, without the time in which the system ran other threads instead.
//!
//! On a busy machine, the system may take the processor from a thread for milliseconds during a step of a few microseconds. That does not
//! make the step slow. Time that the work itself waits (for a lock, a disk, another thread) counts.
//!
//! Work that is short by the wall clock needs no system call. Only for longer work are the thread's counters read. Their values before the
//! work come from an earlier reading, which is at most [`LATEST`] old. The two readings may not show whether an event happened before or
//! during the work. Then the smallest certain time counts, and for [`CLOSE_LOOK`] this thread reads its counters before every piece of
//! work.

use std::cell::Cell;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

use super::inline_gate::SLOW;

/// Maximum age of a reading with which work may begin.
const LATEST: Duration = Duration::from_millis(10);
/// After a measurement in doubt, the time for which a thread reads its counters before every piece of work.
const CLOSE_LOOK: Duration = Duration::from_secs(10);
/// Work longer than this by the wall clock counts completely, even in doubt: the system seldom runs other threads for so long.
const DOUBT: Duration = Duration::from_millis(20);

thread_local! {
    static LAST: Cell<Option<ThreadUsage>> = const { Cell::new(None) };
    static CLOSE_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A measurement that has begun on this thread and must end on it.
#[derive(Debug)]
pub struct OwnTime {
    began: Instant,
    before: Option<ThreadUsage>,
}

/// The system's counters of a thread.
#[derive(Debug, Clone, Copy)]
struct ThreadUsage {
    at: Instant,
    /// CPU time, user and system.
    cpu: Duration,
    /// Voluntary context switches: the thread gave up its processor to wait.
    waits: i64,
    /// Involuntary context switches: the system ran another thread instead.
    preemptions: i64,
}

/// The time of work, as far as two readings determine it.
#[derive(Debug, PartialEq, Eq)]
enum Own {
    Certain(Duration),
    AtLeast(Duration),
}

impl OwnTime {
    pub fn begin() -> OwnTime {
        let began = Instant::now();
        let is_recent = |last: &ThreadUsage| began.saturating_duration_since(last.at) < LATEST;
        let last = LAST.get().filter(is_recent).filter(|_| CLOSE_UNTIL.get().is_none_or(|until| began >= until));
        let before = last.or_else(|| {
            let reading = ThreadUsage::now(began);
            LAST.set(reading);
            reading
        });
        OwnTime { began, before }
    }

    /// The time since the measurement began, without the time of other threads.
    pub fn elapsed(&self) -> Duration {
        let now = Instant::now();
        let wall = now - self.began;
        if wall <= SLOW {
            return wall;
        }
        let after = ThreadUsage::now(now);
        LAST.set(after);
        let (Some(before), Some(after)) = (&self.before, &after) else { return wall };
        match own(wall, self.began.saturating_duration_since(before.at), before, after) {
            Own::Certain(own) => own,
            Own::AtLeast(_) if wall > DOUBT => wall,
            Own::AtLeast(own) => {
                CLOSE_UNTIL.set(Some(now + CLOSE_LOOK));
                own
            }
        }
    }
}

impl ThreadUsage {
    fn now(at: Instant) -> Option<ThreadUsage> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        // The CPU time in `usage` may be as old as the system's last tick: up to 10 ms of work too little now are too much later.
        let cpu = Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?);
        Some(ThreadUsage {
            at,
            cpu,
            waits: usage.voluntary_context_switches(),
            preemptions: usage.involuntary_context_switches(),
        })
    }
}

/// The thread's own part of work that took `wall`. The first reading is `lead` older than the work.
fn own(wall: Duration, lead: Duration, before: &ThreadUsage, after: &ThreadUsage) -> Own {
    if after.preemptions == before.preemptions {
        return Own::Certain(wall);
    }
    let (waited, cpu) = (after.waits != before.waits, after.cpu.saturating_sub(before.cpu));
    match (lead.is_zero(), waited) {
        (true, true) => Own::Certain(wall),
        (true, false) => Own::Certain(wall.min(cpu)),
        // All CPU time since the first reading is short, so that of the work is, too.
        (false, false) if cpu <= SLOW => Own::Certain(wall.min(cpu)),
        (false, _) => match wall.min(cpu.saturating_sub(lead)) {
            least if least > SLOW => Own::Certain(least),
            least => Own::AtLeast(least),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test on a new thread, whose first work begins with a reading.
    fn on_a_thread(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join()).unwrap();
    }

    fn cpu() -> Duration {
        ThreadUsage::now(Instant::now()).unwrap().cpu
    }

    #[test]
    fn own_time_counts_voluntary_waiting() {
        on_a_thread(|| {
            let time = OwnTime::begin();
            std::thread::sleep(2 * SLOW);
            assert!(time.elapsed() >= 2 * SLOW);
        });
    }

    #[test]
    fn own_time_counts_computing() {
        on_a_thread(|| {
            let time = OwnTime::begin();
            let began = cpu();
            while cpu() - began < 3 * SLOW {}
            assert!(time.elapsed() >= 2 * SLOW);
        });
    }

    #[test]
    fn short_work_reads_no_counters_after_the_first() {
        on_a_thread(|| {
            let first = OwnTime::begin().before.unwrap().at;
            let later = OwnTime::begin();
            // If this thread lost its processor for that long, there is a new reading.
            assert!(later.before.unwrap().at == first || later.began - first >= LATEST);
            CLOSE_UNTIL.set(Some(Instant::now() + CLOSE_LOOK));
            let close = OwnTime::begin();
            assert_eq!(close.before.unwrap().at, close.began);
        });
    }

    #[test]
    fn readings_distinguish_waiting_and_computing_from_preemption() {
        let ms = Duration::from_millis;
        let at = Instant::now();
        let before = ThreadUsage { at, cpu: ms(7), waits: 3, preemptions: 5 };
        let after = |cpu: u64, waits: i64, preemptions: i64| ThreadUsage {
            at,
            cpu: ms(7 + cpu),
            waits: 3 + waits,
            preemptions: 5 + preemptions,
        };
        let fresh = |after: ThreadUsage| own(ms(4), Duration::ZERO, &before, &after);
        assert_eq!(fresh(after(0, 0, 0)), Own::Certain(ms(4)), "its processor was never another's");
        assert_eq!(fresh(after(1, 0, 1)), Own::Certain(ms(1)), "the rest was another's");
        assert_eq!(fresh(after(0, 1, 1)), Own::Certain(ms(4)), "it waited");
        let stale = |after: ThreadUsage| own(ms(4), ms(8), &before, &after);
        assert_eq!(stale(after(5, 2, 0)), Own::Certain(ms(4)), "not preempted since long before");
        assert_eq!(stale(after(1, 0, 1)), Own::Certain(ms(1)), "even all of it is short");
        assert_eq!(stale(after(11, 0, 1)), Own::Certain(ms(3)), "no more than 8 of them can be from before");
        assert_eq!(stale(after(5, 0, 1)), Own::AtLeast(ms(0)));
        assert_eq!(stale(after(1, 1, 1)), Own::AtLeast(ms(0)), "it may have waited before");
    }
}
