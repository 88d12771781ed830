//! `cargo xtask kits`: builds the kits of plug-in authors as packages, in `target/kits`: a crate, a Python wheel and an npm tarball.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::phases::Phases;
use crate::{guests, node, process};

pub(crate) fn kits() -> Result<()> {
    let (mut phases, to) = (Phases::new(), process::root().join("target/kits"));
    if to.exists() {
        fs::remove_dir_all(&to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
    phases.check("crate", || rust(&to));
    phases.check("wheel", || python(&to));
    phases.check("tarball", || javascript(&to));
    print!("{}", phases.table());
    if phases.failed() > 0 { bail!("{} kits are no packages", phases.failed()) } else { Ok(()) }
}

/// Builds the crate from its package, so that a missing file is noticed.
fn rust(to: &Path) -> Result<String> {
    let build = to.join("build");
    let mut package = guests::cargo("package");
    package.args(["--quiet", "--package", "sequor-plugin", "--allow-dirty", "--locked", "--target-dir"]).arg(&build);
    process::run(&mut package)?;
    take(&build.join("package"), to, "crate")
}

/// Installs the wheel in a folder and imports it there.
fn python(to: &Path) -> Result<String> {
    let pip = |arguments: &[&str]| {
        let mut pip = process::command("python3");
        pip.args(["-m", "pip", "--disable-pip-version-check", "--quiet"]).args(arguments);
        pip
    };
    process::run(pip(&["wheel", "plugins/sdk-python", "--no-deps", "--no-index", "--wheel-dir"]).arg(to))?;
    let (wheel, installed) = (find(to, "whl")?, to.join("installed"));
    process::run(pip(&["install", "--no-deps", "--no-index", "--target"]).arg(&installed).arg(&wheel))?;
    let mut import = process::command("python3");
    import.args(["-c", "import sequor_plugin.testing, sequor_plugin; sequor_plugin.fire([0])"]);
    process::run(import.env("PYTHONPATH", &installed).env("PYTHONDONTWRITEBYTECODE", "1"))?;
    name(&wheel)
}

/// Packs the modules, and imports them from the unpacked tarball.
fn javascript(to: &Path) -> Result<String> {
    let npm = node::program().with_file_name("npm");
    let mut pack = guests::on_path(&npm);
    pack.args(["pack", "--silent", "./plugins/sdk-js", "--pack-destination"]).arg(to);
    process::run(&mut pack)?;
    let tarball = find(to, "tgz")?;
    process::run(process::command("tar").arg("-xzf").arg(&tarball).arg("-C").arg(to))?;
    let script = "const kit = await import('./index.js'); const { Bench } = await import('./testing.js'); if (!kit.Plan || !Bench) process.exit(1)";
    let mut import = process::command(node::program());
    process::run(import.args(["--input-type=module", "-e", script]).current_dir(to.join("package")))?;
    name(&tarball)
}

/// Moves the file with this ending to another folder.
fn take(from: &Path, to: &Path, ending: &str) -> Result<String> {
    let file = find(from, ending)?;
    let name = name(&file)?;
    fs::copy(&file, to.join(&name)).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(name)
}

/// The only file of a folder with this ending.
fn find(folder: &Path, ending: &str) -> Result<PathBuf> {
    let mut found = guests::entries(folder)?;
    found.retain(|path| path.extension().is_some_and(|e| e == ending));
    match found.as_slice() {
        [one] => Ok(one.clone()),
        _ => bail!("{} has {} files .{ending}, not one", folder.display(), found.len()),
    }
}

fn name(path: &Path) -> Result<String> {
    let name = path.file_name().context("a path without a name")?;
    Ok(name.to_string_lossy().into_owned())
}
