//! Tests the packages on minimal systems: the tarball in a Debian 12 with only the C and C++ libraries and no network, the wheel in a fresh
//! virtual environment. Needs root and apt; not part of the everyday tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process;

/// Packages of a minimal system on which the program may rely.
const PACKAGES: [&str; 4] = ["libc6", "libgcc-s1", "libstdc++6", "gcc-12-base"];

/// The script that runs with its own network, only `lo`. `$1` is the root, `$2` the package's folder in it.
const SCRIPT: &str = r#"
set -eu
ip link set lo up
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
chroot "$1" "/opt/$2/bin/sequor" demo
chroot "$1" "/opt/$2/bin/sequor" serve --model-repository /models --log-level warn > "$1/tmp/said" &
server=$!
for _ in $(seq 300); do
  curl --silent --fail http://127.0.0.1:8000/v2/health/ready && break
  sleep 0.2
done
curl --silent --show-error --fail-with-body http://127.0.0.1:8000/v2/models/accumulator_fp32/infer \
  --header 'content-type: application/json' --data '{
  "inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [1, 1], "data": [2.5]}],
  "parameters": {"sequence_id": 7, "sequence_start": true, "sequence_end": true}}'
echo
kill -INT $server
wait $server
"#;

/// Unpacks the tarball in a bare system, runs the demo there, and sends one request to a server.
pub(crate) fn tarball(tarball: &Path, name: &str) -> Result<String> {
    let root = process::kept().join("bare");
    let made = bare(&root)?;
    for folder in ["opt", "proc", "dev", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    process::run(process::command("tar").arg("-C").arg(root.join("opt")).arg("-xzf").arg(tarball))?;
    let models = root.join("models");
    if !models.exists() {
        process::run(process::command("cp").args(["-r", "models"]).arg(&models))?;
    }
    let mut unshare = process::command("unshare");
    unshare.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT, "check"]);
    process::run(unshare.arg(&root).arg(name))?;
    Ok(made)
}

/// Makes the root file system, by debootstrap if it is installed, otherwise from the packages alone.
fn bare(root: &Path) -> Result<String> {
    if root.join("lib64").exists() {
        return Ok("the root is there already".to_owned());
    }
    fs::create_dir_all(root)?;
    if process::succeeds(process::command("debootstrap").arg("--version")) {
        process::run(process::command("debootstrap").args(["--variant=minbase", "bookworm"]).arg(root))?;
        return Ok("a root by debootstrap".to_owned());
    }
    let debs = process::kept().join("bare-debs");
    fs::create_dir_all(&debs)?;
    process::run(process::command("apt-get").args(["-qq", "download"]).args(PACKAGES).current_dir(&debs))?;
    for deb in fs::read_dir(&debs)? {
        process::run(process::command("dpkg").arg("-x").arg(deb?.path()).arg(root))?;
    }
    Ok(format!("a root of {}", PACKAGES.join(", ")))
}

/// Installs the wheel into an environment that is not activated, and runs the demo from another folder.
pub(crate) fn wheel(wheel: &Path) -> Result<String> {
    let environment: PathBuf = process::kept().join("bare-venv");
    process::run(process::command("python3").args(["-m", "venv", "--clear", "--without-pip"]).arg(&environment))?;
    let mut pip = process::command("python3");
    pip.args(["-m", "pip", "--python"]).arg(environment.join("bin/python"));
    process::run(pip.args(["install", "--quiet", "--disable-pip-version-check"]).arg(wheel))?;
    let mut demo = process::command(environment.join("bin/sequor"));
    demo.arg("demo").current_dir("/").env_clear().env("PATH", "/nowhere").env("HOME", "/nowhere");
    process::run(&mut demo).context("the wheel's own program")?;
    Ok(String::new())
}
