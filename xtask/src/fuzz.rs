//! `cargo xtask fuzz`: runs the mutations of `tests/fuzz` for a chosen time, all targets at once, with a new seed for each run.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use crate::process::{self, MakeCargo};

/// Default number of seconds.
pub(crate) const SECONDS: u64 = 60;

/// Parses `[--seconds N]`.
pub(crate) fn fuzz(arguments: &[String]) -> Result<()> {
    let seconds = match arguments {
        [] => SECONDS,
        [flag, seconds] if flag == "--seconds" => seconds.parse()?,
        _ => bail!("cargo xtask fuzz takes `--seconds N`"),
    };
    process::run(&mut command(process::plain_cargo, seconds))
}

/// Runs each target for this long. Its output includes the seed that reproduces a fault.
pub(crate) fn command(cargo: MakeCargo, seconds: u64) -> Command {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = since.as_secs().to_string();
    eprintln!(
        "    FUZZ_SEED={seed}, {seconds} s each (a fault is found again by FUZZ_SEED={seed} FUZZ_SECONDS={seconds} cargo test --test fuzz)"
    );
    // Nextest selects all tests of the workspace, as in the previous phase. With fewer packages, the crates below would get other features
    // and compile again.
    let mut command = if process::succeeds(&mut process::plain_cargo(&["nextest", "--version"])) {
        let mut command = cargo(&["nextest", "run"]);
        command.args(["--workspace", "--locked", "--no-fail-fast", "--filter-expr", "binary(fuzz)"]);
        command.args(["--test-threads", "16", "--success-output", "immediate"]);
        command
    } else {
        let mut command = cargo(&["test"]);
        command.args(["--locked", "--workspace", "--test", "fuzz", "--", "--nocapture", "--test-threads=16"]);
        command
    };
    command.env("FUZZ_SEED", seed).env("FUZZ_SECONDS", seconds.to_string());
    command
}
