//! How long something takes, lately, for whoever does it only where it is short: a step of a load, a question to its plug-in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a socket's thread may be held up for.
const SHORT: Duration = Duration::from_micros(100);

/// A moving mean.
#[derive(Debug, Default)]
pub struct MeanTime(AtomicU64);

impl MeanTime {
    /// Notes one. One that was held up by something else does not outweigh many that were not.
    pub fn note(&self, took: Duration) {
        let took = u64::try_from(took.min(4 * SHORT).as_nanos()).unwrap_or(u64::MAX);
        let was = self.0.load(Ordering::Relaxed);
        let is = if was == 0 { took } else { was - was / 8 + took / 8 };
        self.0.store(is.max(1), Ordering::Relaxed);
    }

    /// Nothing is known any more: it is somebody else who does it.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether they are known to be short.
    pub fn is_short(&self) -> bool {
        let mean = self.0.load(Ordering::Relaxed);
        // Where every interleaving is tried, time is not asked.
        cfg!(feature = "shuttle") || (mean > 0 && u128::from(mean) <= SHORT.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_short_once_they_were_and_one_long_one_is_forgiven() {
        let time = MeanTime::default();
        assert!(!time.is_short(), "nothing is known");
        (0..2).for_each(|_| time.note(Duration::from_micros(20)));
        assert!(time.is_short());
        time.note(Duration::from_secs(1));
        assert!(time.is_short());
        (0..3).for_each(|_| time.note(Duration::from_secs(1)));
        assert!(!time.is_short());
        (0..20).for_each(|_| time.note(Duration::from_micros(20)));
        assert!(time.is_short());
        time.forget();
        assert!(!time.is_short());
    }
}
