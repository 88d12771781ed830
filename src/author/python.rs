//! Builds a component from Python: componentize-py, from the Python package index into a virtual environment of the cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::language::{Found, Language};
use super::machine::{Machine, ask, run};
use super::sdk::Kit;
use super::stamp::Stamp;
use super::world::AuthorWorld;
use super::{AuthorError, sdk};

/// The tested version.
const COMPONENTIZE: &str = "componentize-py==0.25.1";
/// Functions that need a grant, by their names in plugin.py, and their interfaces.
const GRANTED: [(&str, &str); 2] = [("sequence_text", "identity"), ("models.infer", "models")];

#[derive(Debug)]
pub struct Python;

impl Language for Python {
    fn name(&self) -> &'static str {
        "python"
    }

    fn source(&self) -> &'static str {
        "plugin.py"
    }

    fn kit(&self) -> Kit {
        sdk::PYTHON
    }

    fn window(&self) -> Option<u32> {
        Some(256)
    }

    /// Uses the cached component if its inputs are unchanged.
    fn component(&self, folder: &Path, world: &dyn AuthorWorld, machine: &Machine) -> Result<Vec<u8>, AuthorError> {
        let stamp = Stamp::new(&format!("{COMPONENTIZE} {}", world.wit().without_ids))
            .kit(sdk::PYTHON)
            .kit(sdk::WIT)
            .sources(folder)?;
        stamp.component(machine, || make(folder, world, machine))
    }

    fn examine(&self, machine: &Machine) -> Found {
        if fetched(machine).is_some() {
            return Found::Ready(COMPONENTIZE.to_owned());
        }
        match ask(Command::new("python3").args(["-m", "pip", "--version"])) {
            Some(_) => Found::Fetched(format!("{COMPONENTIZE} with pip, 47 MB")),
            None => Found::Missing("no python3 with pip".to_owned()),
        }
    }

    fn install(&self, machine: &Machine) -> Result<(), AuthorError> {
        ensure(machine).map(|_| ())
    }
}

fn make(folder: &Path, world: &dyn AuthorWorld, machine: &Machine) -> Result<Vec<u8>, AuthorError> {
    let tool = ensure(machine)?;
    (machine.say)(&format!("{COMPONENTIZE} (about ten seconds)"));
    let scratch = tempfile::tempdir()?;
    let (kit, wit, out) = (scratch.path().join("kit"), scratch.path().join("wit"), scratch.path().join("out.wasm"));
    sdk::write(sdk::PYTHON, &kit)?;
    let of_contract = sdk::write_wit(&wit, world.wit(), &granted(&folder.join("plugin.py"))?)?;
    let mut command = Command::new(tool);
    // Otherwise pages of the tool's own stack frames follow the exception of plugin.py.
    command.env("RUST_BACKTRACE", "0").env_remove("RUST_LIB_BACKTRACE");
    command.arg("--quiet").arg("-d").arg(wit).args(["-w", of_contract, "componentize"]);
    // Without WASI: a plug-in has no files, clock or network. A component that imports none of these needs no stubs in the server.
    command.arg("--stub-wasi");
    let own = folder.join("sdk");
    for path in [folder, &own, &kit].into_iter().filter(|path| path.is_dir()) {
        command.arg("-p").arg(path);
    }
    command
        .arg(world.python_entry().unwrap_or_default())
        .arg("-o")
        .arg(&out)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("VIRTUAL_ENV");
    run(&mut command, "; what plugin.py raises when it is imported stands above")?;
    std::fs::read(&out).map_err(|e| AuthorError::file(&out, e))
}

/// The interfaces that need a grant and whose functions plugin.py mentions.
fn granted(source: &Path) -> Result<Vec<&'static str>, AuthorError> {
    let mut found = Vec::new();
    for (function, interface) in GRANTED {
        if sdk::names(source, function)? {
            found.push(interface);
        }
    }
    Ok(found)
}

/// The environment's folder; each version has its own.
fn environment(machine: &Machine) -> PathBuf {
    machine.cache.join(COMPONENTIZE)
}

/// The path of the tool, if it has been fetched.
fn fetched(machine: &Machine) -> Option<PathBuf> {
    let tool = environment(machine).join("bin/componentize-py");
    ask(Command::new(&tool).arg("--version")).map(|_| tool)
}

fn ensure(machine: &Machine) -> Result<PathBuf, AuthorError> {
    if let Some(tool) = fetched(machine) {
        return Ok(tool);
    }
    (machine.say)(&format!("fetching {COMPONENTIZE} with pip (47 MB) ..."));
    let folder = environment(machine);
    into_environment(&folder, COMPONENTIZE)?;
    fetched(machine).ok_or_else(|| AuthorError::file(folder, "componentize-py does not run on this machine"))
}

/// Installs a package of the Python package index into a new environment.
pub(super) fn into_environment(folder: &Path, package: &str) -> Result<(), AuthorError> {
    let hint = "; Python 3.10 or newer with pip is needed";
    // Without its own pip: Debian's Python has no ensurepip, but any pip can install into another interpreter.
    run(Command::new("python3").args(["-m", "venv", "--clear", "--without-pip"]).arg(folder), hint)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--python"]).arg(folder.join("bin/python"));
    run(pip.args(["install", "--quiet", "--disable-pip-version-check", package]), hint)
}
