//! This machine, as building plug-ins needs it: the cache of fetched tools, the author's environment variables, and other programs.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::AuthorError;

/// The machine's environment, and the receiver of progress messages.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The folder of fetched tools, with one subfolder each.
    pub cache: PathBuf,
    /// The folder of cargo's crate sources.
    pub cargo_home: PathBuf,
    /// `SEQUOR_WASM_TOOLCHAIN`: `rustup` or `debian`; other values are an error.
    pub toolchain: Option<String>,
    /// Whether rustup may not install anything (`RUSTUP_AUTO_INSTALL=0`).
    pub frozen_rustup: bool,
    /// Whether compilers print only errors.
    pub quiet: bool,
    /// Prints one line of progress.
    pub say: fn(&str),
}

impl Machine {
    /// Reads the environment through `variable`.
    pub fn new(variable: impl Fn(&str) -> Option<String>, say: fn(&str)) -> Machine {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = || set("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
        let cache = set("SEQUOR_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| set("XDG_CACHE_HOME").map(|dir| PathBuf::from(dir).join("sequor")));
        let cache = cache.unwrap_or_else(|| home().join(".cache/sequor"));
        Machine {
            // Compilers start in other folders, so the path must be absolute.
            cache: std::path::absolute(&cache).unwrap_or(cache),
            cargo_home: set("CARGO_HOME").map_or_else(|| home().join(".cargo"), PathBuf::from),
            toolchain: set("SEQUOR_WASM_TOOLCHAIN"),
            frozen_rustup: set("RUSTUP_AUTO_INSTALL").is_some_and(|value| value == "0"),
            quiet: false,
            say,
        }
    }
}

/// The output of a program; `None` if the program is missing or fails.
pub(crate) fn ask(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Runs a program and shows its output on standard error.
pub(crate) fn run(command: &mut Command, hint: &str) -> Result<(), AuthorError> {
    let program = name(command.get_program());
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    let status = status.map_err(|e| AuthorError::Missing(format!("cannot start {program}: {e}{hint}")))?;
    if status.success() {
        return Ok(());
    }
    Err(AuthorError::Failed { program, status: status.to_string(), hint: hint.to_owned() })
}

pub(crate) fn name(program: &OsStr) -> String {
    std::path::Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_cache_folder_follows_the_environment() {
        let cache = |set: &[(&str, &str)]| {
            let found = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            Machine::new(found, |_| ()).cache
        };
        let home = ("HOME", "/h");
        assert_eq!(cache(&[home]), PathBuf::from("/h/.cache/sequor"));
        assert_eq!(cache(&[home, ("XDG_CACHE_HOME", "/x")]), PathBuf::from("/x/sequor"));
        assert_eq!(cache(&[home, ("XDG_CACHE_HOME", "/x"), ("SEQUOR_CACHE", "/s")]), PathBuf::from("/s"));
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            cache(&[("SEQUOR_CACHE", "kept/here")]),
            here.join("kept/here"),
            "a process in another folder finds it"
        );
    }
}
