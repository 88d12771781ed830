//! The Python of the tests: a separate virtual environment with the packages that `third_party/tests.txt` pins by hash.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process;

/// The path of the interpreter. Exists once [`ensure`] has run.
pub(crate) fn interpreter() -> PathBuf {
    process::kept().join("venv/bin/python")
}

/// Makes the environment, or keeps it if it was made from the same pins.
pub(crate) fn ensure() -> Result<String> {
    let pins_file = process::root().join("third_party/tests.txt");
    let pins = fs::read_to_string(&pins_file).with_context(|| format!("cannot read {}", pins_file.display()))?;
    let venv = process::kept().join("venv");
    let stamp = venv.join("made-from.txt");
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == pins)
        && process::succeeds(process::command(interpreter()).arg("--version"))
    {
        return Ok("already there".to_owned());
    }
    // Without its own pip, because Debian's Python has no ensurepip. Any pip can install into another interpreter.
    process::run(process::command("python3").args(["-m", "venv", "--clear", "--without-pip"]).arg(&venv))?;
    process::run(
        process::command("python3")
            .args(["-m", "pip", "--python"])
            .arg(interpreter())
            .args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"])
            .args(["--only-binary=:all:", "--requirement"])
            .arg(&pins_file),
    )?;
    fs::write(&stamp, pins).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok("made".to_owned())
}

/// Unpacks the wheels of `third_party/NAME.txt` into a folder of that name, and lets `finish` add to it. The folder is kept until the pins
/// or the `recipe` change.
pub(crate) fn unpack(name: &str, recipe: &str, finish: impl FnOnce(&Path) -> Result<()>) -> Result<String> {
    let pins_file = process::root().join(format!("third_party/{name}.txt"));
    let pins = fs::read_to_string(&pins_file).with_context(|| format!("cannot read {}", pins_file.display()))?;
    let made_from = pins + recipe;
    let folder = process::kept().join(name);
    let stamp = folder.join("made-from.txt");
    if fs::read_to_string(&stamp).is_ok_and(|was| was == made_from) {
        return Ok("already there".to_owned());
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    process::run(
        process::command("python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"])
            .args(["--only-binary=:all:", "--target"])
            .arg(&folder)
            .arg("--requirement")
            .arg(&pins_file),
    )?;
    finish(&folder)?;
    fs::write(&stamp, made_from).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok("fetched".to_owned())
}
