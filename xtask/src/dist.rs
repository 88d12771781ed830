//! `cargo xtask dist`: builds the packages. A tarball that needs only the C and C++ libraries, and a Python wheel.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::phases::Phases;
use crate::{bare, process, python};

/// The options of the command.
#[derive(Debug, PartialEq, Eq)]
struct DistOptions {
    /// Whether to run both packages on systems where nothing else is installed.
    check: bool,
    profile: String,
}

impl DistOptions {
    fn parse(arguments: &[String]) -> Result<DistOptions> {
        let mut options = DistOptions { check: false, profile: "dist".to_owned() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--check" => options.check = true,
                "--profile" => options.profile.clone_from(arguments.next().context("--profile wants a name")?),
                other => bail!("cargo xtask dist knows no {other}"),
            }
        }
        Ok(options)
    }
}

pub(crate) fn dist(arguments: &[String]) -> Result<()> {
    let DistOptions { check, profile } = DistOptions::parse(arguments)?;
    let (mut phases, packages) = (Phases::new(), process::root().join("target/dist-packages"));
    let name = format!("sequor-{}-linux-{}", version()?, std::env::consts::ARCH);
    let staging = packages.join(&name);
    let tarball = packages.join(format!("{name}.tar.gz"));
    if packages.exists() {
        fs::remove_dir_all(&packages).with_context(|| format!("cannot remove {}", packages.display()))?;
    }
    let cargo = ["build", "--locked", "--package", "sequor", "--bin", "sequor", "--profile", &profile];
    phases.need("build", || process::run(process::cargo().args(cargo)).map(|()| String::new()))?;
    let folder = if profile == "dev" { "debug" } else { &profile };
    let sequor = process::built(folder, "sequor")?;
    phases.need("runtime", || python::unpack("onnxruntime", "", |_| Ok(())))?;
    phases.need("files", || stage(&sequor, &staging).map(|()| String::new()))?;
    phases.need("tarball", || {
        let mut tar = process::command("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go-w", "-C"]).arg(&packages);
        process::run(tar.arg("-czf").arg(&tarball).arg(&name))?;
        Ok(mebibytes(&tarball))
    })?;
    phases.need("wheel", || wheel(&packages, &profile))?;
    println!("{}", tarball.display());
    let wheel = wheel_in(&packages)?;
    println!("{}", wheel.display());
    println!("needs glibc {} or newer", newest_glibc(&staging.join("bin/sequor"))?);
    if check {
        phases.need("tarball on a bare system", || bare::tarball(&tarball, &name))?;
        phases.need("wheel in a fresh environment", || bare::wheel(&wheel))?;
    }
    Ok(())
}

/// The version of the workspace.
fn version() -> Result<String> {
    let manifest = fs::read_to_string(process::root().join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \"")).context("no version")?;
    Ok(line.trim_end_matches('"').to_owned())
}

/// Copies everything to its place in the tarball.
fn stage(sequor: &Path, staging: &Path) -> Result<()> {
    let program = staging.join("bin/sequor");
    place(sequor, &program)?;
    process::run(process::command("strip").arg("--strip-debug").arg(&program))?;
    let runtime = process::kept().join("onnxruntime/onnxruntime");
    place(&library(&runtime.join("capi"))?, &staging.join("lib/libonnxruntime.so"))?;
    let deploy = process::root().join("deploy");
    for unit in ["sequor.service", "sequor.socket"] {
        place(&deploy.join(unit), &staging.join("lib/systemd/system").join(unit))?;
    }
    place(&deploy.join("sequor.toml"), &staging.join("share/doc/sequor/sequor.toml"))?;
    let doc = staging.join("share/doc/sequor");
    place(&process::root().join("README.md"), &doc.join("README.md"))?;
    // Messages of the program refer to these pages.
    for page in pages(process::root())? {
        place(&process::root().join(&page), &doc.join(&page))?;
    }
    for (shell, file) in [
        ("bash", "bash-completion/completions/sequor"),
        ("zsh", "zsh/site-functions/_sequor"),
        ("fish", "fish/vendor_completions.d/sequor.fish"),
    ] {
        write(&staging.join("share").join(file), &output(Command::new(&program).args(["completions", shell]))?)?;
    }
    process::run(Command::new(&program).arg("man").arg(staging.join("share/man/man1")))?;
    let licences = staging.join("share/licenses/sequor");
    place(&process::root().join("LICENSE"), &licences.join("LICENSE"))?;
    place(&runtime.join("LICENSE"), &licences.join("onnxruntime/LICENSE"))?;
    place(&runtime.join("ThirdPartyNotices.txt"), &licences.join("onnxruntime/ThirdPartyNotices.txt"))?;
    write(&licences.join("THIRD-PARTY.txt"), third_party()?.as_bytes())
}

/// Every file of `docs/`, by its path in the source tree.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut folders, mut found) = (vec![PathBuf::from("docs")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

/// The library in the folder of ONNX Runtime's Python package. Its file name ends with its version.
fn library(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let is_library = |path: &PathBuf| path.to_string_lossy().contains("libonnxruntime.so");
    entries.flatten().map(|entry| entry.path()).find(is_library).context("the package has no libonnxruntime.so")
}

/// The licences of all crates in the program.
fn third_party() -> Result<String> {
    let mut tree = process::cargo();
    tree.args(["tree", "--locked", "--package", "sequor", "--edges", "normal,no-proc-macro", "--prefix", "none"]);
    let message = output(tree.args(["--format", "{p}|{l}"]))?;
    let crates: BTreeSet<(String, String)> =
        String::from_utf8_lossy(&message).lines().filter_map(name_and_licence).collect();
    let mut text = "The crates that sequor is built from, with their licences.\n".to_owned();
    for (name, licence) in crates {
        let _ = write!(text, "\n==== {name} ({licence})\n");
        for file in licences(&name)? {
            let _ = write!(text, "\n{}\n", fs::read_to_string(&file).unwrap_or_default().trim_end());
        }
    }
    Ok(text)
}

/// `serde-1.0.229` and its licence, from a line of `cargo tree`. The crates of this workspace have the workspace's licence.
fn name_and_licence(line: &str) -> Option<(String, String)> {
    let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    let is_ours = words.next().is_some_and(|place| place.starts_with("(/"));
    (!is_ours).then(|| (format!("{name}-{version}"), licence.to_owned()))
}

/// The licence files of a crate, in cargo's copy of its sources.
fn licences(name: &str) -> Result<Vec<PathBuf>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))).context("no CARGO_HOME")?;
    let mut found = Vec::new();
    for registry in fs::read_dir(home.join("registry/src"))? {
        let Ok(files) = fs::read_dir(registry?.path().join(name)) else { continue };
        let is_licence = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            path.is_file() && ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|begin| name.starts_with(begin))
        };
        found.extend(files.flatten().map(|entry| entry.path()).filter(is_licence));
    }
    found.sort();
    Ok(found)
}

/// Makes the wheel from the program that was built already.
fn wheel(packages: &Path, profile: &str) -> Result<String> {
    python::unpack("maturin", "", |_| Ok(()))?;
    let mut maturin = process::command(process::kept().join("maturin/bin/maturin"));
    maturin.current_dir(process::root().join("deploy/wheel"));
    maturin.args(["build", "--locked", "--profile", profile, "--out"]).arg(packages);
    let me = std::env::current_exe().context("cannot find the target directory")?;
    let target = me.parent().and_then(Path::parent).context("cannot find the target directory")?;
    process::run(maturin.arg("--target-dir").arg(target))?;
    Ok(mebibytes(&wheel_in(packages)?))
}

fn wheel_in(packages: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(packages)?.flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| path.extension().is_some_and(|e| e == "whl")).context("there is no wheel")
}

/// The newest version of glibc symbols that a program needs.
fn newest_glibc(program: &Path) -> Result<String> {
    let message = output(Command::new("objdump").arg("-T").arg(program))?;
    let message = String::from_utf8_lossy(&message);
    Ok(newest(message.split(['(', ')', ' ']).filter_map(|word| word.strip_prefix("GLIBC_"))))
}

fn newest<'a>(versions: impl Iterator<Item = &'a str>) -> String {
    let numbers = |version: &&str| version.split('.').filter_map(|n| n.parse::<u32>().ok()).collect::<Vec<_>>();
    versions.max_by_key(numbers).unwrap_or("?").to_owned()
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let shown = process::shown(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}", output.status);
    }
    Ok(output.stdout)
}

fn place(from: &Path, to: &Path) -> Result<()> {
    write(to, &fs::read(from).with_context(|| format!("cannot read {}", from.display()))?)?;
    fs::set_permissions(to, fs::Permissions::from_mode(if is_program(to) { 0o755 } else { 0o644 }))?;
    Ok(())
}

fn is_program(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with("bin"))
}

fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(to.parent().context("a folder")?)?;
    fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))
}

fn mebibytes(path: &Path) -> String {
    fs::metadata(path).map_or_else(|_| String::new(), |file| format!("{:.1} MiB", file.len() as f64 / 1_048_576.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_or_refused() {
        let parse = |text: &str| DistOptions::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(parse("").is_ok_and(|o| o == DistOptions { check: false, profile: "dist".to_owned() }));
        assert!(
            parse("--check --profile dev").is_ok_and(|o| o == DistOptions { check: true, profile: "dev".to_owned() })
        );
        for wrong in ["--profile", "--chek", "there"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_pages_that_messages_name_are_packed() {
        let pages = pages(process::root()).unwrap_or_default();
        for page in ["docs/troubleshoot.md", "docs/reference/check.md", "docs/reference/security.md"] {
            assert!(pages.contains(&PathBuf::from(page)), "{page}");
        }
    }

    #[test]
    fn crates_are_listed_with_their_licences_and_ours_are_not() {
        let of = name_and_licence("serde v1.0.229|MIT OR Apache-2.0");
        assert_eq!(of, Some(("serde-1.0.229".to_owned(), "MIT OR Apache-2.0".to_owned())));
        assert_eq!(name_and_licence("h2 v0.4.1|MIT (*)").map(|(name, _)| name), Some("h2-0.4.1".to_owned()));
        assert_eq!(name_and_licence("sequor-core v0.1.0 (/src/crates/core)|Apache-2.0"), None);
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(newest(["2.9", "2.34", "2.2.5"].into_iter()), "2.34");
        assert_eq!(newest(std::iter::empty()), "?");
    }
}
