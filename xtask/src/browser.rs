//! A headless browser: an installed one, or Debian's, unpacked without installation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

const PACKAGE: &str = "chromium-headless-shell";
const INSTALLED: [&str; 4] = [PACKAGE, "chromium", "chromium-browser", "google-chrome"];

fn folder() -> PathBuf {
    process::kept().join("browser")
}

/// A script that starts the browser with its libraries. Exists once [`ensure`] has run.
pub(crate) fn program() -> PathBuf {
    folder().join("browser")
}

pub(crate) fn ensure() -> Result<String> {
    if works(&program()) {
        return Ok("already there".to_owned());
    }
    fs::create_dir_all(folder()).with_context(|| format!("cannot make {}", folder().display()))?;
    if let Some(name) = INSTALLED.iter().find(|name| works(Path::new(name))) {
        write(&format!("#!/bin/sh\nexec {name} \"$@\"\n"))?;
        return Ok(format!("{name}, which is installed"));
    }
    debian()?;
    if !works(&program()) {
        bail!("{} does not start", program().display());
    }
    Ok(format!("unpacked {PACKAGE}"))
}

fn works(browser: &Path) -> bool {
    process::succeeds(process::command(browser).arg("--version"))
}

fn write(script: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let program = program();
    fs::write(&program, script).with_context(|| format!("cannot write {}", program.display()))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Downloads the package and its missing dependencies, and unpacks all of them. This needs no root.
fn debian() -> Result<()> {
    let (debs, root) = (folder().join("debs"), folder().join("root"));
    fs::create_dir_all(&debs)?;
    fs::create_dir_all(&root)?;
    let options = ["-qq", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"];
    process::run(process::command("apt-get").args(options).arg("download").args(missing()?).current_dir(&debs))?;
    for deb in fs::read_dir(&debs)? {
        process::run(process::command("dpkg").arg("-x").arg(deb?.path()).arg(&root))?;
    }
    fs::remove_dir_all(&debs)?;
    let lib = root.join("usr/lib/x86_64-linux-gnu");
    let paths = [lib.clone(), lib.join("pulseaudio")].map(|path| path.display().to_string()).join(":");
    let shell = root.join("usr/lib/chromium").join(PACKAGE);
    write(&format!("#!/bin/sh\nLD_LIBRARY_PATH='{paths}' exec '{}' \"$@\"\n", shell.display()))
}

/// The packages that an installation would add.
fn missing() -> Result<Vec<String>> {
    let mut simulate: Command = process::command("apt-get");
    simulate.args(["-s", "--no-install-recommends", "install", PACKAGE]).stderr(Stdio::null());
    let said = simulate.output().with_context(|| format!("cannot start {}", process::shown(&simulate)))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let names = said.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    let names: Vec<String> = names.map(str::to_owned).collect();
    if names.is_empty() {
        bail!("apt knows no {PACKAGE} (has `apt-get update` been run?)");
    }
    Ok(names)
}
