//! `sequor plugin bench`: how long its answers take on this machine.

use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{Failed, failed, file, machine};
use crate::author::trial::{Running, Trial};
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
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let span = matches.get_one::<Span>("for").map_or(Duration::from_millis(300), |span| span.0);
    for path in file::named(matches)? {
        let bytes = file::bytes(&path).map_err(failed)?;
        let terms = file::of_terms(matches)?;
        let trial = Trial::new(&path, &bytes, &machine(), terms)
            .map_err(|refused| Failed::Configuration(refused.to_string()))?;
        let mut running = trial.start().map_err(failed)?;
        println!(
            "{}   load {}, start and configure {}",
            path.display(),
            millis(trial.loading),
            millis(running.starting)
        );
        if !running.hooks().plan {
            println!("it plans nothing");
            continue;
        }
        println!("{:>10}  {:>9}  {:>9}  {:>9}", "CANDIDATES", "BEST us", "p50", "p99");
        let window = running.window();
        for size in SIZES.into_iter().filter(|size| *size <= window) {
            let took = measure(&mut running, size, span).map_err(Failed::Failed)?;
            let at = |share: f64| micros(took.get((took.len() as f64 * share) as usize).copied().unwrap_or_default());
            println!("{size:>10}  {:>9}  {:>9}  {:>9}", at(0.0), at(0.5), at(0.99));
        }
        println!("memory {:.1} MiB", running.memory() as f64 / 1_048_576.0);
    }
    Ok(())
}

/// Calls until the time is over, ascending.
fn measure(running: &mut Running, size: u32, span: Duration) -> Result<Vec<Duration>, String> {
    let (began, mut took) = (Instant::now(), Vec::new());
    while took.len() < 20 || began.elapsed() < span {
        let round = took.len() as u64;
        took.push(running.plan(size, round)?);
    }
    took.sort_unstable();
    Ok(took)
}

fn micros(time: Duration) -> String {
    format!("{:.2}", time.as_nanos() as f64 / 1e3)
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_nanos() as f64 / 1e6)
}
