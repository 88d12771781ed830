//! `sequor plugin bench`: how long its answers take on this machine.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, value_parser};
use serde::Serialize;

use super::{Failed, failed, file, machine, remote};
use crate::author::trial::{RunningGuest, Trial};
use crate::config::units::Span;

/// Candidates of a question.
const SIZES: [u32; 5] = [1, 8, 64, 256, 1024];

pub(super) fn command() -> Command {
    let span = Arg::new("for").long("for").value_name("DURATION").value_parser(value_parser!(Span));
    Command::new("bench")
        .about("Measure how long components take to load and to plan")
        .arg(file::argument())
        .arg(span.help("How long each size is measured [default: 300ms]"))
        .args(file::terms())
        .arg(remote::output())
}

/// What was measured of a component. Milliseconds and microseconds.
#[derive(Debug, Serialize)]
struct Measured {
    file: String,
    loading_ms: f64,
    starting_ms: f64,
    /// Empty, if it plans nothing.
    plans: Vec<Plans>,
    /// Bytes, at the end.
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

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let span = matches.get_one::<Span>("for").map_or(Duration::from_millis(300), |span| span.0);
    let (as_json, mut all) = (remote::wants_json(matches), Vec::new());
    for path in file::named(matches)? {
        let measured = one(&path, span, matches)?;
        if as_json {
            all.push(serde_json::json!(measured));
        } else {
            print!("{}", told(&measured));
        }
    }
    if as_json {
        remote::print_json(&all.into());
    }
    Ok(())
}

fn one(path: &Path, span: Duration, matches: &ArgMatches) -> Result<Measured, Failed> {
    let bytes = file::bytes(path).map_err(failed)?;
    let terms = file::of_terms(matches)?;
    let trial =
        Trial::new(path, &bytes, &machine(), terms).map_err(|refused| Failed::Configuration(refused.to_string()))?;
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
    Ok(Measured { file: path.display().to_string(), loading_ms, starting_ms, plans, memory: running.memory() })
}

fn told(measured: &Measured) -> String {
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

/// Calls until the time is over, ascending.
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

fn millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}
