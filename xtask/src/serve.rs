//! `cargo xtask serve`: from a fresh checkout to a serving server.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::phases::Phases;
use crate::{process, runtime};

pub(crate) fn serve(arguments: &[String]) -> Result<()> {
    let mut phases = Phases::new();
    phases.need("build", || {
        process::run(process::cargo().args([
            "build",
            "--release",
            "--locked",
            "--package",
            "sequor",
            "--bin",
            "sequor",
        ]))?;
        Ok(String::new())
    })?;
    let sequor = process::built("release", "sequor")?;
    phases.need("runtime", || runtime::ensure(&sequor))?;

    let mut serve = process::command(&sequor);
    serve.arg("serve");
    let own_repository = ["--model-repository", "--model-store"];
    if !arguments.iter().any(|a| own_repository.iter().any(|flag| a == flag || a.starts_with(&format!("{flag}=")))) {
        serve.args(["--model-repository", "models"]);
    }
    serve.args(arguments);
    eprintln!("--- {} (set up in {:.1} s)", process::shown(&serve), phases.elapsed().as_secs_f64());
    replace(serve).map(|never| match never {})
}

/// Replaces this process by the server, so that signals reach it and its exit code is ours.
fn replace(mut serve: std::process::Command) -> Result<Infallible> {
    Err(serve.exec()).with_context(|| format!("cannot start {}", process::shown(&serve)))
}
