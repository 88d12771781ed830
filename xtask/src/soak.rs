//! `cargo xtask soak`: load tests that take too long for every change, and the effect of hostile plug-ins on other models.

use anyhow::Result;

use crate::phases::Phases;
use crate::tally::{self, TestTally};
use crate::{guests, perf, process, runtime};

/// Seconds of streams, runs of Triton's load generator over streams, and loads of a model.
const SECONDS: &str = "60";
const RUNS: &str = "100";
const RELOADS: &str = "10000";

pub(crate) fn soak() -> Result<()> {
    let (mut phases, mut tally) = (Phases::new(), TestTally::default());
    phases.need("build", || {
        process::run(process::cargo().args(["build", "--locked", "--package", "sequor", "--bin", "sequor"]))?;
        Ok(String::new())
    })?;
    let sequor = process::built("debug", "sequor")?;
    phases.need("runtime", || runtime::ensure(&sequor))?;
    phases.need("guests", || guests::build(&sequor))?;
    phases.need("perf_analyzer", perf::ensure)?;
    let soaked = [
        ("streams", "load::streams_of_every_kind_return_correct_sums_and_leak_nothing"),
        ("memory of streams", "load::streams_that_are_closed_leave_no_sequence_behind"),
        ("swaps", "swap::"),
        ("reloads", "reloads::"),
        ("hostile plug-ins", "hostile::"),
        ("perf_analyzer", "perf::perf_analyzer_streams_sequences_repeatedly_without_failures"),
    ];
    for (phase, test) in soaked {
        phases.need(phase, || {
            let mut command = process::cargo();
            command.args(["test", "--locked", "--package", "sequor", "--test", "it", "--", test]);
            // One at a time, because they measure times.
            command
                .args(["--nocapture", "--test-threads", "1"])
                .env("SEQUOR_SOAK", SECONDS)
                .env("SEQUOR_SOAK_RUNS", RUNS)
                .env("SEQUOR_SOAK_RELOADS", RELOADS);
            command.env("SEQUOR_GUESTS", guests::folder());
            tally::run(command.env("SEQUOR_PERF_ANALYZER", perf::program()), &mut tally)
        })?;
    }
    eprint!("---\n{}", phases.table());
    Ok(())
}
