//! Enforces the limits of a call (CPU time of its thread, or instructions) and of a guest (memory).

use std::time::Duration;

use wasmtime::{ResourceLimiter, Trap, UpdateDeadline};

use super::call_clock::{CallClock, own_time};
use super::limits::{AT_START, room};
use super::urgency;

/// Instructions per nanosecond of a call's limit, if instructions are counted: about the speed of the guests of `plugins/`.
pub(crate) const FUEL_A_NANO: u64 = 8;
/// Maximum entries of a table. Languages with their own run time need some thousands.
pub(crate) const TABLE: usize = 100_000;

/// The CPU time of a call. It uses the CPU clock of the calling thread, because a guest that waits for a processor does not hang. Reading
/// that clock takes longer than a small plan, so the ticker thread reads it at the first tick. The guest's loops and functions check the
/// epoch: there a call is stopped between its limit and two ticks later. The host checks where the guest calls it, and once more when the
/// call has returned.
#[derive(Debug, Default)]
pub(crate) struct CpuTimer {
    limit: Duration,
    /// The thread's clock at the first tick of this segment, once it was read.
    since: Option<Duration>,
    /// The segment that `since` belongs to.
    segment: u64,
    clock: CallClock,
}

impl CpuTimer {
    pub(crate) fn new(clock: CallClock) -> CpuTimer {
        CpuTimer { clock, ..CpuTimer::default() }
    }

    /// The clock of this guest's calls.
    pub(crate) fn clock(&self) -> CallClock {
        self.clock.clone()
    }

    pub(crate) fn start(&mut self, limit: Duration) {
        (self.limit, self.since) = (limit, None);
        self.clock.begin();
        self.segment = self.clock.segment();
    }

    /// Gives the call more time. An error: the call has exceeded its limit.
    pub(crate) fn extend(&mut self, by: Duration) -> wasmtime::Result<()> {
        self.limit = self.limit.saturating_add(by);
        in_time(self.clock.used() < self.limit)
    }

    /// Drops the clock reading of an earlier segment. The present segment may run on another thread.
    fn notice_segment(&mut self) {
        let segment = self.clock.segment();
        if segment != self.segment {
            (self.segment, self.since) = (segment, None);
        }
    }

    /// Ends the call. An error: the call exceeded its limit.
    pub(crate) fn end(&mut self) -> wasmtime::Result<()> {
        let over = self.is_over();
        self.clock.end();
        in_time(!over)
    }

    /// Checks the time where the guest does not check the epoch. An error: the call has exceeded its limit. Before the first tick no clock
    /// is read.
    pub(crate) fn look(&mut self) -> wasmtime::Result<()> {
        in_time(!self.is_over())
    }

    fn is_over(&mut self) -> bool {
        self.notice_segment();
        self.has_ticked() && matches!(self.tick_at(own_time()), UpdateDeadline::Interrupt)
    }

    fn has_ticked(&self) -> bool {
        self.since.or_else(|| self.clock.at_first_tick()).is_some()
    }

    pub(crate) fn tick(&mut self) -> UpdateDeadline {
        self.notice_segment();
        // The first tick may meet any call, however short.
        if self.since.is_some() {
            urgency::takes_long();
        }
        self.tick_at(own_time())
    }

    fn tick_at(&mut self, now: Duration) -> UpdateDeadline {
        let clock = &self.clock;
        let since =
            *self.since.get_or_insert_with(|| clock.resumed_at().or_else(|| clock.at_first_tick()).unwrap_or(now));
        let spent = now.saturating_sub(since) + self.clock.used();
        if spent < self.limit { UpdateDeadline::Continue(1) } else { UpdateDeadline::Interrupt }
    }
}

fn in_time(is: bool) -> wasmtime::Result<()> {
    if is { Ok(()) } else { Err(Trap::Interrupt.into()) }
}

/// Memory use and memory limit of an instance.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The operator's maximum.
    given: Option<u64>,
    /// Bytes of its memories when they were created at start.
    at_start: u64,
    starting: bool,
    /// Bytes of its linear memories.
    pub(crate) used: u64,
    /// Bytes that its last refused request would have needed in total.
    pub(crate) refused: Option<u64>,
}

impl Memory {
    /// The memory of an instance that is about to start.
    pub(crate) fn new(given: Option<u64>) -> Memory {
        Memory { given, at_start: 0, starting: true, used: 0, refused: None }
    }

    /// Ends the start. Memories created later do not raise the limit.
    pub(crate) fn started(&mut self) {
        self.starting = false;
    }

    pub(crate) fn limit(&self) -> u64 {
        self.given.unwrap_or(self.at_start + room(self.at_start))
    }
}

impl ResourceLimiter for Memory {
    /// A refusal is an answer that the guest may handle. If it traps instead, the cause is reported as memory ([`super::call_error`]).
    fn memory_growing(&mut self, current: usize, desired: usize, most: Option<usize>) -> wasmtime::Result<bool> {
        // Beyond the memory's own maximum the growth fails anyway, so nothing is counted.
        if most.is_some_and(|most| desired > most) {
            return Ok(true);
        }
        let wanted = self.used.saturating_sub(current as u64).saturating_add(desired as u64);
        if self.starting && current == 0 {
            self.at_start = self.at_start.saturating_add(desired as u64).min(AT_START);
        }
        let granted = wanted <= self.limit();
        if granted {
            self.used = wanted;
        } else {
            self.refused = Some(wanted);
        }
        Ok(granted)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE)
    }

    fn instances(&self) -> usize {
        64
    }

    fn tables(&self) -> usize {
        32
    }

    fn memories(&self) -> usize {
        8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_from_the_first_tick_and_only_the_thread_s_own() {
        let ms = Duration::from_millis;
        let mut timer = CpuTimer::default();
        timer.start(ms(2));
        let went_on: Vec<bool> = [500, 500, 501, 501, 502]
            .into_iter()
            .map(|now| matches!(timer.tick_at(ms(now)), UpdateDeadline::Continue(1)))
            .collect();
        assert_eq!(went_on, [true, true, true, true, false]);
        timer.start(ms(2));
        assert!(matches!(timer.tick_at(ms(9000)), UpdateDeadline::Continue(1)), "a new call, a new limit");
    }

    /// Runs on its own thread, because the tested state belongs to the thread.
    #[test]
    fn a_call_met_by_a_single_tick_does_not_count_as_long() {
        let test = || {
            let mut timer = CpuTimer::default();
            for _ in 0..3 {
                timer.start(Duration::from_secs(60));
                timer.tick();
                assert!(timer.look().is_ok(), "it calls the host");
                assert!(!urgency::is_long());
            }
            timer.tick();
            assert!(urgency::is_long(), "more than from one tick to the next");
        };
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn all_memories_of_a_plug_in_share_one_limit() {
        let mut memory = Memory::new(Some(100));
        assert!(memory.memory_growing(0, 60, None).unwrap());
        assert!(memory.memory_growing(0, 30, None).unwrap());
        assert!(!memory.memory_growing(60, 80, None).unwrap());
        assert_eq!((memory.used, memory.refused), (90, Some(110)));
        assert!(memory.memory_growing(60, 70, None).unwrap());
        assert_eq!(memory.used, 100);
        assert!(memory.memory_growing(70, 90, Some(80)).unwrap());
        assert_eq!((memory.used, memory.refused), (100, Some(110)), "it fails of its own maximum");
    }

    #[test]
    fn an_unset_memory_limit_allows_a_margin_above_the_memory_at_start() {
        const MIB: usize = 1 << 20;
        let mut memory = Memory::new(None);
        assert!(memory.memory_growing(0, MIB / 2, None).unwrap() && memory.memory_growing(0, MIB / 2, None).unwrap());
        assert_eq!(memory.limit(), 17 << 20);
        memory.started();
        assert!(memory.memory_growing(MIB / 2, 33 * MIB / 2, None).unwrap(), "one that it started with, and 16");
        assert!(!memory.memory_growing(0, MIB, None).unwrap(), "another memory is none that it started with");
        let mut greedy = Memory::new(None);
        assert!(!greedy.memory_growing(0, 200 * MIB, None).unwrap());
        assert_eq!((greedy.refused, greedy.limit()), (Some(200 << 20), (64 + 128) << 20));
    }
}
