//! Measures how many requests one core simulates in a second: one workload a line, each with a built-in policy. Arrivals are generated
//! beforehand and do not count. `cargo bench --bench simulate`.

use std::path::Path;
use std::time::{Duration, Instant};

use sequor::simulate::compared_policy::BuiltIn;
use sequor::simulate::driver::{self, Setup};
use sequor::simulate::file::WorkloadFile;
use sequor::simulate::{Costs, Serving};

const WORKLOADS: [(&str, &str); 3] = [
    ("poisson, batches of 32", "for = \"60s\"\n[[poisson]]\nrate = \"10000/s\"\nsequences = 1000\nsteps = 200\n"),
    ("poisson, batches of 1", "for = \"600s\"\n[[poisson]]\nrate = \"800/s\"\nsequences = 100\nsteps = 100\n"),
    ("talkers, 300 at once", "for = \"60s\"\n[[talkers]]\nsequences = 300\njitter = \"5ms\"\n"),
];
/// Time for which each measurement is repeated; the best run counts.
const LONG: Duration = Duration::from_millis(1500);

fn main() {
    println!("{:<26}{:>10}{:>12}{:>12}{:>12}   requests/s", "", "requests", "oldest", "direct", "edf");
    for (name, text) in WORKLOADS {
        let Ok(workload) = WorkloadFile::read(Path::new(name), text).and_then(|file| file.workload(1)) else {
            continue;
        };
        let serving = Serving { slots: 1024, max_batch: 32, ..Serving::default() };
        let costs = Costs::default();
        let rates = [BuiltIn::Oldest, BuiltIn::Direct, BuiltIn::Deadline].map(|built_in| {
            let spec = serving.spec(1, built_in);
            let setup = Setup { workload: &workload, serving: &serving, spec, costs: &costs, seed: 1 };
            format!("{:.2} M", workload.arrivals.len() as f64 / best(|| drop(driver::run(&setup, None))) / 1e6)
        });
        let [oldest, direct, edf] = rates;
        println!("{name:<26}{:>10}{oldest:>12}{direct:>12}{edf:>12}", workload.arrivals.len());
    }
}

/// Seconds of the fastest run. If the system reports it, in this thread's CPU time, so that other processes do not count.
fn best(mut run: impl FnMut()) -> f64 {
    let (began, mut best) = (Instant::now(), f64::MAX);
    while began.elapsed() < LONG {
        let (start, wall) = (own_time(), Instant::now());
        run();
        let took = start.zip(own_time()).map_or_else(|| wall.elapsed(), |(from, to)| to.saturating_sub(from));
        best = best.min(took.as_secs_f64());
    }
    best
}

/// CPU time of this thread, on Linux.
fn own_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
