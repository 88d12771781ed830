//! The results of an experiment in three forms: a table, JSON, a page. The same experiment gives the same bytes in each.
//!
//! - `words`: formatting of numbers.
//! - `table`: the text on a terminal.
//! - [`page`]: one HTML file, readable without script · `plot`: its drawings.

pub mod page;
mod plot;
mod table;
mod words;

use serde::Serialize;

use super::cost::Costs;
use super::outcome::{Outcome, Quantiles};
use super::serving::{Expire, Serving};
use super::workload::{RecordedServing, Workload};

/// All results of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulationReport {
    pub schema: u32,
    pub workload: WorkloadFacts,
    pub costs: String,
    pub seed: u64,
    pub serving: ServingFacts,
    pub runs: Vec<Outcome>,
    pub live: Option<LiveFacts>,
    /// Notes on omitted or changed input.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadFacts {
    pub about: String,
    pub requests: u64,
    pub sequences: u32,
    pub tenants: usize,
    pub seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServingFacts {
    pub slots: u32,
    pub max_batch: u32,
    pub delay_us: u64,
    pub idle_us: Option<u64>,
    pub backlog_timeout_us: Option<u64>,
    pub backlog_levels: u32,
    pub max_wait_us: u64,
    pub rejects_expired: bool,
}

/// Waits of the day a trace was recorded, compared with the simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveFacts {
    pub strategy: Option<String>,
    pub wait: Quantiles,
    /// The run with the same serving, by its index in `runs`, if there is one.
    pub run: Option<usize>,
    /// The relative error of the simulator; `None` if nothing can be compared.
    pub off_p50: Option<f64>,
    pub off_p99: Option<f64>,
}

impl SimulationReport {
    pub(super) fn new(
        workload: &Workload,
        serving: &Serving,
        costs: &Costs,
        seed: u64,
        runs: Vec<Outcome>,
    ) -> SimulationReport {
        let micros = |span: std::time::Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let live = workload.live.as_ref();
        SimulationReport {
            schema: 1,
            workload: WorkloadFacts {
                about: workload.about.clone(),
                requests: workload.arrivals.len() as u64,
                sequences: workload.sequences,
                tenants: workload.tenants.len(),
                seconds: workload.span.as_secs_f64(),
            },
            costs: costs.origin.clone(),
            seed,
            serving: ServingFacts {
                slots: serving.slots,
                max_batch: serving.max_batch,
                delay_us: micros(serving.delay),
                idle_us: serving.idle.map(micros),
                backlog_timeout_us: serving.backlog_timeout.map(micros),
                backlog_levels: serving.backlog_levels,
                max_wait_us: micros(serving.max_wait),
                rejects_expired: serving.expire == Expire::Reject,
            },
            live: live.filter(|l| !l.waits.is_empty()).map(|live| LiveFacts::new(live, &runs)),
            notes: live.map(|l| l.notes.clone()).unwrap_or_default(),
            runs,
        }
    }

    /// The report as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }

    /// The name of a run: its policy, and its instances if several numbers were tried.
    fn name(&self, run: &Outcome) -> String {
        let several = self.runs.iter().any(|r| r.instances != run.instances);
        if several { format!("{} x{}", run.policy, run.instances) } else { run.policy.clone() }
    }
}

impl LiveFacts {
    fn new(live: &RecordedServing, runs: &[Outcome]) -> LiveFacts {
        let wait = Quantiles::from_sorted(&live.waits);
        let plain = |name: &str| if name == "edf" { "deadline".to_owned() } else { name.to_owned() };
        let alike = |run: &Outcome| {
            live.strategy.as_deref().is_some_and(|s| s == plain(&run.policy))
                && live.wishes.instances.as_ref().is_none_or(|n| n.contains(&run.instances))
        };
        let run = runs.iter().position(alike);
        let simulated = run.and_then(|n| runs.get(n)).map(|r| r.wait);
        LiveFacts {
            strategy: live.strategy.clone(),
            wait,
            run,
            off_p50: simulated.and_then(|s| off(s.p50_us, wait.p50_us)),
            off_p99: simulated.and_then(|s| off(s.p99_us, wait.p99_us)),
        }
    }
}

fn off(simulated: f64, seen: f64) -> Option<f64> {
    if seen > 0.0 { Some((simulated - seen).abs() / seen) } else { (simulated == 0.0).then_some(0.0) }
}
