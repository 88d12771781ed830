//! Counters of a run. Every wait is kept, so that percentiles are exact.

use std::collections::BTreeMap;
use std::time::Duration;

use sequor_core::{Refusal, Time};

use super::Workload;
use crate::telemetry::refusal_reason;

/// The wait of a request that was never taken.
pub(super) const NOT_TAKEN: u64 = u64::MAX;

#[derive(Debug, Clone, Default)]
pub struct SimTally {
    /// Nanoseconds from its arrival until its batch was taken, for each request of the workload.
    pub(super) waits: Vec<u64>,
    /// Nanoseconds from its arrival until its answer, for each request answered.
    pub(super) answers: Vec<u64>,
    /// Number of requests answered within their deadline.
    pub(super) in_time: u64,
    pub(super) refused: BTreeMap<&'static str, u64>,
    /// Batches by their real rows.
    pub(super) sizes: Vec<u64>,
    /// Rows run, padding included.
    pub(super) rows: u64,
    pub(super) busy: Duration,
    pub(super) fallbacks: u64,
    pub(super) faults: u64,
    pub(super) stale: u64,
    /// Questions to an external policy, and their times.
    pub(super) questions: u64,
    pub(super) pondered: Duration,
    pub(super) pondered_most: Duration,
    pub(super) slots: LevelOverTime,
    /// The time of the last event.
    pub(super) ended: Time,
}

impl SimTally {
    pub(super) fn new(workload: &Workload, slots: u32) -> SimTally {
        let n = workload.arrivals.len();
        let slots = LevelOverTime::new(slots, workload.span);
        SimTally { waits: vec![NOT_TAKEN; n], answers: Vec::with_capacity(n), slots, ..SimTally::default() }
    }

    pub(super) fn taken(&mut self, workload: &Workload, n: u32, now: Time) {
        if let (Some(arrival), Some(wait)) = (workload.arrivals.get(n as usize), self.waits.get_mut(n as usize)) {
            *wait = nanos(now - arrival.at);
        }
    }

    pub(super) fn answered(&mut self, workload: &Workload, n: u32, now: Time) {
        let Some(arrival) = workload.arrivals.get(n as usize) else { return };
        let took = now - arrival.at;
        self.answers.push(nanos(took));
        self.in_time += u64::from(arrival.within.is_some_and(|within| took <= within));
    }

    pub(super) fn refused(&mut self, refusal: &Refusal) {
        *self.refused.entry(refusal_reason(refusal)).or_default() += 1;
    }

    pub(super) fn batch(&mut self, real: usize, rows: usize, time: Duration) {
        if self.sizes.len() <= real {
            self.sizes.resize(real + 1, 0);
        }
        if let Some(count) = self.sizes.get_mut(real) {
            *count += 1;
        }
        self.rows += rows as u64;
        self.busy += time;
    }

    pub(super) fn note_decision(&mut self, took: Duration) {
        self.questions += 1;
        self.pondered += took;
        self.pondered_most = self.pondered_most.max(took);
    }

    pub(super) fn close(&mut self, now: Time) {
        self.ended = now;
        self.slots.set(Time::ZERO + self.slots.span, 0);
    }
}

pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A number that changes over time, averaged as a whole and in equal parts.
#[derive(Debug, Clone, Default)]
pub(super) struct LevelOverTime {
    pub(super) most: u32,
    span: Duration,
    since: u64,
    level: u32,
    /// Level times nanoseconds, for each part.
    parts: Vec<u128>,
}

/// Number of parts of a span, as many as a plot shows.
const PARTS: usize = 120;

impl LevelOverTime {
    fn new(most: u32, span: Duration) -> LevelOverTime {
        LevelOverTime { most, span, since: 0, level: 0, parts: vec![0; PARTS] }
    }

    /// Sets the level from `now` on.
    pub(super) fn set(&mut self, now: Time, level: u32) {
        let until = now.0.min(nanos(self.span));
        if level == self.level && until < nanos(self.span) {
            return;
        }
        let width = self.width();
        while self.since < until {
            let part = self.since / width;
            let stop = until.min((part + 1) * width);
            if let Some(sum) = self.parts.get_mut(usize::try_from(part).unwrap_or(usize::MAX)) {
                *sum += u128::from(self.level) * u128::from(stop - self.since);
            }
            self.since = stop;
        }
        self.level = level;
    }

    fn width(&self) -> u64 {
        nanos(self.span).div_ceil(PARTS as u64).max(1)
    }

    /// The mean of each part, as a share of `most`. The last part may be shorter than the others.
    pub(super) fn shares(&self) -> Vec<f64> {
        let (width, span) = (self.width(), nanos(self.span));
        let share = |(n, sum): (u64, &u128)| {
            let long = span.saturating_sub(n * width).min(width);
            if long == 0 || self.most == 0 { 0.0 } else { *sum as f64 / long as f64 / f64::from(self.most) }
        };
        (0..).zip(&self.parts).map(share).collect()
    }

    /// The mean over the whole span.
    pub(super) fn mean(&self) -> f64 {
        let sum: u128 = self.parts.iter().sum();
        let span = nanos(self.span);
        if span == 0 { 0.0 } else { sum as f64 / span as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_averaged_over_time() {
        let mut level = LevelOverTime::new(10, Duration::from_nanos(1200));
        level.set(Time(0), 4);
        level.set(Time(600), 8);
        level.set(Time(900), 8);
        level.set(Time(5000), 0);
        assert_eq!(level.mean(), 6.0);
        let shares = level.shares();
        assert_eq!((shares.len(), shares[0], shares[59], shares[60], shares[119]), (120, 0.4, 0.4, 0.8, 0.8));
    }
}
