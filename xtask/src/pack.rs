//! `cargo xtask gpu-pack`: makes one folder with everything that `gpu-test` and `gpu-bench` run, for a machine with a GPU and without Rust.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::phases::Phases;
use crate::{process, thin};

/// The scripts that run there, by name.
const SCRIPTS: [(&str, &str); 2] =
    [("run.sh", include_str!("../gpu.sh")), ("serve.py", include_str!("../gpu_serve.py"))];
/// The largest library: hundreds of megabytes.
const PROVIDER: &str = "libonnxruntime_providers_cuda.so";
/// Unpacks the pieces of a folder, in order.
const JOIN: &str = "import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|xz').extractall()";

/// The options of the command.
#[derive(Debug, PartialEq, Eq)]
struct PackOptions {
    target: PathBuf,
    /// A folder of libraries: ONNX Runtime with its provider, and others that the machine lacks.
    libraries: Option<PathBuf>,
    /// The cargo profile.
    profile: String,
    /// The compute capability of the machine's GPU, times ten. The provider's code for other GPUs is left out.
    gpu: Option<u32>,
    /// Maximum MiB of a piece, if the folder is to be compressed and cut into pieces.
    split: Option<u64>,
}

impl PackOptions {
    fn read(arguments: &[String]) -> Result<PackOptions> {
        let (mut target, mut libraries, mut profile) = (None, None, "release".to_owned());
        let (mut gpu, mut split) = (None, None);
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut behind = || arguments.next().with_context(|| format!("{argument} wants a word behind it"));
            match argument.as_str() {
                "--libraries" => libraries = Some(PathBuf::from(behind()?)),
                "--profile" => profile.clone_from(behind()?),
                "--gpu" => gpu = Some(capability(behind()?)?),
                "--split" => split = Some(pieces(behind()?)?),
                flag if flag.starts_with('-') => bail!("cargo xtask gpu-pack knows no {flag}"),
                folder if target.is_none() => target = Some(PathBuf::from(folder)),
                other => bail!("one folder is enough, and {other} is another"),
            }
        }
        let target = target.context("cargo xtask gpu-pack FOLDER: which folder?")?;
        Ok(PackOptions { target, libraries, profile, gpu, split })
    }
}

/// Parses `9.0` as 90.
fn capability(text: &str) -> Result<u32> {
    let parts = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let number = parts.filter(|(_, minor): &(u32, u32)| *minor < 10).map(|(major, minor)| 10 * major + minor);
    number.with_context(|| format!("{text} is no compute capability like 9.0"))
}

fn pieces(text: &str) -> Result<u64> {
    let number = text.parse().ok().filter(|mib| *mib > 0);
    number.with_context(|| format!("{text} is no number of MiB"))
}

pub(crate) fn pack(arguments: &[String]) -> Result<()> {
    let PackOptions { target, libraries, profile, gpu, split } = PackOptions::read(arguments)?;
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
        for (name, text) in SCRIPTS {
            fs::write(target.join(name), text)?;
        }
        Ok(String::new())
    })?;
    if let Some(libraries) = libraries {
        phases.need("libraries", || {
            copy(&libraries, &target.join("lib"), &|path| !path.ends_with(".lock"))?;
            gpu.map_or_else(|| Ok(String::new()), |gpu| thin_provider(&target, gpu))
        })?;
    }
    for entry in fs::read_dir(&target)? {
        let path = entry?.path();
        println!("{:>8.1} MiB  {}", size(&path)? as f64 / 1048576.0, path.display());
    }
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(split) = split {
        phases.need("pieces", || cut(&target, split << 20))?;
        println!("there, with all pieces in one folder: cat {name}.* | python3 -c \"{JOIN}\"");
    }
    println!("there: sh {name}/run.sh");
    Ok(())
}

/// Removes the code for other kinds of GPUs from the provider.
fn thin_provider(target: &Path, gpu: u32) -> Result<String> {
    let path = target.join("lib").join(PROVIDER);
    let mut file = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let thinned = thin::thin(&mut file, gpu)?;
    fs::write(&path, file)?;
    let [kept, zeroed] = [thinned.kept, thinned.zeroed].map(|bytes| bytes >> 20);
    Ok(format!("{kept} MiB of kernels stay, {zeroed} MiB became zeros"))
}

/// Compresses the folder next to itself and cuts the result into pieces of a maximum size, each in its own folder.
fn cut(target: &Path, most: u64) -> Result<String> {
    let target = fs::canonicalize(target)?;
    let (folder, name) = (target.parent().context("which folder is it in?")?, target.file_name().context("its name?")?);
    let mut tar = process::command("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C"]).arg(folder).args(["-c"]).arg(name);
    let mut tar = tar.stdout(Stdio::piped()).spawn().context("cannot start tar")?;
    let archive = tar.stdout.take().context("tar gives nothing")?;
    let mut xz = process::command("xz");
    let mut xz =
        xz.args(["-T0", "-6", "-c"]).stdin(archive).stdout(Stdio::piped()).spawn().context("cannot start xz")?;
    let mut compressed = xz.stdout.take().context("xz gives nothing")?;
    let (mut count, mut sum) = (0u32, 0u64);
    loop {
        let mut piece = compressed.by_ref().take(most);
        let mut first = [0u8; 1];
        if piece.read(&mut first)? == 0 {
            break;
        }
        count += 1;
        let place = folder.join(format!("{}.pieces", name.to_string_lossy())).join(format!("{count}"));
        fs::create_dir_all(&place)?;
        let path = place.join(format!("{}.{count:02}", name.to_string_lossy()));
        let mut file = fs::File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        file.write_all(&first)?;
        let bytes = 1 + std::io::copy(&mut piece, &mut file)?;
        println!("{:>8.1} MiB  {}", bytes as f64 / 1048576.0, path.display());
        sum += bytes;
    }
    if !tar.wait()?.success() || !xz.wait()?.success() {
        bail!("tar or xz failed");
    }
    Ok(format!("{count} of {} MiB in all", sum >> 20))
}

/// The server, the devices' tests and the benchmark, without debug information.
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

/// Builds, and returns the path of this target's program.
fn built(cargo: &mut std::process::Command, name: &str) -> Result<PathBuf> {
    let shown = process::shown(cargo);
    let mut child = cargo.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {shown}"))?;
    let mut message = String::new();
    child.stdout.take().context("cargo says nothing")?.read_to_string(&mut message)?;
    let status = child.wait()?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    executable(&message, name).with_context(|| format!("{shown} has made no {name}"))
}

/// The path of this target's program, from cargo's messages about its artifacts.
fn executable(message: &str, name: &str) -> Option<PathBuf> {
    let target = format!("\"name\":\"{name}\"");
    let of = |line: &str| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(PathBuf::from(rest.split_once('"')?.0))
    };
    message.lines().filter(|line| line.contains("\"compiler-artifact\"") && line.contains(&target)).rev().find_map(of)
}

/// Copies graphs and their files, but not the scripts that make them.
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
    fn command_line_options_are_read_or_refused() {
        let read = |text: &str| PackOptions::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let wishes = read("--libraries /opt/ort there --profile dev").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((wishes.target, wishes.profile), (PathBuf::from("there"), "dev".to_owned()));
        assert_eq!((wishes.libraries, wishes.gpu, wishes.split), (Some(PathBuf::from("/opt/ort")), None, None));
        let wishes = read("there --gpu 9.0 --split 44").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((wishes.gpu, wishes.split), (Some(90), Some(44)));
        for wrong in ["", "--libraries", "one two", "there --strip", "there --gpu 90", "there --split 0"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_executable_of_a_target_is_found_among_cargos_messages() {
        let message = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"sequor\"},\"executable\":null}\n\
                    {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"device\"},\"executable\":\"/t/deps/device-1\"}\n\
                    {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(message, "device"), Some(PathBuf::from("/t/deps/device-1")));
        assert_eq!(executable(message, "sequor"), None);
    }
}
