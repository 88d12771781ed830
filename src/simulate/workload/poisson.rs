//! Requests at random times, each from a random live sequence: many independent clients.

use std::time::Duration;

use sequor_core::Time;

use super::Workload;
use super::flow::{Common, Flow, flow};
use super::people::People;
use crate::simulate::random::Random;
use crate::simulate::rate::Rate;

flow! {
    /// `[[poisson]]`
    Poisson {
        /// Rate of requests, of all sequences together.
        rate: Rate,
    }
}

impl Flow for Poisson {
    fn common(&self) -> Common {
        self.common()
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        self.common().check()
    }

    fn expected(&self, span: Duration) -> f64 {
        self.rate.within(span)
    }

    fn arrive(&self, span: Duration, random: &mut Random, into: &mut Workload) {
        let mut people = People::new(self.common(), into);
        let gap = self.rate.gap();
        let mut at = Duration::ZERO;
        loop {
            at += random.exponential(gap);
            if at >= span {
                return;
            }
            let place = random.below(people.len());
            people.step(place, Time::ZERO + at, false, random, into);
        }
    }
}
