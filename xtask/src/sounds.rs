//! The sounds of the tests: the repository's own samples and, if apt is available, the test sounds of Debian's alsa-utils.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process;

const PACKAGE: &str = "alsa-utils";

/// The folder of the sounds. Exists once [`ensure`] has run.
pub(crate) fn folder() -> PathBuf {
    process::kept().join("sounds")
}

pub(crate) fn ensure() -> Result<String> {
    let folder = folder();
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    copy_wavs(&process::root().join("models/vad/samples"), &folder)?;
    if folder.join("Front_Center.wav").is_file() {
        return Ok("already there".to_owned());
    }
    match debian(&folder) {
        Ok(()) => Ok(format!("fetched {PACKAGE}")),
        // Without apt, package lists or a network, the repository's own samples are enough.
        Err(e) => Ok(format!("the repository's own only ({e:#})")),
    }
}

/// Downloads and unpacks a Debian package without installation, so that no root is needed.
fn debian(folder: &Path) -> Result<()> {
    let unpacked = process::kept().join(PACKAGE);
    fs::create_dir_all(&unpacked)?;
    let options = ["-qq", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"];
    process::run(process::command("apt-get").args(options).args(["download", PACKAGE]).current_dir(&unpacked))?;
    let package = files(&unpacked, "deb")?.pop().context("apt-get left no package")?;
    process::run(process::command("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
    copy_wavs(&unpacked.join("usr/share/sounds/alsa"), folder)?;
    fs::remove_dir_all(&unpacked)?;
    Ok(())
}

fn copy_wavs(from: &Path, to: &Path) -> Result<()> {
    for file in files(from, "wav")? {
        let name = file.file_name().context("a file without a name")?;
        fs::copy(&file, to.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    Ok(())
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    Ok(found)
}
