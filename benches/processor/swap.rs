//! Replaces a processor every second under 64 streams that check every sum. Prints the number of requests, of failures, and the time of a
//! swap.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::BenchResult;
use crate::calls::pass_through;
use crate::served::BenchServer;

const STREAMS: &str = "64";
const EVERY: Duration = Duration::from_secs(1);

pub(crate) fn figures(seconds: u64) -> BenchResult<()> {
    // They differ only in a newline, so each is another version with the same behaviour.
    let versions = ["scratch = \"8B\"\n", "scratch = \"8B\"\n\n"].map(pass_through);
    let served = BenchServer::new("swapped", Some(&versions[0]), 64)?;
    let admin = served.server.admin.clone().ok_or("no listener for operators")?;
    let file = served.folder.path().join("next.wasm");
    let (mut swaps, mut took) = (0usize, Vec::new());
    let duration = format!("{seconds}s");
    let report = std::thread::scope(|scope| -> BenchResult<_> {
        let asked = scope.spawn(|| {
            let flags = ["--streaming", "--clients", STREAMS, "--for", &duration];
            served.asked(&flags).map_err(|e| e.to_string())
        });
        let mut next = Instant::now() + EVERY;
        while !asked.is_finished() {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            next += EVERY;
            swaps += 1;
            std::fs::write(&file, &versions[swaps % 2])?;
            let began = Instant::now();
            let mut replace = Command::new(env!("CARGO_BIN_EXE_sequor"));
            replace.args(["plugin", "replace", "pass", "--from"]).arg(&file).env("SEQUOR_SERVER", &admin);
            let message = replace.output()?;
            if !message.status.success() {
                return Err(String::from_utf8_lossy(&message.stderr).into_owned().into());
            }
            took.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(asked.join().map_err(|_| "the load generator panicked")??)
    })?;
    took.sort_by(f64::total_cmp);
    println!(
        "{swaps} swaps in {seconds} s under {STREAMS} streams: {} requests, failed {}, wrong sums {}, p99 {} us; a swap took {:.0} ms (the middle one), {:.0} ms (the longest)",
        report["requests"],
        report["errors"],
        report["wrong_sums"],
        report["latency_us"]["p99"],
        took[took.len() / 2],
        took[took.len() - 1]
    );
    Ok(())
}
