//! A headless browser: an installed one, or Debian's, unpacked without installation.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{debian, process};

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
        debian::write_script(&program(), &format!("#!/bin/sh\nexec {name} \"$@\"\n"))?;
        return Ok(format!("{name}, which is installed"));
    }
    unpacked()?;
    if !works(&program()) {
        bail!("{} does not start", program().display());
    }
    Ok(format!("unpacked {PACKAGE}"))
}

fn works(browser: &Path) -> bool {
    process::succeeds(process::command(browser).arg("--version"))
}

/// Unpacks the package with its missing dependencies.
fn unpacked() -> Result<()> {
    let root = debian::unpack(PACKAGE, &folder())?;
    let lib = debian::libraries(&root);
    let paths = [lib.clone(), lib.join("pulseaudio")].map(|path| path.display().to_string()).join(":");
    let shell = root.join("usr/lib/chromium").join(PACKAGE);
    debian::write_script(
        &program(),
        &format!("#!/bin/sh\nLD_LIBRARY_PATH='{paths}' exec '{}' \"$@\"\n", shell.display()),
    )
}
