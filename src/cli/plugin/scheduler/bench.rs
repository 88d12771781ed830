//! Measures how long a scheduler's plans take.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::author::scheduler::trial::{RunningGuest, SchedulerTrial};
use crate::cli::Failed;
use crate::cli::plugin::world::{GivenComponent, Printed, millis};
use crate::cli::plugin::{failed, file};

/// Numbers of candidates in a question.
const SIZES: [u32; 5] = [1, 8, 64, 256, 1024];

/// The measurements of a component, in milliseconds and microseconds.
#[derive(Debug, Serialize)]
struct Measured {
    file: String,
    loading_ms: f64,
    starting_ms: f64,
    /// Empty if the component does not plan.
    plans: Vec<Plans>,
    /// Bytes of memory at the end.
    memory: u64,
}

#[derive(Debug, Serialize)]
struct Plans {
    candidates: u32,
    calls: usize,
    best_us: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Measures a scheduler.
pub(super) fn scheduler(given: GivenComponent<'_>, span: Duration) -> Result<Printed, Failed> {
    let measured = one(given, span)?;
    Ok(Printed { text: render(&measured), json: serde_json::json!(measured) })
}

fn one(given: GivenComponent<'_>, span: Duration) -> Result<Measured, Failed> {
    let options = file::trial_options(given.matches)?;
    let trial = SchedulerTrial::new(given.path, given.bytes, given.machine, options)
        .map_err(|refused| Failed::Configuration(refused.to_string()))?;
    let mut running = trial.start().map_err(failed)?;
    let (loading_ms, starting_ms) = (millis(trial.loading), millis(running.starting));
    let sizes = if running.hooks().plan { &SIZES[..] } else { &[] };
    let mut plans = Vec::new();
    let window = running.window();
    for candidates in sizes.iter().copied().filter(|size| *size <= window) {
        let took = measure(&mut running, candidates, span).map_err(Failed::Failed)?;
        let at = |share: f64| micros(took.get((took.len() as f64 * share) as usize).copied().unwrap_or_default());
        plans.push(Plans { candidates, calls: took.len(), best_us: at(0.0), p50_us: at(0.5), p99_us: at(0.99) });
    }
    Ok(Measured { file: given.path.display().to_string(), loading_ms, starting_ms, plans, memory: running.memory() })
}

fn render(measured: &Measured) -> String {
    let Measured { file, loading_ms, starting_ms, plans, memory } = measured;
    let mut text = format!("{file}   load {loading_ms:.1} ms, start and configure {starting_ms:.1} ms\n");
    if plans.is_empty() {
        return text + "it plans nothing\n";
    }
    text += &format!("{:>10}  {:>9}  {:>9}  {:>9}\n", "CANDIDATES", "BEST us", "p50", "p99");
    for Plans { candidates, best_us, p50_us, p99_us, .. } in plans {
        text += &format!("{candidates:>10}  {best_us:>9.2}  {p50_us:>9.2}  {p99_us:>9.2}\n");
    }
    text + &format!("memory {:.1} MiB\n", *memory as f64 / 1_048_576.0)
}

/// Measures calls until the time is over. Returns the times, ascending.
fn measure(running: &mut RunningGuest, size: u32, span: Duration) -> Result<Vec<Duration>, String> {
    let (began, mut took) = (Instant::now(), Vec::new());
    while took.len() < 20 || began.elapsed() < span {
        let round = took.len() as u64;
        took.push(running.plan(size, round)?);
    }
    took.sort_unstable();
    Ok(took)
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
