//! Returns freed memory of requests to the system.
//!
//! The allocator keeps the memory that a thread frees until that thread allocates again. The threads of an idle server do not allocate.
//! While the process holds more memory than when it was idle, every socket thread returns its free memory every few seconds.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use crate::device::trim_thread;

/// Time between two rounds. After a round that returned almost nothing, the longer time applies.
const PAUSE: Duration = Duration::from_secs(5);
const LONG_PAUSE: Duration = Duration::from_secs(10);
/// Minimum memory above the idle level for a round.
const SLACK: u64 = 4 << 20;
/// A round that returns less than this returned almost nothing.
const LITTLE: u64 = 1 << 20;
/// Maximum time in which the threads can join a round. A thread that is always busy also allocates, so it needs no round.
const ROUND: Duration = Duration::from_millis(20);

/// Returns memory for as long as the server runs. Start it while the server is idle.
pub(super) async fn give_back() {
    let Some(idle) = anonymous() else { return };
    let mut level = IdleLevel::new(idle);
    let mut number = 0;
    loop {
        sleep(level.pause).await;
        let Some(before) = anonymous() else { return };
        if level.is_exceeded(before) {
            number += 1;
            round(number).await;
            level.returned(before, anonymous().unwrap_or(before));
        }
    }
}

/// The memory of the idle process: the lowest level seen so far.
#[derive(Debug)]
struct IdleLevel {
    idle: u64,
    pause: Duration,
}

impl IdleLevel {
    fn new(idle: u64) -> IdleLevel {
        IdleLevel { idle, pause: PAUSE }
    }

    /// Whether this many bytes may include free memory.
    fn is_exceeded(&mut self, bytes: u64) -> bool {
        self.idle = self.idle.min(bytes);
        let exceeded = bytes > self.idle + SLACK;
        if !exceeded {
            self.pause = PAUSE;
        }
        exceeded
    }

    /// Records that a round reduced the memory from `before` to `after` bytes.
    fn returned(&mut self, before: u64, after: u64) {
        self.idle = self.idle.min(after);
        self.pause = if before.saturating_sub(after) < LITTLE { LONG_PAUSE } else { PAUSE };
    }
}

thread_local! {
    /// The last round that this thread joined.
    static TOOK_PART: Cell<u64> = const { Cell::new(0) };
}

/// Lets every socket thread return its free memory. Returns the number of threads that did not join in time.
async fn round(number: u64) -> usize {
    let threads = Handle::current().metrics().num_workers();
    let (missing, deadline) = (Arc::new(AtomicUsize::new(threads)), Instant::now() + ROUND);
    let mut tasks = JoinSet::new();
    for _ in 0..threads {
        let missing = Arc::clone(&missing);
        tasks.spawn(async move {
            // A thread that has already joined leaves this task to another thread.
            while missing.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
                if TOOK_PART.replace(number) != number {
                    missing.fetch_sub(1, Ordering::Relaxed);
                    trim_thread();
                    return;
                }
                yield_now().await;
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    missing.load(Ordering::Relaxed)
}

/// Bytes of the process in memory, without pages of files. `None` if the system does not report them.
fn anonymous() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_above_the_idle_level_is_returned_until_none_is_left() {
        let mut level = IdleLevel::new(50 * MIB);
        assert!(!level.is_exceeded(54 * MIB));
        assert!(level.is_exceeded(300 * MIB));
        // The memory is in use at first, and later it is not.
        level.returned(300 * MIB, 300 * MIB);
        assert_eq!(level.pause, LONG_PAUSE);
        assert!(level.is_exceeded(300 * MIB));
        level.returned(300 * MIB, 52 * MIB);
        assert_eq!(level.pause, PAUSE);
        assert!(!level.is_exceeded(52 * MIB));
        // The idle level may decrease later.
        assert!(!level.is_exceeded(40 * MIB));
        assert!(level.is_exceeded(50 * MIB));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_thread_takes_part_in_a_round() {
        // A busy machine may leave a thread out of one round, but not of so many. All rounds have the same number, so each thread counts
        // once.
        let mut took_part = 0;
        for _ in 0..500 {
            took_part += 4 - round(1).await;
            if took_part == 4 {
                return;
            }
        }
        panic!("{took_part} of 4 threads took part");
    }
}
