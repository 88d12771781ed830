//! The kinds of metrics: atomics that take a few nanoseconds to update, and their text form in a scrape. `names` names the metrics.
//!
//! The text is Prometheus' own format, version 0.0.4, where a sample has exactly the name of its `TYPE` line. The client library adds
//! `_total` to the names of counters, and Triton's counters have no such ending. So counters are written like gauges.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A counter. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Sets it to a count that is kept elsewhere.
    pub fn raise_to(&self, n: u64) {
        self.0.fetch_max(n, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl EncodeMetric for Counter {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Counter {
    const TYPE: MetricType = MetricType::Counter;
}

/// A sum of values that need not be integers. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Amount(Arc<AtomicU64>);

impl Amount {
    pub fn add(&self, value: f64) {
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // The closure always returns a value.
        let _ = self.0.fetch_update(Relaxed, Relaxed, add);
    }

    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

impl EncodeMetric for Amount {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Amount {
    const TYPE: MetricType = MetricType::Counter;
}

/// A sum of time, kept in nanoseconds and written in microseconds. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Micros(Counter);

impl Micros {
    pub fn add(&self, nanos: u64) {
        self.0.add(nanos);
    }

    pub fn nanos(&self) -> u64 {
        self.0.get()
    }
}

impl EncodeMetric for Micros {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&(self.nanos() / 1000))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Micros {
    const TYPE: MetricType = MetricType::Counter;
}

/// A number that goes up and down. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub fn set(&self, n: i64) {
        self.0.store(n, Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

impl EncodeMetric for Gauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Gauge {
    const TYPE: MetricType = MetricType::Gauge;
}

/// A number that is set. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct FloatGauge(Arc<AtomicU64>);

impl FloatGauge {
    pub fn set(&self, level: f64) {
        self.0.store(level.to_bits(), Relaxed);
    }
}

impl EncodeMetric for FloatGauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&f64::from_bits(self.0.load(Relaxed)))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for FloatGauge {
    const TYPE: MetricType = MetricType::Gauge;
}

/// A duration that is set, kept in nanoseconds and written in seconds.
#[derive(Debug, Clone, Default)]
pub struct Seconds(Arc<AtomicU64>);

impl Seconds {
    pub fn set(&self, span: Duration) {
        self.0.store(nanos(span), Relaxed);
    }
}

impl EncodeMetric for Seconds {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&(self.0.load(Relaxed) as f64 / 1e9))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Seconds {
    const TYPE: MetricType = MetricType::Gauge;
}

/// A histogram whose bounds double from bucket to bucket, so that the bucket of a value follows from its leading zeros.
///
/// Bounds are `first`, `2 first`, `4 first`, … and infinity. Values are integers. `scale` of their units make one unit of the output.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Doubling>);

#[derive(Debug)]
struct Doubling {
    first: u64,
    scale: f64,
    sum: AtomicU64,
    /// One bucket per bound, and one for values above the last bound.
    buckets: Box<[AtomicU64]>,
}

/// Bounds from 10 µs to 84 s.
const SECONDS_BOUNDS: usize = 24;
const SECONDS_FIRST: u64 = 10_000;
/// Bounds from 1 µs to 0.5 s.
const CALL_BOUNDS: usize = 20;
const CALL_FIRST: u64 = 1_000;
/// Bounds from 1 to 4096.
const COUNT_BOUNDS: usize = 13;

impl Histogram {
    /// A histogram for the short durations of calls: values in nanoseconds, output in seconds.
    pub fn calls() -> Histogram {
        Histogram::new(CALL_FIRST, CALL_BOUNDS, 1e9)
    }

    /// A histogram for durations: values in nanoseconds, output in seconds.
    pub fn seconds() -> Histogram {
        Histogram::new(SECONDS_FIRST, SECONDS_BOUNDS, 1e9)
    }

    /// A histogram for counts.
    pub fn counts() -> Histogram {
        Histogram::new(1, COUNT_BOUNDS, 1.0)
    }

    fn new(first: u64, bounds: usize, scale: f64) -> Histogram {
        let buckets = (0..=bounds).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Doubling { first, scale, sum: AtomicU64::new(0), buckets }))
    }

    /// Adds `times` equal values.
    pub fn observe(&self, value: u64, times: u64) {
        // The smallest k with value <= first << k.
        let steps = value.div_ceil(self.0.first).max(1);
        let k = (u64::BITS - (steps - 1).leading_zeros()) as usize;
        let last = self.0.buckets.len().saturating_sub(1);
        if let Some(bucket) = self.0.buckets.get(k.min(last)) {
            bucket.fetch_add(times, Relaxed);
            self.0.sum.fetch_add(value.saturating_mul(times), Relaxed);
        }
    }

    pub fn count(&self) -> u64 {
        self.0.buckets.iter().map(|b| b.load(Relaxed)).sum()
    }

    /// The sum of all values, in the output unit.
    pub fn sum(&self) -> f64 {
        self.0.sum.load(Relaxed) as f64 / self.0.scale
    }

    /// The upper bound of this quantile, in the output unit. `None` if there are no values. Bounds double, so the result is up to twice the
    /// actual value.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let bounds = self.bounds();
        let count: u64 = bounds.iter().map(|(_, n)| n).sum();
        let wanted = ((count as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let found = bounds.iter().find(|(_, n)| {
            seen += n;
            seen >= wanted
        });
        found.map(|(bound, _)| *bound)
    }

    fn bounds(&self) -> Vec<(f64, u64)> {
        let last = self.0.buckets.len().saturating_sub(1);
        let bound = |k: usize| if k == last { f64::INFINITY } else { (self.0.first << k) as f64 / self.0.scale };
        self.0.buckets.iter().enumerate().map(|(k, n)| (bound(k), n.load(Relaxed))).collect()
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let buckets = self.bounds();
        let count = buckets.iter().map(|(_, n)| n).sum();
        let sum = self.0.sum.load(Relaxed) as f64 / self.0.scale;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

/// A duration in nanoseconds, at most 585 years.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_of(histogram: &Histogram, value: u64) -> f64 {
        histogram.observe(value, 1);
        histogram.bounds().into_iter().find(|(_, n)| *n > 0).expect("a bucket").0
    }

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        for (value, bound) in [(0, 1.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 4.0), (5, 8.0), (4096, 4096.0)] {
            assert_eq!(bucket_of(&Histogram::counts(), value), bound, "{value}");
        }
        for (value, bound) in [(10_000, 1e-5), (10_001, 2e-5), (20_000, 2e-5), (20_001, 4e-5)] {
            assert_eq!(bucket_of(&Histogram::seconds(), value), bound, "{value}");
        }
    }

    #[test]
    fn a_quantile_is_the_upper_bound_of_its_bucket() {
        let histogram = Histogram::counts();
        assert_eq!(histogram.quantile(0.5), None);
        histogram.observe(1, 50);
        histogram.observe(3, 49);
        histogram.observe(9000, 1);
        let at = |part| histogram.quantile(part).expect("values");
        assert_eq!((at(0.0), at(0.5), at(0.51), at(0.99), at(1.0)), (1.0, 1.0, 4.0, 4.0, f64::INFINITY));
    }

    #[test]
    fn values_beyond_the_last_bound_are_counted() {
        assert_eq!(bucket_of(&Histogram::counts(), 4097), f64::INFINITY);
        assert_eq!(bucket_of(&Histogram::seconds(), u64::MAX), f64::INFINITY);
    }
}
