//! `cargo xtask test`: everything that must hold before a change goes in, in one command.

use std::process::Command;

use anyhow::{Result, bail};

use crate::phases::Phases;
use crate::tally::{self, Tally};
use crate::{kernels, process, python, runtime, sounds};

pub(crate) fn test() -> Result<()> {
    let mut phases = Phases::new();
    let mut tally = Tally::default();
    let ran = run(&mut phases, &mut tally);
    eprint!("---\n{}", phases.table());
    eprintln!("     Summary [{:>8.3}s] {tally}; {}", phases.elapsed().as_secs_f64(), phases.verdict());
    ran?;
    if phases.failed() > 0 {
        bail!("failed");
    }
    Ok(())
}

fn run(phases: &mut Phases, tally: &mut Tally) -> Result<()> {
    phases.check("format", || quiet(process::cargo().args(["fmt", "--all", "--check"])));
    phases.check("lints", || {
        quiet(process::cargo().args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
    });
    phases.need("python", python::ensure)?;
    phases.check("models", models);
    phases.check("kernels", kernels::check);
    phases.need("sounds", sounds::ensure)?;
    phases.need("build", || {
        quiet(process::cargo().args(["build", "--locked", "--package", "sequor", "--bin", "sequor"]))
    })?;
    let sequor = process::built("debug", "sequor")?;
    phases.need("runtime", || runtime::ensure(&sequor))?;
    phases.check("tests", || tally::run(&mut tests(), tally));
    phases.check("planted faults", || tally::run(&mut planted(), tally));
    phases.check("interleavings", || tally::run(&mut interleavings(), tally));
    phases.check("doc tests", || {
        tally::run(with_environment(process::cargo().args(["test", "--workspace", "--locked", "--doc"])), tally)
    });
    Ok(())
}

fn quiet(command: &mut Command) -> Result<String> {
    process::run(command)?;
    Ok(String::new())
}

/// The committed models are what their makers make, and do what their pages say.
fn models() -> Result<String> {
    for arguments in
        [&["models/make.py", "--check"][..], &["models/fetch_vad.py", "--check"], &["tests/python/models.py"]]
    {
        process::run(process::command(python::interpreter()).env("PYTHONDONTWRITEBYTECODE", "1").args(arguments))?;
    }
    Ok(String::new())
}

/// Nextest where it is installed, else what cargo brings.
fn tests() -> Command {
    let mut tests = process::cargo();
    if process::succeeds(process::cargo().args(["nextest", "--version"])) {
        tests.args(["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]);
    } else {
        tests.args(["test", "--workspace", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"]);
    }
    with_environment(&mut tests);
    tests
}

/// The core with faults planted in it, one at a time: the properties must find each. A build of its own.
fn planted() -> Command {
    let mut tests = process::cargo();
    tests.args(["test", "--locked", "--package", "sequor-core", "--features", "planted", "--test", "planted"]);
    tests
}

/// The driver's lock under a scheduler that tries interleavings: a build of its own, for its locks are that scheduler's.
fn interleavings() -> Command {
    let mut tests = process::cargo();
    tests.args(["test", "--locked", "--package", "sequor", "--lib", "--features", "shuttle", "interleavings"]);
    tests
}

/// What tests that call Python programs need to know.
fn with_environment(command: &mut Command) -> &mut Command {
    command
        .env("SEQUOR_PYTHON", python::interpreter())
        .env("SEQUOR_SOUNDS", sounds::folder())
        .env("PYTHONDONTWRITEBYTECODE", "1")
}
