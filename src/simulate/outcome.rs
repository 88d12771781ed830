//! The results of a run: the numbers of one row of the report. Percentiles are of the nearest rank, over every request.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Workload;
use super::tally::{NOT_TAKEN, SimTally};

/// One policy on one number of instances.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub policy: String,
    pub instances: u16,
    pub requests: u64,
    pub answered: u64,
    pub batches: Batches,
    pub slots: SlotUse,
    /// Time from arrival until the request's batch was taken.
    pub wait: Quantiles,
    /// Time from arrival to answer.
    pub answer: Quantiles,
    /// Deadlines of the requests that have one; `None` if no request has one.
    pub deadlines: Option<Deadlines>,
    /// Tenants, the busiest first.
    pub tenants: Vec<Tenant>,
    pub rejected: u64,
    pub rejected_by_reason: BTreeMap<&'static str, u64>,
    /// Requests neither answered nor refused when nothing could happen any more.
    pub unanswered: u64,
    /// Rounds of an external policy.
    pub rounds: Option<Rounds>,
    /// Lines about the external policy.
    #[serde(rename = "told", skip_serializing_if = "Vec::is_empty")]
    pub policy_lines: Vec<String>,
    /// The share of the instances' time during which a batch ran.
    pub busy: f64,
    /// Waits at increasing percentiles, for the plot: share of the requests, microseconds.
    #[serde(skip)]
    pub curve: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Batches {
    pub count: u64,
    /// Mean requests per batch.
    pub mean: f64,
    pub most: u32,
    /// Rows per request; 1 means no padding.
    pub rows_per_request: f64,
    /// Batches by size.
    pub sizes: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlotUse {
    pub all: u32,
    pub mean_used: f64,
    pub share: f64,
    /// Over time, in equal parts.
    pub over_time: Vec<f64>,
}

/// Quantiles in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Quantiles {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub most_us: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Deadlines {
    pub requests: u64,
    /// Answered late or not at all.
    pub missed: u64,
    pub share: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tenant {
    pub name: String,
    pub requests: u64,
    pub wait: Quantiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rounds {
    pub questions: u64,
    /// Mean time of a question.
    pub mean_us: f64,
    pub most_us: f64,
    pub fallbacks: u64,
    pub faults: u64,
    pub stale_picks: u64,
}

impl Outcome {
    /// `policy_lines`: lines about an external policy; `None` for a built-in one.
    pub(super) fn new(
        policy: &str,
        instances: u16,
        policy_lines: Option<Vec<String>>,
        workload: &Workload,
        mut tally: SimTally,
    ) -> Outcome {
        let requests = workload.arrivals.len() as u64;
        let (answered, rejected) = (tally.answers.len() as u64, tally.refused.values().sum());
        let with_deadline = workload.arrivals.iter().filter(|a| a.within.is_some()).count() as u64;
        let missed = with_deadline.saturating_sub(tally.in_time);
        let tenants = tenants(workload, &tally.waits);
        tally.waits.retain(|wait| *wait != NOT_TAKEN);
        tally.waits.sort_unstable();
        tally.answers.sort_unstable();
        Outcome {
            policy: policy.to_owned(),
            instances,
            requests,
            answered,
            batches: batches(&tally),
            slots: slots(&tally),
            wait: Quantiles::from_sorted(&tally.waits),
            answer: Quantiles::from_sorted(&tally.answers),
            deadlines: (with_deadline > 0).then(|| Deadlines {
                requests: with_deadline,
                missed,
                share: ratio(missed, with_deadline),
            }),
            tenants,
            rejected,
            unanswered: requests.saturating_sub(answered + rejected),
            rounds: policy_lines.is_some().then(|| rounds(&tally)),
            policy_lines: policy_lines.unwrap_or_default(),
            busy: tally.busy.as_nanos() as f64 / f64::from(instances.max(1)) / (tally.ended.0.max(1) as f64),
            curve: curve(&tally.waits),
            rejected_by_reason: tally.refused,
        }
    }

    /// The tenant with the longest p99, if there are several.
    pub fn worst_tenant(&self) -> Option<&Tenant> {
        let several = self.tenants.len() > 1;
        self.tenants.iter().filter(|_| several).max_by(|a, b| a.wait.p99_us.total_cmp(&b.wait.p99_us))
    }
}

impl Quantiles {
    /// The quantiles of ascending nanoseconds.
    pub(super) fn from_sorted(sorted: &[u64]) -> Quantiles {
        let sum: u128 = sorted.iter().map(|n| u128::from(*n)).sum();
        let at = |share: f64| micros(rank(sorted, share));
        Quantiles {
            mean_us: if sorted.is_empty() { 0.0 } else { sum as f64 / sorted.len() as f64 / 1e3 },
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            most_us: at(1.0),
        }
    }
}

/// The smallest value that this share of all values does not exceed.
fn rank(sorted: &[u64], share: f64) -> u64 {
    // 0.99 × 100 is a little more than 99 in doubles.
    let n = (share * sorted.len() as f64 - 1e-9).ceil().max(1.0) as usize;
    sorted.get(n.min(sorted.len()).saturating_sub(1)).copied().unwrap_or(0)
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

fn batches(tally: &SimTally) -> Batches {
    let count = tally.sizes.iter().sum();
    let sizes: BTreeMap<u32, u64> = (0u32..).zip(tally.sizes.iter().copied()).filter(|(_, n)| *n > 0).collect();
    let requests: u64 = sizes.iter().map(|(size, n)| u64::from(*size) * n).sum();
    let most = sizes.keys().next_back().copied().unwrap_or(0);
    Batches { count, mean: ratio(requests, count), most, rows_per_request: ratio(tally.rows, requests), sizes }
}

fn rounds(tally: &SimTally) -> Rounds {
    Rounds {
        questions: tally.questions,
        mean_us: ratio(super::tally::nanos(tally.pondered), tally.questions) / 1e3,
        most_us: micros(super::tally::nanos(tally.pondered_most)),
        fallbacks: tally.fallbacks,
        faults: tally.faults,
        stale_picks: tally.stale,
    }
}

fn slots(tally: &SimTally) -> SlotUse {
    let (all, mean_used) = (tally.slots.most, tally.slots.mean());
    SlotUse {
        all,
        mean_used,
        share: if all == 0 { 0.0 } else { mean_used / f64::from(all) },
        over_time: tally.slots.shares(),
    }
}

fn tenants(workload: &Workload, waits: &[u64]) -> Vec<Tenant> {
    let mut requests = vec![0u64; workload.tenants.len()];
    let mut of_each: Vec<Vec<u64>> = vec![Vec::new(); workload.tenants.len()];
    for (arrival, wait) in workload.arrivals.iter().zip(waits) {
        let n = usize::from(arrival.tenant);
        if let (Some(count), Some(waits)) = (requests.get_mut(n), of_each.get_mut(n)) {
            *count += 1;
            waits.extend((*wait != NOT_TAKEN).then_some(*wait));
        }
    }
    let one = |((name, requests), mut waits): ((&String, u64), Vec<u64>)| {
        waits.sort_unstable();
        Tenant { name: name.clone(), requests, wait: Quantiles::from_sorted(&waits) }
    };
    let mut tenants: Vec<Tenant> =
        workload.tenants.iter().zip(requests).zip(of_each).map(one).filter(|t| t.requests > 0).collect();
    tenants.sort_by_key(|t| std::cmp::Reverse(t.requests));
    tenants
}

/// From the first request to the slowest, in ever finer steps: 0, …, 90 %, …, 99 %, …, as far as the number of requests allows.
fn curve(sorted: &[u64]) -> Vec<(f64, f64)> {
    let decades = (sorted.len() as f64).log10().min(5.0);
    let steps = 24.0;
    let ends = (0..=(decades * steps) as u32).map(|n| 1.0 - 10f64.powf(-f64::from(n) / steps));
    if sorted.is_empty() { Vec::new() } else { ends.map(|share| (share, micros(rank(sorted, share)))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let sorted: Vec<u64> = (1..=100).map(|n| n * 1000).collect();
        let q = Quantiles::from_sorted(&sorted);
        assert_eq!(
            (q.p50_us, q.p90_us, q.p99_us, q.p999_us, q.most_us, q.mean_us),
            (50.0, 90.0, 99.0, 100.0, 100.0, 50.5)
        );
        assert_eq!(Quantiles::from_sorted(&[]), Quantiles::default());
        assert_eq!(Quantiles::from_sorted(&[7000]).p50_us, 7.0);
    }

    #[test]
    fn the_wait_curve_reaches_as_far_as_the_number_of_requests_allows() {
        let curve = curve(&(1..=1000).collect::<Vec<u64>>());
        assert_eq!(curve.first(), Some(&(0.0, 0.001)));
        let (share, wait) = curve.last().copied().unwrap();
        assert!((share - 0.999).abs() < 1e-9 && (wait - 0.999).abs() < 1e-9, "{share} {wait}");
    }
}
