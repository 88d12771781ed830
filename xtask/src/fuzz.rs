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
    // The whole workspace, as every other phase: one package alone has other features of the crates below it, and each of those were compiled twice.
    command.args(["test", "--locked", "--workspace", "--test", "fuzz", "--", "--nocapture", "--test-threads=16"]);
    command.env("FUZZ_SEED", seed).env("FUZZ_SECONDS", seconds.to_string());
    command
}
