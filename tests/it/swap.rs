//! Replaces a plug-in's version every second under continuous streams: no answer fails, no sum is wrong, and nothing is left behind.
//! `SEQUOR_SOAK=SECONDS` sets the duration; `cargo xtask soak` uses it.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::load::{resident, seconds, settled};
use crate::operator::{attach, attached, guest, load, replace};
use crate::server::{Call, Server};
use crate::steady::{Part, during};
use crate::steps::accumulators;

const STREAMS: usize = 64;
const EVERY: Duration = Duration::from_secs(1);
/// Minimum number of swaps, even on a slow machine.
const LEAST: u64 = 4;

fn start() -> Server {
    let call = Call::serve("repository").arguments(["--admin-upload=true"]).environment("SEQUOR_PLUGINS_TIME", "1s");
    let repository = call.folder.path().join("repository");
    accumulators(&repository, STREAMS as u32, 600_000_000);
    let tenant =
        "[[feature]]\nname = \"tenant\"\nfrom = \"parameter\"\nkey = \"tenant\"\ntype = \"key\"\ndefault = \"none\"\n";
    fs::write(repository.join("oldest/sequor.toml"), tenant).unwrap();
    call.start()
}

/// The median.
fn middle(of: &[u64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default() as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_a_scheduler_every_second_makes_no_sum_wrong() {
    let server = start();
    let versions = ["edf", "fair-share"].map(guest);
    let (mut memory, mut swaps, mut took) = (Vec::new(), 0u64, Vec::new());
    let parts = [Part::of("oldest", STREAMS)];
    let (shown, seen) = during(&server, &parts, async |progress| {
        // Both versions are compiled before the measurement, because compilation is not part of a swap.
        load(&server, "swapped", &versions[1]);
        attach(&server, "swapped", "oldest", json!({}));
        replace(&server, "swapped", &versions[0]);
        progress.everybody(20).await;
        let until = Instant::now() + seconds();
        let mut next = Instant::now();
        while Instant::now() < until || swaps < LEAST {
            swaps += 1;
            let began = Instant::now();
            let shown = replace(&server, "swapped", &versions[swaps as usize % 2]);
            took.push(began.elapsed());
            assert_eq!(shown["attached"][0]["state"], "active", "{shown}");
            progress.everybody(1).await;
            memory.push(resident(&server));
            next += EVERY;
            tokio::time::sleep_until(next.into()).await;
        }
        attached(&server, "swapped")
    })
    .await;
    assert!(seen[0].wrong.is_empty(), "{:#?}", seen[0].wrong);
    assert_eq!((&shown["strikes"], &shown["last_fault"]), (&json!(0), &json!(null)));
    let (first, second) = memory.split_at(memory.len() / 2);
    let settled = settled(&server, middle(first) * 1.1).await;
    // The two versions want different hooks and columns. Still a swap may cost no round.
    let fallbacks = shown["fallbacks"].as_u64().unwrap();
    assert_eq!(fallbacks, 0, "{shown}");
    let log = server.stop().stderr;
    let generations =
        log.lines().filter(|line| line.contains("plug-in changed") && line.contains("what=\"replace\"")).count();
    assert_eq!(generations as u64, swaps + 1, "one generation a swap, and the one before");
    let mib = |bytes: f64| bytes / 1048576.0;
    took.sort_unstable();
    println!(
        "swap: {swaps} in {} s under {STREAMS} streams: {} sums, 0 wrong, {fallbacks} rounds the built-in's, p99 {:.1} ms, slowest {:.1} ms; a swap took {:.1} ms (the middle one) \
         and {:.1} ms (the longest); resident {:.1} MiB in the first half, {:.1} MiB in the second",
        seconds().as_secs(),
        seen[0].sums(),
        seen[0].ms(0.99),
        seen[0].ms(1.0),
        took[took.len() / 2].as_secs_f64() * 1e3,
        took[took.len() - 1].as_secs_f64() * 1e3,
        mib(middle(first)),
        mib(middle(second)),
    );
    let grown = (settled as f64).min(middle(second));
    assert!(grown <= middle(first) * 1.1, "resident memory grows: {memory:?}, {settled} after all");
}
