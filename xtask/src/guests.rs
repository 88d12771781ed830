//! Builds the plug-ins of the tests, the guests of `plugins/`, with the program that authors use. Also runs their own tests, which need no
//! WebAssembly.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::tally::{self, TestTally};
use crate::{node, process, python};

/// The folder of the components, each as NAME.wasm. Exists once [`build`] has run.
pub(crate) fn folder() -> PathBuf {
    process::kept().join("guests")
}

/// The folder of the authors' tools, kept so that tests fetch nothing twice.
pub(crate) fn tools() -> PathBuf {
    process::kept().join("tools")
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
    well_behaved.args(entries(&process::root().join("plugins/guests-python"))?);
    well_behaved.arg("plugins/hostile-python");
    process::run(&mut well_behaved)?;
    let mut hostile = plugin_build(sequor);
    hostile.arg("plugins/hostile").arg("--manifest").args(entries(&process::root().join("plugins/hostile/manifests"))?);
    process::run(&mut hostile)?;
    Ok(format!("{} components", entries(&folder())?.len()))
}

fn plugin_build(sequor: &Path) -> Command {
    let mut build = process::command(sequor);
    build.env("SEQUOR_CACHE", tools()).args(["plugin", "build", "--quiet", "--out"]).arg(folder());
    build
}

pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>();
    let mut found = read().with_context(|| format!("cannot read {}", folder.display()))?;
    found.sort();
    Ok(found)
}

/// Builds the guests in the languages whose tools are not fetched every day.
pub(crate) fn build_the_others(sequor: &Path) -> Result<String> {
    for language in ["js", "c"] {
        process::run(on_path(sequor).args(["plugin", "doctor", "--install", language]))?;
    }
    let mut build = on_path(sequor);
    build.args(["plugin", "build", "--quiet", "--out"]).arg(folder());
    for language in ["guests-js", "guests-c"] {
        build.args(entries(&process::root().join("plugins").join(language))?);
    }
    build.arg("plugins/hostile-c");
    process::run(&mut build)?;
    Ok("JavaScript and C".to_owned())
}

/// A program whose PATH begins with our Node's folder, before any Node of this machine.
pub(crate) fn on_path(program: &Path) -> Command {
    let mut command = process::command(program);
    let node = node::program();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = node.parent().map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&path));
    // It fails only if a folder's name has a colon.
    if let Ok(path) = std::env::join_paths(folders) {
        command.env("PATH", path);
    }
    command.env("SEQUOR_CACHE", tools());
    command
}

/// Runs the lints and tests of the guests and their kit, and checks that the generated code matches the contract.
pub(crate) fn test(tally: &mut TestTally) -> Result<String> {
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
    let kit_of_python = process::root().join("plugins/sdk-python-tests");
    for guest in entries(&process::root().join("plugins/guests-python"))?.into_iter().chain([kit_of_python]) {
        let mut unittest = process::command(python::interpreter());
        unittest.args(["-m", "unittest", "--quiet"]).current_dir(guest);
        let kit = process::root().join("plugins/sdk-python");
        process::run(unittest.env("PYTHONPATH", kit).env("PYTHONDONTWRITEBYTECODE", "1"))?;
    }
    let kit_of_js = process::root().join("plugins/sdk-js-tests");
    for folder in entries(&process::root().join("plugins/guests-js"))?.into_iter().chain([kit_of_js]) {
        process::run(process::command(node::program()).arg("--test").current_dir(folder))?;
    }
    test_the_kit_for_c()?;
    tally::run(cargo("test").args(["--workspace", "--locked"]), tally)
}

/// Runs the tests of the C kit's helpers with this machine's C compiler.
fn test_the_kit_for_c() -> Result<()> {
    let (tests, kit) = (process::root().join("plugins/sdk-c-tests/kit.c"), process::root().join("plugins/sdk-c"));
    let program = process::kept().join("kit-c");
    let mut cc = process::command("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-I"]).arg(&kit).arg(tests).arg(kit.join("sequor.c"));
    process::run(cc.arg("-o").arg(&program))?;
    process::run(&mut process::command(program))
}
