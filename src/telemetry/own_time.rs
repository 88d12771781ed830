//! Measures how long a piece of work occupied its thread, without the time in which the system ran other threads in its place.
//!
//! On a busy machine the system may take the processor from a thread for milliseconds in the middle of a step of some microseconds. The step is
//! not slow for that. Time that the work spends waiting by its own choice (for a lock, a disk, another thread) counts.

use std::time::{Duration, Instant};

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::inline_gate::SLOW;

/// A measurement that has begun on this thread and must end on it.
#[derive(Debug)]
pub struct OwnTime {
    began: Instant,
    usage: Option<Usage>,
}

impl OwnTime {
    pub fn begin() -> OwnTime {
        OwnTime { usage: getrusage(UsageWho::RUSAGE_THREAD).ok(), began: Instant::now() }
    }

    /// The time since then. A run that is short by the wall clock needs no closer look.
    pub fn elapsed(&self) -> Duration {
        let wall = self.began.elapsed();
        if wall <= SLOW {
            return wall;
        }
        let (Some(before), Ok(now)) = (&self.usage, getrusage(UsageWho::RUSAGE_THREAD)) else { return wall };
        if now.voluntary_context_switches() != before.voluntary_context_switches() {
            return wall;
        }
        wall.min(cpu(&now).saturating_sub(cpu(before)))
    }
}

/// CPU time of the thread, in user code and in the system.
fn cpu(usage: &Usage) -> Duration {
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_by_choice_counts() {
        let time = OwnTime::begin();
        std::thread::sleep(2 * SLOW);
        assert!(time.elapsed() >= 2 * SLOW);
    }

    #[test]
    fn computing_counts() {
        let time = OwnTime::begin();
        let began = cpu(&getrusage(UsageWho::RUSAGE_THREAD).unwrap());
        while cpu(&getrusage(UsageWho::RUSAGE_THREAD).unwrap()) - began < 3 * SLOW {}
        assert!(time.elapsed() >= 2 * SLOW);
    }
}
