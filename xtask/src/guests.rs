//! Plug-ins of the tests: the guests of `plugins/`, built by the very program that authors use. And their own tests, which need no WebAssembly.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::tally::{self, Tally};

/// Where the components lie once [`build`] has run, each as NAME.wasm.
pub(crate) fn folder() -> PathBuf {
    process::kept().join("guests")
}

/// A cargo command in the workspace of plug-ins.
pub(crate) fn cargo(subcommand: &str) -> Command {
    let mut cargo = process::cargo();
    cargo.args([subcommand, "--manifest-path", "plugins/Cargo.toml"]);
    cargo
}

/// Builds every guest, and the hostile one once with each of its manifests.
pub(crate) fn build(sequor: &Path) -> Result<String> {
    let mut well_behaved = plugin_build(sequor);
    well_behaved.args(entries(&process::root().join("plugins/guests"))?);
    process::run(&mut well_behaved)?;
    let mut hostile = plugin_build(sequor);
    hostile.arg("plugins/hostile").arg("--manifest").args(entries(&process::root().join("plugins/hostile/manifests"))?);
    process::run(&mut hostile)?;
    Ok(format!("{} components", entries(&folder())?.len()))
}

fn plugin_build(sequor: &Path) -> Command {
    let mut build = process::command(sequor);
    build.args(["plugin", "build", "--quiet", "--out"]).arg(folder());
    build
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>();
    let mut found = read().with_context(|| format!("cannot read {}", folder.display()))?;
    found.sort();
    Ok(found)
}

/// The lints and tests of the guests and of their kit, and whether the generated code is what the contract says.
pub(crate) fn test(tally: &mut Tally) -> Result<String> {
    process::run(cargo("run").args(["--quiet", "--locked", "--package", "sequor-plugin-bindings", "--", "--check"]))?;
    process::run(cargo("clippy").args([
        "--quiet",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    tally::run(cargo("test").args(["--quiet", "--workspace", "--locked"]), tally)
}
