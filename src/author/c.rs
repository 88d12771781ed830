//! Builds a component from C: zig's compiler, from the Python package index into the cache, and the generated code embedded in this
//! program. The compiler is large, so it is fetched only on request.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::language::{Found, Language};
use super::machine::{Machine, ask, run};
use super::sdk::Kit;
use super::stamp::Stamp;
use super::world::AuthorWorld;
use super::{AuthorError, component, encoder, python, sdk};

/// The tested version.
const ZIG: &str = "ziglang==0.17.0";
/// Assertions stay enabled and log the failed condition. Zig's default stack of 16 MiB would take all of a plug-in's memory.
const OPTIONS: [&str; 12] = [
    "cc",
    "-target",
    "wasm32-wasi",
    "-mexec-model=reactor",
    "-O3",
    "-UNDEBUG",
    "-D__assert_fail=sequor_assertion_failed",
    "-msimd128",
    "-Wall",
    "-Wl,--no-entry",
    "-Wl,-z,stack-size=262144",
    "-I",
];
const GET: &str = "sequor plugin doctor --install c";

#[derive(Debug)]
pub struct C;

impl Language for C {
    fn name(&self) -> &'static str {
        "c"
    }

    fn source(&self) -> &'static str {
        "plugin.c"
    }

    fn kit(&self) -> Kit {
        sdk::C
    }

    /// Uses the cached component if its inputs are unchanged.
    fn component(&self, folder: &Path, world: &dyn AuthorWorld, machine: &Machine) -> Result<Vec<u8>, AuthorError> {
        let stamp = Stamp::new(&format!("{ZIG} {}", OPTIONS.join(" "))).kit(sdk::C).kit(sdk::WIT).sources(folder)?;
        stamp.component(machine, || make(folder, world, machine))
    }

    fn examine(&self, machine: &Machine) -> Found {
        match fetched(machine) {
            Some(_) => Found::Ready(ZIG.to_owned()),
            None => Found::Missing(format!("{GET} (411 MB)")),
        }
    }

    fn install(&self, machine: &Machine) -> Result<(), AuthorError> {
        if fetched(machine).is_none() {
            (machine.say)(&format!("fetching {ZIG} with pip (411 MB) ..."));
            python::into_environment(&environment(machine), ZIG)?;
        }
        Ok(())
    }
}

fn make(folder: &Path, world: &dyn AuthorWorld, machine: &Machine) -> Result<Vec<u8>, AuthorError> {
    let zig = fetched(machine).ok_or_else(|| AuthorError::Missing(format!("no compiler for C: {GET} (411 MB)")))?;
    (machine.say)(ZIG);
    let scratch = tempfile::tempdir()?;
    let (kit, module) = (scratch.path().join("kit"), scratch.path().join("plugin.wasm"));
    sdk::write(sdk::C, &kit)?;
    let mut command = Command::new(zig);
    command.args(["-m", "ziglang"]).args(OPTIONS).arg(&kit);
    command.arg(folder.join("plugin.c")).args(["sequor.c", "scheduler_plugin.c"].map(|file| kit.join(file)));
    let command = command.arg("-o").arg(&module).env("ZIG_GLOBAL_CACHE_DIR", machine.cache.join("zig"));
    run(command, "").map_err(called_zig)?;
    let bytes = std::fs::read(&module).map_err(|e| AuthorError::file(&module, e))?;
    let path = folder.join("plugin.c");
    let wrong = |what| AuthorError::Component { path: path.clone(), what };
    let mut bytes = without_lines(&bytes).map_err(wrong)?;
    on_its_own(&bytes).map_err(wrong)?;
    typed(&mut bytes, world.wit().name).map_err(wrong)?;
    component::from_module(&path, &bytes)
}

/// Renames the failed program: zig runs from a Python package, but users know it as `zig cc`.
fn called_zig(problem: AuthorError) -> AuthorError {
    match problem {
        AuthorError::Failed { status, hint, .. } => AuthorError::Failed { program: "zig cc".to_owned(), status, hint },
        other => other,
    }
}

/// The module without debug sections, which hold a megabyte of zig's library with the paths of this machine. Function names stay, so that a
/// trap names its function.
fn without_lines(module: &[u8]) -> Result<Vec<u8>, String> {
    let mut kept = module.get(..8).unwrap_or_default().to_vec();
    for payload in wasmparser::Parser::new(0).parse_all(module) {
        let payload = payload.map_err(|e| e.to_string())?;
        let is_debug =
            matches!(&payload, wasmparser::Payload::CustomSection(custom) if custom.name().starts_with(".debug_"));
        if let Some((id, range)) = payload.as_section().filter(|_| !is_debug) {
            kept.push(id);
            kept.extend(component::leb128(range.len()));
            kept.extend(module.get(range).unwrap_or_default());
        }
    }
    Ok(kept)
}

/// Refuses a module that imports functions of an operating system, as `printf` does.
fn on_its_own(module: &[u8]) -> Result<(), String> {
    let mut calls = Vec::new();
    for payload in wasmparser::Parser::new(0).parse_all(module) {
        let wasmparser::Payload::ImportSection(section) = payload.map_err(|e| e.to_string())? else { continue };
        for import in section.into_imports() {
            let import = import.map_err(|e| e.to_string())?;
            if import.module.starts_with("wasi_") {
                calls.push(import.name);
            }
        }
    }
    if calls.is_empty() {
        return Ok(());
    }
    let calls = calls.join(", ");
    Err(format!(
        "it calls an operating system ({calls}), which a plug-in has not: no printf, files, exit or clock. sequor_log writes to the server's log"
    ))
}

/// Embeds the type of the world in the module, where the component encoder looks for it.
fn typed(module: &mut Vec<u8>, world: &str) -> Result<(), String> {
    let text: String = sdk::WIT.iter().enumerate().map(|(n, (_, text))| one_package(n, text)).collect();
    encoder::embed_world(module, &text, world)
}

/// Removes the `package` line from all files but the first: files of one package each have it, but one text may have it once only.
fn one_package(n: usize, text: &str) -> String {
    let rest =
        |(first, rest): (&str, &str)| if first.starts_with("package ") { rest.to_owned() } else { text.to_owned() };
    if n == 0 { text.to_owned() } else { text.split_once('\n').map_or_else(|| text.to_owned(), rest) }
}

fn environment(machine: &Machine) -> PathBuf {
    machine.cache.join(ZIG)
}

/// The Python of the environment with zig, if it has been fetched.
fn fetched(machine: &Machine) -> Option<PathBuf> {
    let python = environment(machine).join("bin/python");
    ask(Command::new(&python).args(["-c", "import ziglang"])).map(|_| python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripping_a_module_keeps_names_and_removes_debug_sections() {
        let section = |name: &str| [&[0, name.len() as u8 + 3, name.len() as u8], name.as_bytes(), b"ab"].concat();
        let module = |names: &[&str]| {
            names.iter().fold(b"\0asm\x01\0\0\0".to_vec(), |module, name| [module, section(name)].concat())
        };
        let all = module(&[".debug_info", "name", ".debug_line", "producers"]);
        assert_eq!(without_lines(&all).unwrap(), module(&["name", "producers"]));
        assert!(without_lines(&all[..all.len() - 3]).is_err());
    }

    #[test]
    fn the_world_type_is_written_into_the_module() {
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        typed(&mut module, "scheduler-plugin").unwrap();
        let text = String::from_utf8_lossy(&module).into_owned();
        assert!(text.contains("component-type") && text.contains("scheduler-plugin"));
    }
}
