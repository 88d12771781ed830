//! The only random source: a portable generator, so that a seed gives the same numbers everywhere.

use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng as _;

/// A stream of random numbers. Streams of one seed with different names are independent.
#[derive(Debug, Clone)]
pub struct Random(Pcg64Mcg);

impl Random {
    pub fn new(seed: u64, stream: u64) -> Random {
        let (high, low) = (scramble(seed), scramble(stream ^ scramble(seed.rotate_left(32))));
        Random(Pcg64Mcg::new(u128::from(high) << 64 | u128::from(low)))
    }

    /// A uniform number from 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        // The upper 53 bits, as many as a double holds.
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A uniform number below `n`; 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.unit() * n as f64) as usize).min(n.saturating_sub(1))
    }

    /// A uniform time up to `span`.
    pub fn up_to(&mut self, span: Duration) -> Duration {
        span.mul_f64(self.unit())
    }

    /// An exponentially distributed time: the time to the next of random events that come once in `mean`.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }

    /// Number of tries until the first success, if `mean` are needed on average; at least 1.
    pub fn tries(&mut self, mean: f64) -> u64 {
        if mean <= 1.0 {
            return 1;
        }
        let failure = 1.0 - 1.0 / mean;
        1 + ((1.0 - self.unit()).ln() / failure.ln()) as u64
    }

    /// Draws an index with the probabilities of the shares. `sums` are the cumulated shares, the last of them 1.
    pub fn among(&mut self, sums: &[f64]) -> usize {
        let drawn = self.unit();
        sums.partition_point(|sum| *sum <= drawn).min(sums.len().saturating_sub(1))
    }
}

/// Spreads a small number over 64 bits (the finaliser of SplitMix64).
fn scramble(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_these_numbers_for_ever() {
        let mut random = Random::new(1, 0);
        let drawn: Vec<usize> = (0..8).map(|_| random.below(1000)).collect();
        assert_eq!(drawn, [726, 9, 84, 51, 404, 475, 65, 51]);
    }

    #[test]
    fn streams_of_a_seed_differ() {
        let draw = |seed, stream| {
            (0..4).map(|_| 0).scan(Random::new(seed, stream), |r, _: i32| Some(r.unit())).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn random_draws_have_the_requested_means() {
        let mut random = Random::new(7, 7);
        let n = 20_000;
        let spans: f64 = (0..n).map(|_| random.exponential(Duration::from_secs(2)).as_secs_f64()).sum();
        let tries: u64 = (0..n).map(|_| random.tries(5.0)).sum();
        assert!((spans / f64::from(n) - 2.0).abs() < 0.05, "{spans}");
        assert!((tries as f64 / f64::from(n) - 5.0).abs() < 0.1, "{tries}");
        assert_eq!((random.tries(1.0), random.below(0), random.below(1)), (1, 0, 0));
    }

    #[test]
    fn random_choices_follow_the_given_shares() {
        let mut random = Random::new(3, 0);
        let mut counts = [0u32; 3];
        for _ in 0..10_000 {
            counts[random.among(&[0.5, 0.9, 1.0])] += 1;
        }
        assert!((4800..5200).contains(&counts[0]) && (850..1150).contains(&counts[2]), "{counts:?}");
    }
}
