//! The clock and the random source of a guest: the machine's, or virtual ones if a run must be repeatable.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;

use super::engine::Mode;

/// Maximum random bytes of one call.
const BYTES: u64 = 65_536;

#[derive(Debug)]
pub(crate) struct ClockAndRandom {
    /// The time of the question, if every run must be the same.
    virtual_now: Option<Duration>,
    start: Instant,
    random: Pcg64Mcg,
}

impl Default for ClockAndRandom {
    fn default() -> Self {
        let (a, b) = (RandomState::new().hash_one(0), RandomState::new().hash_one(1));
        let random = Pcg64Mcg::new(u128::from(a) << 64 | u128::from(b));
        ClockAndRandom { virtual_now: None, start: Instant::now(), random }
    }
}

impl ClockAndRandom {
    pub(crate) fn for_mode(mode: Mode) -> ClockAndRandom {
        match mode {
            Mode::Serving => ClockAndRandom::default(),
            Mode::Simulation => {
                ClockAndRandom { virtual_now: Some(Duration::ZERO), start: Instant::now(), random: Pcg64Mcg::new(1) }
            }
        }
    }

    /// Sets the time of a question, if time is virtual.
    pub(crate) fn ask_at(&mut self, nanos: u64) {
        if let Some(now) = &mut self.virtual_now {
            *now = Duration::from_nanos(nanos);
        }
    }

    /// Time since the instance began.
    pub(crate) fn monotonic(&self) -> Duration {
        self.virtual_now.unwrap_or_else(|| self.start.elapsed())
    }

    pub(crate) fn wall(&self) -> Duration {
        self.virtual_now.unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
    }

    pub(crate) fn bytes(&mut self, count: u64) -> wasmtime::Result<Vec<u8>> {
        if count > BYTES {
            return Err(wasmtime::format_err!("{count} random bytes at once; at most {BYTES}"));
        }
        let mut bytes = vec![0; usize::try_from(count)?];
        self.random.fill_bytes(&mut bytes);
        Ok(bytes)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.random.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_stays_fixed_and_random_bytes_repeat() {
        let draw = || {
            let mut given = ClockAndRandom::for_mode(Mode::Simulation);
            given.ask_at(5_000);
            (given.monotonic(), given.wall(), given.bytes(32).unwrap())
        };
        assert_eq!(draw(), draw());
        assert_eq!((draw().0, draw().1), (Duration::from_micros(5), Duration::from_micros(5)));
        assert_ne!(ClockAndRandom::default().bytes(32).unwrap(), ClockAndRandom::default().bytes(32).unwrap());
        assert!(ClockAndRandom::default().bytes(BYTES + 1).is_err());
    }
}
