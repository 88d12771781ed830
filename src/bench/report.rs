//! The results of a run, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::config::units::human;

use super::plan::{BenchPlan, Pace};
use super::recipe::Recipe;
use super::tally::{Errors, SenderTally};

#[derive(Debug, Clone, Serialize)]
pub struct BenchReport {
    pub model: String,
    pub address: String,
    pub streaming: bool,
    pub senders: usize,
    pub connections: usize,
    pub pipeline: usize,
    pub seconds: f64,
    /// Answered requests, successful or not.
    pub requests: u64,
    pub per_second: f64,
    pub errors: BTreeMap<String, Errors>,
    /// Answers with a wrong sum; `None` if sums were not checked.
    pub wrong_sums: Option<u64>,
    pub latency_us: Latency,
    pub realtime: Option<Realtime>,
    pub mean_batch: Option<f64>,
    pub server_pid: Option<u32>,
    pub server: Option<Cost>,
    /// Bytes of the server's memory.
    pub resident: Option<u64>,
    pub client: Option<Cost>,
}

/// Latency of successful answers, in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// How well streams kept the pace of speech.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Realtime {
    pub chunk_ms: f64,
    /// Streams with at most one in a hundred steps late.
    pub sustained: u64,
    /// Steps that were answered after the next step was due.
    pub late: u64,
    /// Steps that were not sent, because too many earlier ones were unanswered.
    pub skipped: u64,
}

/// CPU time.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cost {
    pub cpu_us_per_request: f64,
    pub cores: f64,
}

impl Cost {
    pub(super) fn new(spent: Duration, requests: u64, span: Duration) -> Cost {
        let spent = spent.as_secs_f64();
        Cost { cpu_us_per_request: spent * 1e6 / requests.max(1) as f64, cores: spent / span.as_secs_f64().max(1e-9) }
    }
}

impl BenchReport {
    pub(super) fn new(plan: &BenchPlan, recipe: &Recipe, all: &SenderTally, span: Duration) -> BenchReport {
        let requests = all.answered + all.failures();
        let (pipeline, realtime) = match plan.pace {
            Pace::Closed { pipeline, .. } => (pipeline, None),
            Pace::Open { chunk, .. } => {
                let chunk_ms = chunk.as_secs_f64() * 1e3;
                (1, Some(Realtime { chunk_ms, sustained: all.sustained, late: all.late, skipped: all.skipped }))
            }
        };
        let at = |share: f64| all.quantile(share);
        BenchReport {
            model: recipe.model.clone(),
            address: plan.address.clone(),
            streaming: plan.streaming,
            senders: plan.pace.senders(),
            connections: plan.connections.max(1),
            pipeline,
            seconds: span.as_secs_f64(),
            requests,
            per_second: requests as f64 / span.as_secs_f64().max(1e-9),
            errors: all.errors.clone(),
            wrong_sums: recipe.check_sums.then_some(all.wrong),
            latency_us: Latency { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0) },
            realtime,
            mean_batch: None,
            server_pid: None,
            server: None,
            resident: None,
            client: None,
        }
    }

    /// Whether every stream kept its pace. Always true for a closed loop.
    pub fn keeps_pace(&self) -> bool {
        self.realtime.is_none_or(|r| r.sustained == self.senders as u64)
    }

    pub fn failures(&self) -> u64 {
        self.errors.values().map(|e| e.count).sum()
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head())?;
        writeln!(f, "  requests  {:>9}   {:.0}/s   {} failed", self.requests, self.per_second, self.failures())?;
        let Latency { p50, p90, p99, p999, max } = self.latency_us;
        let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(span);
        writeln!(f, "  latency   p50 {p50}   p90 {p90}   p99 {p99}   p99.9 {p999}   max {max}")?;
        if let Some(Realtime { chunk_ms, sustained, late, skipped }) = self.realtime {
            let of = self.senders;
            writeln!(
                f,
                "  pace      {sustained} of {of} streams with p99 within {chunk_ms} ms   {late} steps late, {skipped} not sent"
            )?;
        }
        if let Some(wrong) = self.wrong_sums {
            writeln!(f, "  sums      {}", if wrong == 0 { "all right".to_owned() } else { format!("{wrong} WRONG") })?;
        }
        if let Some(batch) = self.mean_batch {
            writeln!(f, "  batch     {batch:.1} requests in the mean")?;
        }
        if let Some(Cost { cpu_us_per_request, cores }) = self.server {
            let pid = self.server_pid.map(|pid| format!("   pid {pid}")).unwrap_or_default();
            let memory = self.resident.map(|bytes| format!("   {} of memory", human(bytes))).unwrap_or_default();
            writeln!(f, "  server    {cpu_us_per_request:.1} us of CPU a request   {cores:.2} cores{memory}{pid}")?;
        }
        if let Some(Cost { cpu_us_per_request, cores }) = self.client {
            writeln!(f, "  client    {cpu_us_per_request:.1} us of CPU a request   {cores:.2} cores")?;
        }
        for (code, Errors { count, first }) in &self.errors {
            writeln!(f, "  {code} x {count}: {first}")?;
        }
        Ok(())
    }
}

impl BenchReport {
    fn head(&self) -> String {
        let s = |n: usize| if n == 1 { "" } else { "s" };
        let mut head = format!("{} at {}   ", self.model, self.address);
        let (senders, connections) = (self.senders, self.connections);
        let _ = match self.realtime {
            Some(r) => write!(head, "{senders} stream{} every {} ms", s(senders), r.chunk_ms),
            None => write!(head, "{senders} client{}", s(senders)),
        };
        let way = if self.streaming { "streaming" } else { "call by call" };
        let _ = write!(head, ", {way}, {connections} connection{}", s(connections));
        if self.pipeline > 1 {
            let _ = write!(head, ", {} in flight each", self.pipeline);
        }
        let _ = write!(head, ", {:.1} s", self.seconds);
        head
    }
}

fn span(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} us"),
        1000..10_000 => format!("{:.2} ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_cost_is_given_per_request_and_in_cores() {
        let cost = Cost::new(Duration::from_secs(3), 100_000, Duration::from_secs(2));
        assert_eq!((cost.cpu_us_per_request, cost.cores), (30.0, 1.5));
        assert_eq!([999, 1500, 25_040, 2_500_000].map(span), ["999 us", "1.50 ms", "25.0 ms", "2.50 s"]);
    }
}
