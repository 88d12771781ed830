//! Builds a module from Rust, with rustup's compiler if it has the target for WebAssembly or may add it, otherwise with Debian's.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::debian::{self, Debian, sysroot};
use super::language::{Found, Language};
use super::machine::{Machine, ask, run};
use super::sdk::{self, Kit};
use super::world::AuthorWorld;
use super::{AuthorError, component, machine};

#[derive(Debug)]
pub struct Rust;

impl Language for Rust {
    fn name(&self) -> &'static str {
        "rust"
    }

    fn source(&self) -> &'static str {
        "Cargo.toml"
    }

    fn kit(&self) -> Kit {
        sdk::RUST
    }

    fn component(&self, folder: &Path, _: &dyn AuthorWorld, machine: &Machine) -> Result<Vec<u8>, AuthorError> {
        let module = compile(folder, machine)?;
        let bytes = std::fs::read(&module).map_err(|e| AuthorError::file(&module, e))?;
        component::from_module(&module, &bytes)
    }

    fn examine(&self, machine: &Machine) -> Found {
        let here = Path::new(".");
        let Some(rustc) = ask(Command::new("rustc").arg("--version")) else {
            return Found::Missing("no rustc; https://rustup.rs installs it for you, without root".to_owned());
        };
        let debian = machine.toolchain.as_deref() == Some("debian");
        if !debian && installed(here) {
            return Found::Ready(format!("{rustc}, target {TARGET}"));
        }
        if !debian && !machine.frozen_rustup && ask(Command::new("rustup").arg("--version")).is_some() {
            return Found::Fetched(format!("rustup target add {TARGET}"));
        }
        let apt = ask(Command::new("apt-cache").args(["show", "rustc-web"])).is_some();
        match debian::linker(here) {
            Ok(_) if apt => {
                Found::Fetched("Debian's compiler, 137 MB, and a standard library built from its sources".to_owned())
            }
            _ => Found::Missing(format!("rustup target add {TARGET}")),
        }
    }

    fn install(&self, machine: &Machine) -> Result<(), AuthorError> {
        find(Path::new("."), machine).map(|_| ())
    }
}

pub const TARGET: &str = "wasm32-unknown-unknown";

/// The compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Toolchain {
    /// The target is installed.
    Installed {
        rustc: String,
    },
    /// Rustup has just added the target.
    Added {
        rustc: String,
    },
    Debian(Debian),
}

impl std::fmt::Display for Toolchain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Toolchain::Installed { rustc } => write!(f, "{rustc}, target {TARGET} installed"),
            Toolchain::Added { rustc } => write!(f, "{rustc}, target {TARGET} added by rustup"),
            Toolchain::Debian(debian) => write!(f, "{debian}"),
        }
    }
}

/// Finds a compiler, in this order: an installed target; `rustup target add`; Debian's packages.
pub fn find(folder: &Path, machine: &Machine) -> Result<Toolchain, AuthorError> {
    match machine.toolchain.as_deref() {
        Some("debian") => return Ok(Toolchain::Debian(debian::ensure(folder, machine)?)),
        Some("rustup") | None => {}
        Some(other) => {
            return Err(AuthorError::Missing(format!(
                "SEQUOR_WASM_TOOLCHAIN is \"{other}\"; it may be rustup or debian"
            )));
        }
    }
    let rustc = ask(Command::new("rustc").arg("--version").current_dir(folder)).ok_or_else(|| {
        AuthorError::Missing("there is no rustc; https://rustup.rs installs it for you, without root".to_owned())
    })?;
    if installed(folder) {
        return Ok(Toolchain::Installed { rustc });
    }
    if !machine.frozen_rustup {
        (machine.say)(&format!("rustup target add {TARGET}"));
        let mut add = Command::new("rustup");
        if run(add.args(["target", "add", TARGET]).current_dir(folder), "").is_ok() && installed(folder) {
            return Ok(Toolchain::Added { rustc });
        }
    }
    if machine.toolchain.is_some() {
        return Err(AuthorError::Missing(format!("rustup has no target {TARGET}: rustup target add {TARGET}")));
    }
    debian::ensure(folder, machine).map(Toolchain::Debian)
}

/// Whether rustc's own sysroot has a standard library for the target.
pub(crate) fn installed(folder: &Path) -> bool {
    sysroot(folder).is_some_and(|root| root.join("lib/rustlib").join(TARGET).join("lib").is_dir())
}

/// Compiles the package of this folder and returns the path of its module.
pub fn compile(folder: &Path, machine: &Machine) -> Result<PathBuf, AuthorError> {
    let toolchain = find(folder, machine)?;
    (machine.say)(&toolchain.to_string());
    let mut cargo = Command::new("cargo");
    cargo.current_dir(folder);
    cargo.args(["build", "--release", "--lib", "--target", TARGET, "--message-format=json-render-diagnostics"]);
    cargo.args(machine.quiet.then_some("--quiet"));
    cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", rustflags(machine));
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    if let Toolchain::Debian(debian) = &toolchain {
        debian.set(&mut cargo);
    }
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| AuthorError::Missing(format!("cannot start cargo: {e}")))?;
    if !output.status.success() {
        let program = machine::name(cargo.get_program());
        return Err(AuthorError::Failed { program, status: output.status.to_string(), hint: String::new() });
    }
    let module = module_of(&String::from_utf8_lossy(&output.stdout));
    module.ok_or_else(|| {
        AuthorError::file(
            folder.join("Cargo.toml"),
            "no module was built; [lib] must say crate-type = [\"cdylib\", \"rlib\"]",
        )
    })
}

/// Compiler flags. Every engine that runs components has SIMD, and loops over columns gain from it. Panics name crate files without the
/// folders of this machine. This hides those folders, and makes the same source give the same component on every machine.
fn rustflags(machine: &Machine) -> String {
    let mut flags = "-C target-feature=+simd128".to_owned();
    for (folder, name) in [(&machine.cargo_home, "cargo"), (&machine.cache, "sequor")] {
        // Cargo splits the flags at spaces.
        if let Some(folder) = folder.to_str().filter(|folder| !folder.contains(char::is_whitespace)) {
            let _ = write!(flags, " --remap-path-prefix={folder}=/{name}");
        }
    }
    flags
}

/// The last module in cargo's messages: the package's own comes after its dependencies.
fn module_of(messages: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut modules = artifacts.filter_map(|message| {
        let files = message.get("filenames")?.as_array()?.clone();
        files.iter().filter_map(Value::as_str).find(|file| file.ends_with(".wasm")).map(PathBuf::from)
    });
    modules.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_this_machine_are_not_in_components() {
        let home = |home: &'static str| Machine::new(move |name| (name == "HOME").then(|| home.to_owned()), |_| ());
        let flags = rustflags(&home("/home/ada"));
        let wanted = "-C target-feature=+simd128 --remap-path-prefix=/home/ada/.cargo=/cargo \
            --remap-path-prefix=/home/ada/.cache/sequor=/sequor";
        assert_eq!(flags, wanted);
        assert_eq!(rustflags(&home("/home/ada byron")), "-C target-feature=+simd128");
    }

    #[test]
    fn the_path_of_the_module_is_read_from_cargo_messages() {
        let messages = r#"{"reason":"compiler-artifact","filenames":["/t/libserde.rlib"]}
{"reason":"compiler-artifact","filenames":["/t/fair_share.wasm","/t/libfair_share.rlib"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(module_of(messages), Some(PathBuf::from("/t/fair_share.wasm")));
        assert_eq!(module_of("noise"), None);
    }
}
