//! Runs other programs in the repository's root. An error names the failed command.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The folder of files that recipes fetch and make. Git ignores it.
pub(crate) fn kept() -> PathBuf {
    root().join(".sequor")
}

pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs this recipe.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Makes a cargo command of words such as `["nextest", "run"]`.
pub(crate) type MakeCargo = fn(&[&str]) -> Command;

pub(crate) fn plain_cargo(words: &[&str]) -> Command {
    let mut cargo = cargo();
    cargo.args(words);
    cargo
}

/// Here the compiler checks the lints of our crates as well, and a warning is an error. `cargo clippy` would compile everything once more.
/// What such a command compiles, other such commands find; plain ones compile it again.
pub(crate) fn linting_cargo(words: &[&str]) -> Command {
    let mut cargo = plain_cargo(words);
    // An argument, not a variable: tests start cargo for other workspaces.
    cargo.args(["--config", "build.rustc-workspace-wrapper=\"clippy-driver\""]).env("CLIPPY_ARGS", "-Dwarnings");
    cargo
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok(())
}

/// Whether a command succeeds, without letting it print.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A command as text for a shell.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The path of a program of this workspace. The same cargo builds the recipes, so its target directory is that of this program.
pub(crate) fn built(profile: &str, name: &str) -> Result<PathBuf> {
    let me = std::env::current_exe().context("cannot find the target directory")?;
    let target = me.parent().and_then(Path::parent).context("cannot find the target directory")?;
    Ok(target.join(profile).join(name))
}
