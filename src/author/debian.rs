//! Debian's Rust, unpacked into the cache without installing it: a compiler, and the sources of its standard library. It is for machines
//! whose rustup has no target for WebAssembly and may not get one. It compiles only plug-ins, so its version may differ from other
//! compilers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::AuthorError;
use super::apt::Apt;
use super::machine::{Machine, ask};

/// Packages without a version in their names; the others are found as their dependencies.
const PACKAGES: [&str; 3] = ["rustc-web", "libstd-rust-web-dev", "rust-web-src"];

/// The minimum Rust version of the kit, as in its `rust-version`.
const NEEDED: (u32, u32) = (1, 87);

/// The unpacked packages, and the linker to use with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Debian {
    root: PathBuf,
    version: String,
    linker: PathBuf,
}

impl fmt::Display for Debian {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of Debian's packages in {}, with the standard library built for WebAssembly",
            self.version,
            self.root.display()
        )
    }
}

impl Debian {
    /// Configures cargo to use it.
    pub(super) fn set(&self, cargo: &mut Command) {
        // Building the standard library needs unstable flags; cargo calls this `build-std`.
        cargo.args(["-Z", "build-std=std,panic_abort", "--target-dir"]).arg(self.root.join("target"));
        cargo.env("RUSTC", self.rustc()).env("RUSTC_BOOTSTRAP", "1").env("LD_LIBRARY_PATH", self.libraries());
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", &self.linker);
    }

    fn rustc(&self) -> PathBuf {
        self.root.join("usr/bin/rustc")
    }

    fn libraries(&self) -> PathBuf {
        self.root.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH))
    }
}

/// Finds the unpacked packages. If they are missing or too old for the kit, fetches and unpacks them.
pub(super) fn ensure(folder: &Path, machine: &Machine) -> Result<Debian, AuthorError> {
    let root = machine.cache.join("debian-rust");
    let debian = Debian { version: String::new(), linker: linker(folder)?, root };
    if let Some(version) = version(&debian).filter(|version| suffices(version)) {
        return Ok(Debian { version, ..debian });
    }
    fetch(&debian, machine)?;
    let version = version(&debian).ok_or_else(|| AuthorError::file(debian.rustc(), "does not run on this machine"))?;
    if suffices(&version) {
        return Ok(Debian { version, ..debian });
    }
    let (major, minor) = NEEDED;
    let get = "rustup target add wasm32-unknown-unknown, or, in apt's sources, Debian's security updates";
    Err(AuthorError::Missing(format!(
        "no compiler for WebAssembly: Debian's is {version}, and the kit needs {major}.{minor}. To get one: {get}"
    )))
}

fn version(debian: &Debian) -> Option<String> {
    ask(Command::new(debian.rustc()).arg("--version").env("LD_LIBRARY_PATH", debian.libraries()))
}

/// Whether a compiler with this version text is new enough for the kit.
fn suffices(version: &str) -> bool {
    let number = version.split(' ').nth(1).unwrap_or_default();
    let mut parts = number.split('.').map_while(|part| part.parse::<u32>().ok());
    parts.next().zip(parts.next()).is_some_and(|version| version >= NEEDED)
}

/// The linker for WebAssembly that comes with rustup's rustc; Debian's rustc has none.
pub(super) fn linker(folder: &Path) -> Result<PathBuf, AuthorError> {
    let host = format!("lib/rustlib/{}-unknown-linux-gnu/bin/rust-lld", std::env::consts::ARCH);
    let found = sysroot(folder).map(|root| root.join(host)).filter(|linker| linker.is_file());
    found.ok_or_else(|| {
        AuthorError::Missing("no rust-lld beside rustc: the linker for WebAssembly comes with rustup's Rust".to_owned())
    })
}

fn fetch(debian: &Debian, machine: &Machine) -> Result<(), AuthorError> {
    let root = debian.root.as_path();
    let parent = root.parent().unwrap_or(root);
    std::fs::create_dir_all(parent)?;
    (machine.say)("asking Debian for its packages ...");
    let apt = Apt::update(parent)?;
    let packages = packages(&apt)?;
    (machine.say)(&format!("fetching {} from Debian (137 MB) ...", packages.join(" ")));
    let unpacked = tempfile::Builder::new().prefix("debian-rust-").tempdir_in(parent)?;
    apt.unpack(&packages, unpacked.path())?;
    // Moves a compiler aside that is too old for the kit. If another process has put a usable one there meanwhile, that one stays.
    if root.exists() && !version(debian).is_some_and(|version| suffices(&version)) {
        let _ = std::fs::rename(root, apt.scratch().join("before"));
    }
    match std::fs::rename(unpacked.path(), root) {
        Ok(()) => {
            let _ = unpacked.keep();
            Ok(())
        }
        // Another process was faster; its folder has the same contents.
        Err(_) if root.join("usr/bin/rustc").is_file() => Ok(()),
        Err(e) => Err(AuthorError::file(root, e)),
    }
}

/// The packages of the compiler, of its library with the version in its name, and of the LLVM that it links.
fn packages(apt: &Apt) -> Result<Vec<String>, AuthorError> {
    let missing = |what: &str| {
        let get = "rustup target add wasm32-unknown-unknown, or a Debian that has rustc-web";
        AuthorError::Missing(format!("no compiler for WebAssembly: apt knows no {what}. To get one: {get}"))
    };
    let std = apt.depends("libstd-rust-web-dev", "libstd-rust-web-").ok_or_else(|| missing("libstd-rust-web-dev"))?;
    let llvm = apt.depends(&std, "libllvm").ok_or_else(|| missing("libllvm"))?;
    Ok(PACKAGES.into_iter().map(str::to_owned).chain([std, llvm]).collect())
}

/// The sysroot of the compiler that builds this folder.
pub(crate) fn sysroot(folder: &Path) -> Option<PathBuf> {
    ask(Command::new("rustc").args(["--print", "sysroot"]).current_dir(folder)).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_suffices_from_the_version_that_the_kit_needs() {
        let versions = [
            "rustc 1.85.0 (4d91de4e4 2025-02-17) (built from a source tarball)",
            "rustc 1.87.0",
            "rustc 2.0.0-nightly",
            "",
            "cc",
        ];
        assert_eq!(versions.map(suffices), [false, true, true, false, false]);
        let kit = include_str!("../../plugins/sdk/Cargo.toml");
        assert!(kit.contains(&format!("rust-version = \"{}.{}\"", NEEDED.0, NEEDED.1)), "{NEEDED:?}");
    }
}
