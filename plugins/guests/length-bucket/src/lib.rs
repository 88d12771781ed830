//! Length bucketing: only requests of similar length share a batch, so that there is little padding. The fullest bucket runs. A bucket that
//! is not full runs once its first request has waited long enough.

use sequor_plugin::scheduler::*;

#[derive(Debug, Default)]
pub struct LengthBucket {
    buckets: Vec<f64>,
    patience_us: u64,
}

impl Scheduler for LengthBucket {
    fn configure(&mut self, config: &Config, model: &Model) -> Result<(), String> {
        self.buckets = config.get("buckets")?;
        self.patience_us = config.get_or("patience_us", 2000)?;
        if !self.buckets.is_sorted() {
            return Err("buckets must ascend".into());
        }
        let known = model.numbers.iter().any(|name| name == "length");
        known.then_some(()).ok_or_else(|| "the model has no numeric feature \"length\"".into())
    }

    fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
        let mut buckets: Map<usize, Vec<u32>> = Map::new();
        for i in ready.indices() {
            let length = ready.number("length", i);
            buckets.entry(self.buckets.partition_point(|end| *end < length)).or_default().push(i);
        }
        let first = |of: &Vec<u32>| of.iter().map(|&i| ready.ready_us(i)).min().unwrap_or(u64::MAX);
        let due = |of: &Vec<u32>| first(of).saturating_add(self.patience_us);
        // Requests that have waited too long first, then the fullest bucket.
        let late = buckets.values().filter(|of| due(of) <= round.now_us).min_by_key(|of| due(of));
        let full = buckets.values().filter(|of| of.len() >= round.max_batch as usize).min_by_key(|of| due(of));
        match late.or(full) {
            Some(of) => Plan::fire(ready.batch(of.iter().copied(), round)),
            None => buckets.values().map(due).min().map_or_else(Plan::wait, Plan::wait_until_us),
        }
    }
}

sequor_plugin::export!(LengthBucket);

#[cfg(test)]
mod tests {
    use sequor_plugin::testing::{Bench, Candidate};

    use super::*;

    fn long(length: f64) -> Candidate {
        Candidate::new().number("length", length)
    }

    #[test]
    fn a_full_bucket_runs_at_once_and_a_partial_bucket_waits() {
        let mut bench =
            Bench::<LengthBucket>::new().numbers(&["length"]).max_batch(2).config(r#"{"buckets": [10, 20]}"#);
        assert_eq!(bench.plan(&[long(5.0), long(15.0), long(20.0)]).fire, [1, 2]);
        assert_eq!(bench.plan(&[long(5.0), long(15.0), long(21.0)]).wake_us, Some(2000));
        bench.round.now_us = 2000;
        assert_eq!(bench.plan(&[long(5.0), long(15.0), long(21.0)]).fire, [0]);
    }

    #[test]
    fn a_model_without_the_length_feature_is_refused() {
        let mut bench = Bench::<LengthBucket>::new().config(r#"{"buckets": [1]}"#);
        assert_eq!(bench.configure().unwrap_err(), "the model has no numeric feature \"length\"");
    }
}
