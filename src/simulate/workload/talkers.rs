//! Speech: steps at an even pace while a speaker talks, none in silence.

use std::time::Duration;

use sequor_core::Time;

use super::Workload;
use super::flow::{Common, Flow, Unit, flow, some_time, span_or};
use super::people::People;
use crate::config::units::Span;
use crate::simulate::random::Random;

flow! {
    /// `[[talkers]]`
    Talkers {
        /// Time between two steps; default 32 ms.
        step: Option<Span>,
        /// Mean length of a spurt of talk; default 3 s.
        talk: Option<Span>,
        /// Mean length of the silence after it; default 2 s.
        silence: Option<Span>,
        /// Maximum delay of a step.
        jitter: Option<Span>,
        /// The unit of a sequence: each spurt of talk, or the call with all its silences.
        sequence: Option<Unit>,
    }
}

impl Talkers {
    fn step(&self) -> Duration {
        span_or(self.step, Duration::from_millis(32))
    }

    fn talk_time(&self) -> Duration {
        span_or(self.talk, Duration::from_secs(3))
    }

    fn silence(&self) -> Duration {
        span_or(self.silence, Duration::from_secs(2))
    }
}

impl Flow for Talkers {
    fn common(&self) -> Common {
        self.common()
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        some_time("step", Span(self.step()))?;
        some_time("talk", Span(self.talk_time()))?;
        self.common().check()
    }

    fn expected(&self, span: Duration) -> f64 {
        let (talk, silence) = (self.talk_time().as_secs_f64(), self.silence().as_secs_f64());
        f64::from(self.sequences) * span.as_secs_f64() / self.step().as_secs_f64() * talk / (talk + silence)
    }

    fn arrive(&self, span: Duration, random: &mut Random, into: &mut Workload) {
        let mut people = People::new(self.common(), into);
        for place in 0..people.len() {
            // Speakers begin at different times.
            let mut at = random.up_to(self.talk_time() + self.silence());
            while at < span {
                at = self.spurt(place, at, span, &mut people, random, into);
                at += random.exponential(self.silence());
            }
        }
    }
}

impl Talkers {
    /// Adds one spurt of talk and returns its end.
    fn spurt(
        &self,
        place: usize,
        from: Duration,
        span: Duration,
        people: &mut People,
        random: &mut Random,
        into: &mut Workload,
    ) -> Duration {
        let (step, jitter) = (self.step(), span_or(self.jitter, Duration::ZERO));
        let steps = (random.exponential(self.talk_time()).as_secs_f64() / step.as_secs_f64()).ceil().max(1.0) as u64;
        let ends = self.sequence.unwrap_or_default() == Unit::Talk;
        let (mut due, mut before) = (from, from);
        for n in 1..=steps {
            // A step may be late, but never before the previous one.
            let at = (due + random.up_to(jitter)).max(before);
            if at >= span {
                return span;
            }
            people.step(place, Time::ZERO + at, ends && n == steps, random, into);
            (before, due) = (at, due + step);
        }
        due
    }
}
