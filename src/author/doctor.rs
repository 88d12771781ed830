//! Which languages this machine can build plug-ins in, and what is missing for the others. It looks, and installs nothing.

use std::path::Path;
use std::process::Command;

use super::machine::ask;
use super::{Language, Machine, c, python, rust};

/// What there is for a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Ready(String),
    /// The first build fetches it.
    Fetched(String),
    Missing(String),
}

/// What there is for each language.
pub fn examine(machine: &Machine) -> Vec<(Language, Found)> {
    vec![(Language::Rust, for_rust(machine)), (Language::Python, for_python(machine)), (Language::C, for_c(machine))]
}

fn for_rust(machine: &Machine) -> Found {
    let here = Path::new(".");
    let Some(rustc) = ask(Command::new("rustc").arg("--version")) else {
        return Found::Missing("no rustc; https://rustup.rs installs it for you, without root".to_owned());
    };
    let debian = machine.toolchain.as_deref() == Some("debian");
    if !debian && rust::installed(here) {
        return Found::Ready(format!("{rustc}, target {}", rust::TARGET));
    }
    if !debian && !machine.frozen_rustup && ask(Command::new("rustup").arg("--version")).is_some() {
        return Found::Fetched(format!("rustup target add {}", rust::TARGET));
    }
    match ask(Command::new("apt-cache").args(["show", "rustc-web"])) {
        Some(_) => {
            Found::Fetched("Debian's compiler, 137 MB, and a standard library built from its sources".to_owned())
        }
        None => Found::Missing(format!("rustup target add {}", rust::TARGET)),
    }
}

fn for_c(machine: &Machine) -> Found {
    match c::fetched(machine) {
        Some(_) => Found::Ready(c::ZIG.to_owned()),
        None => Found::Missing(format!("{} (411 MB)", c::GET)),
    }
}

fn for_python(machine: &Machine) -> Found {
    if python::fetched(machine).is_some() {
        return Found::Ready(python::COMPONENTIZE.to_owned());
    }
    match ask(Command::new("python3").args(["-m", "pip", "--version"])) {
        Some(_) => Found::Fetched(format!("{} with pip, 47 MB", python::COMPONENTIZE)),
        None => Found::Missing("no python3 with pip".to_owned()),
    }
}
