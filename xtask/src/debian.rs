//! Debian's packages, unpacked without installation. This needs no root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

/// Downloads a package and its missing dependencies, and unpacks all of them below this folder. Returns the root of what was unpacked.
pub(crate) fn unpack(package: &str, folder: &Path) -> Result<PathBuf> {
    let (debs, root) = (folder.join("debs"), folder.join("root"));
    fs::create_dir_all(&debs)?;
    fs::create_dir_all(&root)?;
    let options = ["-qq", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"];
    let mut download = process::command("apt-get");
    process::run(download.args(options).arg("download").args(missing(package)?).current_dir(&debs))?;
    for deb in fs::read_dir(&debs)? {
        process::run(process::command("dpkg").arg("-x").arg(deb?.path()).arg(&root))?;
    }
    fs::remove_dir_all(&debs)?;
    Ok(root)
}

/// The shared libraries below a root.
pub(crate) fn libraries(root: &Path) -> PathBuf {
    root.join("usr/lib/x86_64-linux-gnu")
}

/// Writes a script that can be called as a program.
pub(crate) fn write_script(program: &Path, script: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(program, script).with_context(|| format!("cannot write {}", program.display()))?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// The packages that an installation would add.
fn missing(package: &str) -> Result<Vec<String>> {
    let mut simulate: Command = process::command("apt-get");
    simulate.args(["-s", "--no-install-recommends", "install", package]).stderr(Stdio::null());
    let message = simulate.output().with_context(|| format!("cannot start {}", process::shown(&simulate)))?;
    let message = String::from_utf8_lossy(&message.stdout).into_owned();
    let names = message.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    if names.is_empty() {
        bail!("apt knows no {package} (has `apt-get update` been run?)");
    }
    Ok(names)
}
