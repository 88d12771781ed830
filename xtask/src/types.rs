//! Checks the types of the kit for JavaScript: TypeScript, pinned by the hashes of a lock file, compiles them, the template and the guest
//! in strict mode.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{guests, node, process};

const TESTS: &str = "plugins/sdk-js-tests";
/// The fetched packages and the compiler's settings are in one folder, because the compiler looks for packages from the folder of its
/// files.
const PINS: [&str; 2] = ["package.json", "package-lock.json"];

pub(crate) fn check() -> Result<String> {
    let folder = ensure()?;
    let plugins = process::root().join("plugins");
    let kit = plugins.join("sdk-js");
    let (message, made) = (folder.join("said"), folder.join("made"));
    lay(&kit, &message, |text| text)?;
    lay(&kit, &made, |text| format!("// @ts-nocheck\n{text}"))?;
    for types in ["index.d.ts", "testing.d.ts"] {
        copy(&kit.join(types), &message.join(types), |text| text)?;
    }
    for (name, from) in [("template", "templates/js"), ("guest", "guests-js/fair-share-js")] {
        lay(&plugins.join(from), &folder.join(name), |text| text)?;
        // The same layout as next to an author's plugin.js.
        std::os::unix::fs::symlink("../said", folder.join(name).join("sdk")).context("cannot lay the kit there")?;
    }
    for file in ["tsconfig.json", "alike.ts"] {
        copy(&process::root().join(TESTS).join(file), &folder.join(file), |text| text)?;
    }
    process::run(of_node("node").arg("node_modules/typescript/bin/tsc").current_dir(&folder))?;
    Ok(String::new())
}

/// The folder of the compiler. It is fetched if it is not there with these pins.
fn ensure() -> Result<PathBuf> {
    let folder = guests::tools().join("typescript");
    let pinned = |file: &&str| {
        let read = |folder: &Path| fs::read(folder.join(file)).unwrap_or_default();
        read(&folder) == read(&process::root().join(TESTS))
    };
    if PINS.iter().all(pinned) && folder.join("node_modules/typescript").is_dir() {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for file in PINS {
        copy(&process::root().join(TESTS).join(file), &folder.join(file), |text| text)?;
    }
    // The lock file has the hash of every fetched package, and no package runs code while it is installed.
    let quiet = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    process::run(of_node("npm").args(quiet).current_dir(&folder))?;
    Ok(folder)
}

/// A program of the Node that tests have.
fn of_node(program: &str) -> std::process::Command {
    guests::on_path(&node::program().with_file_name(program))
}

/// Copies the modules of a folder to a folder of their own.
fn lay(from: &Path, to: &Path, change: impl Fn(String) -> String) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).with_context(|| format!("cannot remove {}", to.display()))?;
    }
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for path in guests::entries(from)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "js")) {
        copy(&path, &to.join(path.file_name().unwrap_or_default()), &change)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, change: impl Fn(String) -> String) -> Result<()> {
    let text = fs::read_to_string(from).with_context(|| format!("cannot read {}", from.display()))?;
    fs::write(to, change(text)).with_context(|| format!("cannot write {}", to.display()))
}
