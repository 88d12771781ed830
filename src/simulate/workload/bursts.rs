//! Many requests at once, then nothing: batch jobs, audio boxes that upload on the second, a reconnecting fleet.

use std::time::Duration;

use sequor_core::Time;

use super::Workload;
use super::flow::{Common, Flow, flow, some_time, span_or};
use super::people::People;
use crate::config::units::Span;
use crate::simulate::random::Random;

flow! {
    /// `[[bursts]]`
    Bursts {
        /// Time between two bursts.
        every: Span,
        /// Requests of a burst, each of a different sequence.
        size: u32,
        /// The time over which a burst's requests are spread.
        spread: Option<Span>,
    }
}

impl Flow for Bursts {
    fn common(&self) -> Common {
        self.common()
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        some_time("every", self.every)?;
        if self.size == 0 || self.size > self.sequences {
            let what = format!(
                "size must be 1 or more and at most sequences ({}): each request of a burst is of another sequence",
                self.sequences
            );
            return Err(("size", what));
        }
        self.common().check()
    }

    fn expected(&self, span: Duration) -> f64 {
        (span.as_secs_f64() / self.every.0.as_secs_f64()).ceil() * f64::from(self.size)
    }

    fn arrive(&self, span: Duration, random: &mut Random, into: &mut Workload) {
        let mut people = People::new(self.common(), into);
        let mut places: Vec<usize> = (0..people.len()).collect();
        let spread = span_or(self.spread, Duration::ZERO);
        let mut begin = Duration::ZERO;
        while begin < span {
            choose(&mut places, self.size as usize, random);
            for place in places.iter().take(self.size as usize) {
                let at = begin + random.up_to(spread);
                people.step(*place, Time::ZERO + at, false, random, into);
            }
            begin += self.every.0;
        }
    }
}

/// Moves `n` random entries to the front.
fn choose(places: &mut [usize], n: usize, random: &mut Random) {
    for i in 0..n.min(places.len()) {
        let j = i + random.below(places.len() - i);
        places.swap(i, j);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sequence_of_a_burst_is_chosen_twice() {
        let mut places: Vec<usize> = (0..10).collect();
        choose(&mut places, 4, &mut Random::new(1, 1));
        let mut all = places.clone();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert_ne!(places, all);
    }
}
