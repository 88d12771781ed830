//! The counts of one sender. They are summed at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Errors of one code.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Errors {
    pub count: u64,
    /// The text of the first of them.
    pub first: String,
}

#[derive(Debug)]
pub(super) struct SenderTally {
    /// Latency of successful answers, in microseconds.
    latency: Option<Histogram<u32>>,
    pub(super) answered: u64,
    pub(super) errors: BTreeMap<String, Errors>,
    /// Answers with a wrong sum.
    pub(super) wrong: u64,
    /// Steps that were answered after the next step was due, including failed ones.
    pub(super) late: u64,
    /// Steps that were not sent, because too many earlier ones were unanswered.
    pub(super) skipped: u64,
    /// Streams with at least 99 of 100 steps in time.
    pub(super) sustained: u64,
}

impl SenderTally {
    pub(super) fn new() -> SenderTally {
        SenderTally {
            latency: Histogram::new(3).ok(),
            answered: 0,
            errors: BTreeMap::new(),
            wrong: 0,
            late: 0,
            skipped: 0,
            sustained: 0,
        }
    }

    pub(super) fn answered(&mut self, took: Duration, wrong: bool) {
        self.answered += 1;
        self.wrong += u64::from(wrong);
        if let Some(latency) = &mut self.latency {
            // The histogram grows as needed; every span fits 64 bits.
            let _ = latency.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
        }
    }

    pub(super) fn failed(&mut self, code: &str, text: &str) {
        let errors = self.errors.entry(code.to_owned()).or_default();
        errors.count += 1;
        if errors.first.is_empty() {
            text.clone_into(&mut errors.first);
        }
    }

    pub(super) fn failures(&self) -> u64 {
        self.errors.values().map(|e| e.count).sum()
    }

    /// Decides whether this stream has kept its pace: its 99th percentile is within a chunk.
    pub(super) fn judge(&mut self) {
        let steps = self.answered + self.failures() + self.skipped;
        self.sustained = u64::from(steps > 0 && (self.late + self.skipped) * 100 <= steps);
    }

    pub(super) fn add(&mut self, other: &SenderTally) {
        if let (Some(all), Some(more)) = (&mut self.latency, &other.latency) {
            // Only fails if a histogram must not grow; these may.
            let _ = all.add(more);
        }
        for (code, errors) in &other.errors {
            let all = self.errors.entry(code.clone()).or_default();
            all.count += errors.count;
            if all.first.is_empty() {
                all.first.clone_from(&errors.first);
            }
        }
        self.answered += other.answered;
        self.wrong += other.wrong;
        self.late += other.late;
        self.skipped += other.skipped;
        self.sustained += other.sustained;
    }

    /// The latency in microseconds within which this share of the answers came.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        self.latency.as_ref().map_or(0, |l| l.value_at_quantile(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let mut all = SenderTally::new();
        for sender in 0..10u64 {
            let mut one = SenderTally::new();
            for n in 1..=100 {
                one.answered(Duration::from_micros(sender * 100 + n), n == 1);
            }
            one.failed("UNAVAILABLE", &format!("full {sender}"));
            all.add(&one);
        }
        assert_eq!((all.answered, all.wrong, all.failures()), (1000, 10, 10));
        assert_eq!(all.errors["UNAVAILABLE"], Errors { count: 10, first: "full 0".to_owned() });
        assert_eq!((all.quantile(0.5), all.quantile(1.0)), (500, 1000));
    }

    #[test]
    fn a_stream_keeps_its_pace_with_one_late_step_of_a_hundred() {
        let mut tally = SenderTally::new();
        (0..99).for_each(|_| tally.answered(Duration::from_millis(1), false));
        tally.failed("INTERNAL", "");
        tally.late = 1;
        tally.judge();
        assert_eq!(tally.sustained, 1);
        tally.skipped = 1;
        tally.judge();
        assert_eq!(tally.sustained, 0);
    }
}
