//! `cargo xtask gpu-pack`: one folder with everything that `gpu-test` and `gpu-bench` run, for a machine with a GPU and without Rust.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::phases::Phases;
use crate::process;

/// What runs there.
const SCRIPT: &str = include_str!("../gpu.sh");

/// The options of the command.
#[derive(Debug, PartialEq, Eq)]
struct PackOptions {
    target: PathBuf,
    /// A folder of libraries: ONNX Runtime with its provider, and other libraries that the machine lacks.
    libraries: Option<PathBuf>,
    /// Which of cargo's profiles.
    profile: String,
}

impl PackOptions {
    fn read(arguments: &[String]) -> Result<PackOptions> {
        let (mut target, mut libraries, mut profile) = (None, None, "release".to_owned());
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut behind = || arguments.next().with_context(|| format!("{argument} wants a word behind it"));
            match argument.as_str() {
                "--libraries" => libraries = Some(PathBuf::from(behind()?)),
                "--profile" => profile.clone_from(behind()?),
                flag if flag.starts_with('-') => bail!("cargo xtask gpu-pack knows no {flag}"),
                folder if target.is_none() => target = Some(PathBuf::from(folder)),
                other => bail!("one folder is enough, and {other} is another"),
            }
        }
        let target = target.context("cargo xtask gpu-pack FOLDER: which folder?")?;
        Ok(PackOptions { target, libraries, profile })
    }
}

pub(crate) fn pack(arguments: &[String]) -> Result<()> {
    let PackOptions { target, libraries, profile } = PackOptions::read(arguments)?;
    let mut phases = Phases::new();
    fs::create_dir_all(&target).with_context(|| format!("cannot make {}", target.display()))?;
    phases.need("programs", || {
        programs(&target, &profile)?;
        Ok(String::new())
    })?;
    phases.need("models", || {
        for folder in ["models", "tests/models"] {
            graphs(&process::root().join(folder), &target.join(folder))?;
        }
        fs::write(target.join("run.sh"), SCRIPT)?;
        Ok(String::new())
    })?;
    if let Some(libraries) = libraries {
        phases.need("libraries", || {
            copy(&libraries, &target.join("lib"), &|_| true)?;
            Ok(String::new())
        })?;
    }
    for entry in fs::read_dir(&target)? {
        let path = entry?.path();
        println!("{:>8.1} MiB  {}", size(&path)? as f64 / 1048576.0, path.display());
    }
    println!("there: sh {}/run.sh", target.file_name().unwrap_or_default().to_string_lossy());
    Ok(())
}

/// The server, the devices' tests and the benchmark, without what only debuggers read.
fn programs(target: &Path, profile: &str) -> Result<()> {
    let wanted = [
        ("sequor", ["build", "--bin", "sequor"].as_slice()),
        ("device", &["test", "--no-run", "--test", "device"]),
        ("gpu", &["bench", "--no-run", "--bench", "gpu"]),
    ];
    for (name, build) in wanted {
        let mut cargo = process::cargo();
        cargo.args(build).args(["--locked", "--package", "sequor", "--profile", profile]);
        let program = built(cargo.args(["--message-format", "json-render-diagnostics"]), name)?;
        let place = target.join(name);
        fs::copy(&program, &place).with_context(|| format!("cannot copy {}", program.display()))?;
        if !process::succeeds(process::command("strip").arg(fs::canonicalize(&place)?)) {
            eprintln!("{name} keeps its symbols: there is no strip here");
        }
    }
    Ok(())
}

/// Builds, and says where the program of this target lies.
fn built(cargo: &mut std::process::Command, name: &str) -> Result<PathBuf> {
    let shown = process::shown(cargo);
    let mut child = cargo.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {shown}"))?;
    let mut said = String::new();
    child.stdout.take().context("cargo says nothing")?.read_to_string(&mut said)?;
    let status = child.wait()?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    executable(&said, name).with_context(|| format!("{shown} has made no {name}"))
}

/// The program of this target, in what cargo says of its artifacts.
fn executable(said: &str, name: &str) -> Option<PathBuf> {
    let target = format!("\"name\":\"{name}\"");
    let of = |line: &str| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(PathBuf::from(rest.split_once('"')?.0))
    };
    said.lines().filter(|line| line.contains("\"compiler-artifact\"") && line.contains(&target)).rev().find_map(of)
}

/// Graphs and what belongs to them; not what makes them.
fn graphs(from: &Path, to: &Path) -> Result<()> {
    copy(from, to, &|path| path.extension().is_none_or(|e| e != "py") && !path.ends_with("__pycache__"))
}

fn copy(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_name().filter(|_| wanted(&path)) else { continue };
        if path.is_dir() {
            copy(&path, &to.join(name), wanted)?;
        } else {
            fs::copy(&path, to.join(name)).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}

fn size(path: &Path) -> Result<u64> {
    if !path.is_dir() {
        return Ok(fs::metadata(path)?.len());
    }
    fs::read_dir(path)?.map(|entry| size(&entry?.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_or_refused() {
        let read = |text: &str| PackOptions::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let wishes = read("--libraries /opt/ort there --profile dev").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((wishes.target, wishes.profile), (PathBuf::from("there"), "dev".to_owned()));
        assert_eq!(wishes.libraries, Some(PathBuf::from("/opt/ort")));
        for wrong in ["", "--libraries", "one two", "there --strip"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_program_of_a_target_is_found_in_what_cargo_says() {
        let said = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"sequor\"},\"executable\":null}\n\
                    {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"device\"},\"executable\":\"/t/deps/device-1\"}\n\
                    {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(said, "device"), Some(PathBuf::from("/t/deps/device-1")));
        assert_eq!(executable(said, "sequor"), None);
    }
}
