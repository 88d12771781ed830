//! `cargo xtask ptx`: compiles the GPU kernels to PTX, which drivers compile further, and assembles them as a check.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::phases::Phases;
use crate::process;

const SOURCE: &str = "crates/state/src/device/cuda/kernels.cu";
const PTX: &str = "crates/state/src/device/cuda/kernels.ptx";

/// GPUs, from the oldest that ONNX Runtime's provider supports to the newest that this assembler supports.
const GPUS: [&str; 5] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"];

/// The files that are needed from the packages.
const TOOLS: [&str; 3] = ["libnvrtc.so.12", "libnvrtc-builtins.so.12.4", "ptxas"];

fn folder() -> PathBuf {
    process::kept().join("kernels")
}

/// Compiles the PTX again, and assembles it.
pub(crate) fn ptx() -> Result<()> {
    let mut phases = Phases::new();
    phases.need("tools", tools)?;
    phases.need("compile", || {
        let mut compile = process::command("python3");
        compile.arg("xtask/ptx.py").arg(folder().join("libnvrtc.so.12")).args([SOURCE, PTX]);
        process::run(compile.env("LD_LIBRARY_PATH", folder()))?;
        Ok(PTX.to_owned())
    })?;
    phases.need("assemble", assemble)
}

/// Runs the kernels' source on the host, and assembles the committed PTX.
pub(crate) fn check() -> Result<String> {
    let ran = on_host()?;
    if std::env::consts::ARCH != "x86_64" {
        return Ok(format!("{ran}; not assembled: the assembler is for x86_64"));
    }
    tools()?;
    Ok(format!("{ran}; assembled {}", assemble()?))
}

/// Runs every thread of the kernels one after the other, and compares with plain copies.
fn on_host() -> Result<String> {
    if !process::succeeds(process::command("c++").arg("--version")) {
        return Ok("not run on the host: no c++ here".to_owned());
    }
    let program = folder().join("on-host");
    fs::create_dir_all(folder())?;
    let mut build = process::command("c++");
    process::run(build.args(["-std=c++17", "-O1", "-w", "xtask/kernels_on_host.cpp", "-o"]).arg(&program))?;
    process::run(&mut process::command(&program))?;
    Ok("run on the host".to_owned())
}

fn assemble() -> Result<String> {
    let object = folder().join("kernels.cubin");
    for gpu in GPUS {
        let mut assemble = process::command(folder().join("ptxas"));
        assemble.arg(format!("-arch={gpu}")).arg("-o").arg(&object).arg(PTX);
        process::run(&mut assemble)?;
    }
    Ok(format!("for {}", GPUS.join(" ")))
}

/// Compiler and assembler, from the packages that `third_party/kernels.txt` pins.
fn tools() -> Result<String> {
    let (folder, pins) = (folder(), process::root().join("third_party/kernels.txt"));
    let made_from = folder.join("made-from.txt");
    let pinned = fs::read_to_string(&pins).with_context(|| format!("cannot read {}", pins.display()))?;
    if fs::read_to_string(&made_from).is_ok_and(|text| text == pinned) {
        return Ok("already there".to_owned());
    }
    let wheels = folder.join("wheels");
    fs::create_dir_all(&wheels)?;
    let mut pip = process::command("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    pip.args(["--platform", "manylinux2014_x86_64", "--require-hashes", "--requirement"])
        .arg(&pins)
        .arg("-d")
        .arg(&wheels);
    process::run(&mut pip)?;
    unpack(&wheels)?;
    fs::remove_dir_all(&wheels)?;
    fs::write(&made_from, pinned)?;
    Ok("fetched".to_owned())
}

/// Extracts the needed files from the packages, which are zip files that Python reads.
fn unpack(wheels: &std::path::Path) -> Result<()> {
    const PROGRAM: &str = "import os, sys, zipfile\n\
        wheels, target, *wanted = sys.argv[1:]\n\
        for wheel in os.listdir(wheels):\n    \
            with zipfile.ZipFile(os.path.join(wheels, wheel)) as file:\n        \
                for name in file.namelist():\n            \
                    if os.path.basename(name) in wanted:\n                \
                        path = os.path.join(target, os.path.basename(name))\n                \
                        open(path, 'wb').write(file.read(name))\n                \
                        os.chmod(path, 0o755)\n";
    process::run(process::command("python3").args(["-c", PROGRAM]).arg(wheels).arg(folder()).args(TOOLS))?;
    match TOOLS.iter().find(|tool| !folder().join(tool).is_file()) {
        Some(missing) => bail!("the pinned packages hold no {missing}"),
        None => Ok(()),
    }
}
