//! Counts the calls of a plug-in at one model, and measures their times.

use std::time::Duration;

use hdrhistogram::Histogram;
use sequor_core::Time;

/// Seconds over which calls are averaged.
const SECONDS: usize = 10;
/// Maximum nanoseconds of a call in the histogram. A longer call counts as this long.
const LONGEST: u64 = 60_000_000_000;

#[derive(Debug)]
pub struct Meter {
    pub calls: u64,
    pub fallbacks: u64,
    pub stale: u64,
    /// Rounds in which a shadow would have decided differently, and all rounds.
    pub differs: (u64, u64),
    /// Calls per second: the second, and the number of calls in it.
    seconds: [(u64, u64); SECONDS + 1],
    /// Times of all calls in nanoseconds, to one digit.
    times: Option<Histogram<u64>>,
}

impl Default for Meter {
    fn default() -> Self {
        let (seconds, times) = ([(0, 0); SECONDS + 1], Histogram::new_with_max(LONGEST, 1).ok());
        Meter { calls: 0, fallbacks: 0, stale: 0, differs: (0, 0), seconds, times }
    }
}

impl Meter {
    pub fn called(&mut self, now: Time, took: Duration) {
        self.calls += 1;
        let second = now.0 / 1_000_000_000;
        let ix = usize::try_from(second).unwrap_or(0) % self.seconds.len();
        if let Some(place) = self.seconds.get_mut(ix) {
            *place = if place.0 == second { (second, place.1 + 1) } else { (second, 1) };
        }
        if let Some(times) = &mut self.times {
            times.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(LONGEST));
        }
    }

    /// Mean number of calls per second, over the last full seconds.
    pub fn per_second(&self, now: Time) -> f64 {
        let second = now.0 / 1_000_000_000;
        let recent = |s: u64| s < second && s + SECONDS as u64 >= second;
        let calls: u64 = self.seconds.iter().filter(|(s, _)| recent(*s)).map(|(_, n)| n).sum();
        calls as f64 / SECONDS as f64
    }

    /// The quantile of the calls' times, in microseconds. It is as exact as the histogram's buckets.
    pub fn quantile_us(&self, share: f64) -> f64 {
        self.times.as_ref().map_or(0.0, |times| times.value_at_quantile(share) as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_as_exact_as_their_buckets() {
        let mut meter = Meter::default();
        for us in 1..=100 {
            meter.called(Time(5_000_000_000), Duration::from_micros(us));
        }
        assert!((50.0..60.0).contains(&meter.quantile_us(0.5)), "{}", meter.quantile_us(0.5));
        assert!((99.0..118.0).contains(&meter.quantile_us(0.99)), "{}", meter.quantile_us(0.99));
        assert_eq!(Meter::default().quantile_us(0.5), 0.0);
    }

    #[test]
    fn the_rate_is_of_the_last_seconds() {
        let mut meter = Meter::default();
        let at = |s: u64| Time(s * 1_000_000_000);
        for s in 1..=30 {
            (0..4).for_each(|_| meter.called(at(s), Duration::ZERO));
        }
        assert_eq!((meter.per_second(at(31)), meter.per_second(at(36)), meter.per_second(at(99))), (4.0, 2.0, 0.0));
    }
}
