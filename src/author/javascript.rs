//! Builds a component from JavaScript: componentize-js, from npm by the hashes of a lock file into the cache, and the Node of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::files_of;
use super::language::{Found, Language};
use super::machine::{Machine, ask, run};
use super::sdk::Kit;
use super::stamp::Stamp;
use super::world::AuthorWorld;
use super::{AuthorError, sdk};

/// The tested version. Its dependencies are in the lock file.
const COMPONENTIZE: &str = "componentize-js@0.23.0";
/// The minimum Node version for it.
const NODE: u32 = 20;
const SOURCES: [&str; 2] = ["js", "mjs"];
/// The entry module. It must be beside plugin.js, because modules are found only below the entry's folder.
const ENTRY: &str = "sequor-entry.js";
/// The module through which the entry imports the ids of clients, with and without permission.
const IDENTITY: &str = "sequor-identity.js";
const WITH_IDS: &str = "export { sequenceText } from \"sequor:plugin/identity@0.1.0\";\n";
const WITHOUT_IDS: &str = "export const sequenceText = undefined;\n";

#[derive(Debug)]
pub struct JavaScript;

impl Language for JavaScript {
    fn name(&self) -> &'static str {
        "js"
    }

    fn source(&self) -> &'static str {
        "plugin.js"
    }

    fn kit(&self) -> Kit {
        sdk::JAVASCRIPT
    }

    fn window(&self) -> Option<u32> {
        Some(64)
    }

    /// Uses the cached component if its inputs are unchanged.
    fn component(&self, folder: &Path, world: &dyn AuthorWorld, machine: &Machine) -> Result<Vec<u8>, AuthorError> {
        let stamp = Stamp::new(&format!("{COMPONENTIZE} {}", world.wit().without_ids))
            .kit(sdk::COMPONENTIZE_JS)
            .kit(sdk::JAVASCRIPT)
            .kit(sdk::WIT)
            .sources(folder)?;
        stamp.component(machine, || make(folder, world, machine))
    }

    fn examine(&self, machine: &Machine) -> Found {
        match (node(), fetched(machine)) {
            (Err(missing), _) => Found::Missing(missing),
            (Ok(node), Some(_)) => Found::Ready(format!("{COMPONENTIZE}, node {node}")),
            (Ok(_), None) => match ask(Command::new("npm").arg("--version")) {
                Some(_) => Found::Fetched(format!("{COMPONENTIZE} with npm, 59 MB")),
                None => Found::Missing("no npm beside node".to_owned()),
            },
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
    let (source, wit, out) =
        (scratch.path().join("source"), scratch.path().join("wit"), scratch.path().join("out.wasm"));
    let with_ids = sdk::names(&folder.join("plugin.js"), "sequenceText")?;
    lay_out(folder, &source, with_ids)?;
    let granted: &[&str] = if with_ids { &["identity"] } else { &[] };
    let world = sdk::write_wit(&wit, world.wit(), granted)?;
    let script = sdk::COMPONENTIZE_JS.iter().find(|(path, _)| *path == "componentize.mjs").map_or("", |(_, text)| text);
    let mut command = Command::new("node");
    command.args(["--input-type=module", "-e", script]).arg(source.join(ENTRY)).arg(&wit).arg(world).arg(&out);
    // Node resolves packages from this folder. The tool's temporary files are deleted with the scratch folder.
    command.current_dir(tool).env("TMPDIR", scratch.path());
    run(&mut command, "; what plugin.js throws when it is loaded stands above")?;
    std::fs::read(&out).map_err(|e| AuthorError::file(&out, e))
}

/// Copies the sources, the kit into sdk/ unless the author has one there, and the entry.
fn lay_out(folder: &Path, to: &Path, with_ids: bool) -> Result<(), AuthorError> {
    for path in files_of(folder, &SOURCES)? {
        let copy = to.join(path.strip_prefix(folder).unwrap_or(&path));
        let parent = copy.parent().unwrap_or(to);
        std::fs::create_dir_all(parent).map_err(|e| AuthorError::file(parent, e))?;
        std::fs::copy(&path, &copy).map_err(|e| AuthorError::file(&path, e))?;
    }
    let kit = to.join("sdk");
    if !kit.is_dir() {
        sdk::write(sdk::JAVASCRIPT, &kit)?;
    }
    let (from, entry) = (kit.join("entry.js"), to.join(ENTRY));
    std::fs::copy(&from, entry).map_err(|e| AuthorError::file(from, e))?;
    let identity = to.join(IDENTITY);
    std::fs::write(&identity, if with_ids { WITH_IDS } else { WITHOUT_IDS }).map_err(|e| AuthorError::file(identity, e))
}

/// The version of this machine's Node, or what is missing.
fn node() -> Result<String, String> {
    let get = format!("node {NODE} or newer is needed: https://nodejs.org");
    let version = ask(Command::new("node").arg("--version")).ok_or(format!("no node; {get}"))?;
    match major(&version) {
        Some(major) if major >= NODE => Ok(version.trim_start_matches('v').to_owned()),
        _ => Err(format!("node {version} is too old; {get}")),
    }
}

/// The major version: 20 for `v20.20.2`.
fn major(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').next()?.parse().ok()
}

/// The folder of the tool, if it was fetched with this lock file.
fn fetched(machine: &Machine) -> Option<PathBuf> {
    let folder = machine.cache.join(COMPONENTIZE);
    let same = |path: &str, text: &str| std::fs::read_to_string(folder.join(path)).is_ok_and(|is| is == text);
    let whole = sdk::COMPONENTIZE_JS.iter().all(|(path, text)| same(path, text));
    (whole && folder.join("node_modules/@bytecodealliance/componentize-js").is_dir()).then_some(folder)
}

fn ensure(machine: &Machine) -> Result<PathBuf, AuthorError> {
    node().map_err(AuthorError::Missing)?;
    if let Some(folder) = fetched(machine) {
        return Ok(folder);
    }
    (machine.say)(&format!("fetching {COMPONENTIZE} with npm (59 MB) ..."));
    std::fs::create_dir_all(&machine.cache)?;
    let fetching = tempfile::Builder::new().prefix("componentize-js-").tempdir_in(&machine.cache)?;
    sdk::write(sdk::COMPONENTIZE_JS, fetching.path())?;
    let mut npm = Command::new("npm");
    // The lock file has the hash of every fetched package, and no package runs code during the installation.
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(fetching.path());
    run(&mut npm, "; npm is needed, and its registry")?;
    let folder = machine.cache.join(COMPONENTIZE);
    // A folder of another lock file may be in the way. If another process installed the tool meanwhile, its folder is the same.
    if fetched(machine).is_none() {
        let _ = std::fs::remove_dir_all(&folder);
        let _ = std::fs::rename(fetching.path(), &folder);
    }
    fetched(machine).ok_or_else(|| AuthorError::file(folder, "componentize-js could not be laid there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javascript_sources_are_copied_beside_the_entry_file() {
        let scratch = tempfile::tempdir().unwrap();
        let (folder, to) = (scratch.path().join("mine"), scratch.path().join("source"));
        for path in ["plugin.js", "lib/shares.js", "node_modules/x/index.js", "notes.txt"] {
            std::fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
            std::fs::write(folder.join(path), path).unwrap();
        }
        lay_out(&folder, &to, false).unwrap();
        let there = |path: &str| to.join(path).is_file();
        assert!(["plugin.js", "lib/shares.js", "sdk/index.js", ENTRY].into_iter().all(there));
        assert!(!there("node_modules/x/index.js") && !there("notes.txt"));
        assert_eq!(std::fs::read_to_string(to.join(IDENTITY)).unwrap(), WITHOUT_IDS);
        // An author's own kit is kept.
        std::fs::create_dir_all(folder.join("sdk")).unwrap();
        std::fs::write(folder.join("sdk/entry.js"), "mine").unwrap();
        let to = scratch.path().join("again");
        lay_out(&folder, &to, true).unwrap();
        assert_eq!(std::fs::read_to_string(to.join(ENTRY)).unwrap(), "mine");
        assert_eq!(std::fs::read_to_string(to.join(IDENTITY)).unwrap(), WITH_IDS);
    }

    #[test]
    fn the_major_version_of_node_is_parsed() {
        assert_eq!((major("v20.20.2"), major("18"), major("nightly")), (Some(20), Some(18), None));
    }
}
