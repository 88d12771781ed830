//! `cargo xtask fuzz`: the mutations of `tests/fuzz` for as long as one likes, all targets at the same time, from a seed that no run had
//! before.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use crate::process;

/// How long without being told.
pub(crate) const SECONDS: u64 = 60;

/// Reads `[--seconds N]`.
pub(crate) fn fuzz(arguments: &[String]) -> Result<()> {
    let seconds = match arguments {
        [] => SECONDS,
        [flag, seconds] if flag == "--seconds" => seconds.parse()?,
        _ => bail!("cargo xtask fuzz takes `--seconds N`"),
    };
    process::run(&mut command(seconds))
}

/// The targets, each for so long. What they said is shown with the seed that brings a fault back.
pub(crate) fn command(seconds: u64) -> Command {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = since.as_secs().to_string();
    eprintln!(
        "    FUZZ_SEED={seed}, {seconds} s each (a fault is found again by FUZZ_SEED={seed} FUZZ_SECONDS={seconds} cargo test --test fuzz)"
    );
    let mut command = process::cargo();
    // Under nextest, all tests of the workspace are selected as in the phase before it: fewer would give the crates below them other features, and each
    // would be compiled again.
    if process::succeeds(process::cargo().args(["nextest", "--version"])) {
        command.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast", "--filter-expr", "binary(fuzz)"]);
        command.args(["--test-threads", "16", "--success-output", "immediate"]);
    } else {
        command.args(["test", "--locked", "--workspace", "--test", "fuzz", "--", "--nocapture", "--test-threads=16"]);
    }
    command.env("FUZZ_SEED", seed).env("FUZZ_SECONDS", seconds.to_string());
    command
}
