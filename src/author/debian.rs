//! Debian's Rust, unpacked into the cache without being installed: a compiler and the sources of its standard library, for machines whose rustup
//! has no target for WebAssembly and may not get one. Only the guest is compiled by it, so its version need not be that of anything else.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Problem;
use super::machine::{Machine, ask, run};

/// Packages whose names carry no version; the others are found through what these depend on.
const PACKAGES: [&str; 3] = ["rustc-web", "libstd-rust-web-dev", "rust-web-src"];

/// The unpacked packages, and the linker that goes with them.
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
    /// Lets cargo use it.
    pub(super) fn set(&self, cargo: &mut Command) {
        // Standard libraries of other people's packages are compiled with unstable flags only: Cargo calls that building std.
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

/// Finds the unpacked packages, or fetches and unpacks them.
pub(super) fn ensure(folder: &Path, machine: &Machine) -> Result<Debian, Problem> {
    let root = machine.cache.join("debian-rust");
    let mut debian = Debian { version: String::new(), linker: linker(folder)?, root };
    if let Some(version) = version(&debian) {
        return Ok(Debian { version, ..debian });
    }
    fetch(&debian.root, machine)?;
    debian.version = version(&debian).ok_or_else(|| Problem::file(debian.rustc(), "does not run on this machine"))?;
    Ok(debian)
}

fn version(debian: &Debian) -> Option<String> {
    ask(Command::new(debian.rustc()).arg("--version").env("LD_LIBRARY_PATH", debian.libraries()))
}

/// Rustup's rustc brings a linker for WebAssembly; Debian's does not.
fn linker(folder: &Path) -> Result<PathBuf, Problem> {
    let host = format!("lib/rustlib/{}-unknown-linux-gnu/bin/rust-lld", std::env::consts::ARCH);
    let found = sysroot(folder).map(|root| root.join(host)).filter(|linker| linker.is_file());
    found.ok_or_else(|| {
        Problem::Missing("no rust-lld beside rustc: the linker for WebAssembly comes with rustup's Rust".to_owned())
    })
}

fn fetch(root: &Path, machine: &Machine) -> Result<(), Problem> {
    let packages = packages()?;
    (machine.say)(&format!("fetching {} from Debian (137 MB) ...", packages.join(" ")));
    let parent = root.parent().unwrap_or(root);
    std::fs::create_dir_all(parent)?;
    let unpacked = tempfile::Builder::new().prefix("debian-rust-").tempdir_in(parent)?;
    let options = ["-qq", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30", "download"];
    let hint = "; if it knows no such package: apt-get update";
    run(Command::new("apt-get").args(options).args(&packages).current_dir(unpacked.path()), hint)?;
    (machine.say)("unpacking ...");
    for entry in std::fs::read_dir(unpacked.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&path).arg(unpacked.path()), "")?;
            std::fs::remove_file(&path)?;
        }
    }
    // Whoever was faster has the same.
    match std::fs::rename(unpacked.path(), root) {
        Ok(()) => {
            let _ = unpacked.keep();
            Ok(())
        }
        Err(_) if root.join("usr/bin/rustc").is_file() => Ok(()),
        Err(e) => Err(Problem::file(root, e)),
    }
}

/// The compiler, its library with the version in its name, and the LLVM it was linked with.
fn packages() -> Result<Vec<String>, Problem> {
    let missing = |what: &str| {
        let get = "rustup target add wasm32-unknown-unknown, or apt-get update and a Debian that has rustc-web";
        Problem::Missing(format!("no compiler for WebAssembly: apt knows no {what}. To get one: {get}"))
    };
    let std = depends("libstd-rust-web-dev", "libstd-rust-web-").ok_or_else(|| missing("libstd-rust-web-dev"))?;
    let llvm = depends(&std, "libllvm").ok_or_else(|| missing("libllvm"))?;
    Ok(PACKAGES.into_iter().map(str::to_owned).chain([std, llvm]).collect())
}

/// The package of this prefix that another one depends on.
fn depends(package: &str, prefix: &str) -> Option<String> {
    let listed = ask(Command::new("apt-cache").args(["depends", package]))?;
    dependency(&listed, prefix)
}

fn dependency(listed: &str, prefix: &str) -> Option<String> {
    let names = listed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::trim).find(|name| name.starts_with(prefix)).map(str::to_owned)
}

/// Where the compiler that builds this folder lies.
pub(crate) fn sysroot(folder: &Path) -> Option<PathBuf> {
    ask(Command::new("rustc").args(["--print", "sysroot"]).current_dir(folder)).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_through_what_others_depend_on() {
        let listed = "libstd-rust-web-1.96\n  Depends: libc6\n  Depends: libllvm22\n  Conflicts: <rustup>\n";
        assert_eq!(dependency(listed, "libllvm"), Some("libllvm22".to_owned()));
        assert_eq!(dependency(listed, "libstd"), None);
    }
}
