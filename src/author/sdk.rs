//! The kits embedded in this program: the library for plug-ins in each language, and the contract itself. The same files are in `plugins/`.

use std::path::Path;

use super::AuthorError;

/// Contents of files, by their path within a kit.
pub type Kit = &'static [(&'static str, &'static str)];

macro_rules! kit {
    ($folder:literal: $($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../plugins/", $folder, "/", $path)))),*]
    };
}

/// Files of `plugins/templates`, by their target path.
macro_rules! files {
    ($($to:literal: $from:literal)*) => {
        &[$(($to, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/plugins/templates/", $from)))),*]
    };
}
pub(super) use files;

/// The crate `sequor-plugin`.
pub const RUST: Kit = kit!("sdk":
    "Cargo.toml" "src/admission.rs" "src/arguments.rs" "src/bindings.rs" "src/columns.rs" "src/config.rs" "src/event.rs" "src/host.rs"
    "src/initializer/bindings.rs" "src/initializer/first_state.rs" "src/initializer/instance.rs" "src/initializer/mod.rs"
    "src/initializer/ports.rs" "src/initializer/testing.rs" "src/initializer/wasm.rs"
    "src/instance.rs" "src/lib.rs" "src/manifest.rs" "src/model.rs" "src/order.rs" "src/plan.rs" "src/processor/bindings.rs"
    "src/processor/call.rs" "src/processor/dtype.rs" "src/processor/files.rs" "src/processor/half.rs" "src/processor/held.rs"
    "src/processor/instance.rs"
    "src/processor/join.rs" "src/processor/mod.rs" "src/processor/models.rs" "src/processor/prepared.rs" "src/processor/refusal.rs" "src/processor/scratch.rs"
    "src/processor/signature.rs" "src/processor/tensor.rs" "src/processor/tensors.rs" "src/processor/testing.rs"
    "src/processor/tokens.rs" "src/processor/wasm.rs"
    "src/ready.rs" "src/round.rs" "src/saved.rs"
    "src/testing.rs" "src/wasm.rs"
    "wit/calls.wit" "wit/host.wit" "wit/models.wit" "wit/processor.wit" "wit/scheduler.wit" "wit/state-initializer.wit"
    "wit/tensors.wit" "wit/types.wit");

/// The Python package `sequor_plugin`, and the modules that export it.
pub const PYTHON: Kit = kit!("sdk-python": "build_backend.py" "pyproject.toml"
    "sequor_plugin/__init__.py" "sequor_plugin/__init__.pyi" "sequor_plugin/answers.py" "sequor_plugin/answers.pyi"
    "sequor_plugin/columns.py" "sequor_plugin/columns.pyi" "sequor_plugin/contents.py" "sequor_plugin/events.py" "sequor_plugin/events.pyi" "sequor_plugin/glue.py"
    "sequor_plugin/host.py" "sequor_plugin/host.pyi" "sequor_plugin/initializer.py" "sequor_plugin/initializer.pyi"
    "sequor_plugin/initializer_glue.py" "sequor_plugin/initializer_testing.py" "sequor_plugin/initializer_testing.pyi"
    "sequor_plugin/models.py" "sequor_plugin/models.pyi" "sequor_plugin/processor.py" "sequor_plugin/processor.pyi"
    "sequor_plugin/processor_glue.py" "sequor_plugin/processor_testing.py" "sequor_plugin/processor_testing.pyi" "sequor_plugin/py.typed" "sequor_plugin/saved.py" "sequor_plugin/saved.pyi"
    "sequor_plugin/tensors.py" "sequor_plugin/tensors.pyi" "sequor_plugin/testing.py" "sequor_plugin/testing.pyi" "sequor_plugin/wire.py" "sequor_plugin_entry.py"
    "sequor_plugin_initializer_entry.py" "sequor_plugin_processor_entry.py");

/// The generated C, and the header over it.
pub const C: Kit = kit!("sdk-c": "scheduler_plugin.c" "scheduler_plugin.h" "sequor.c" "sequor.h");

/// The JavaScript modules, their types, and the module that exports them.
pub const JAVASCRIPT: Kit = kit!("sdk-js":
    "answers.js" "entry.js" "events.js" "glue.js" "host.js" "index.d.ts" "index.js" "keys.js" "manifest.js" "package.json" "ready.js" "saved.js"
    "testing.d.ts" "testing.js");

/// The tool that builds components from JavaScript.
pub(super) const COMPONENTIZE_JS: Kit = kit!("componentize-js": "componentize.mjs" "package-lock.json" "package.json");

/// The contract.
pub const WIT: Kit = kit!("sdk/wit": "calls.wit" "host.wit" "models.wit" "processor.wit" "scheduler.wit" "state-initializer.wit" "tensors.wit" "types.wit");

/// A world of the contract, with and without the ids of clients.
///
/// Languages with their own run time import all of a world, used or not. A plug-in that does not use ids must not require a grant for them.
/// It is thus built for the world without ids, plus the interfaces that it names.
///
/// What languages with a run time of their own make imports all of its world, used or not. A plug-in without need of ids must not require a grant of
/// them, so it is built for the world without them, or with what it names.
#[derive(Debug)]
pub struct WitWorld {
    pub name: &'static str,
    pub name_without_ids: &'static str,
    /// The text of the world without ids.
    pub without_ids: &'static str,
}

/// Writes the contract into a folder, and the world for a plug-in: the world without ids, plus these interfaces that need a grant. Returns
/// the name of the world.
pub fn write_wit(to: &Path, world: &WitWorld, granted: &[&str]) -> Result<&'static str, AuthorError> {
    write(WIT, to)?;
    let imports: String = granted.iter().map(|interface| format!("    import {interface};\n")).collect();
    let text = world.without_ids.replacen("    export ", &format!("{imports}    export "), 1);
    let path = to.join("chosen-world.wit");
    std::fs::write(&path, text).map_err(|e| AuthorError::file(&path, e))?;
    Ok(world.name_without_ids)
}

/// Whether a plug-in's file mentions this name anywhere.
pub(super) fn names(path: &Path, what: &str) -> Result<bool, AuthorError> {
    let text = std::fs::read_to_string(path).map_err(|e| AuthorError::file(path, e))?;
    Ok(text.contains(what))
}

/// Writes a kit into a folder.
pub fn write(kit: Kit, to: &Path) -> Result<(), AuthorError> {
    for (path, text) in kit {
        let path = to.join(path);
        let parent = path.parent().unwrap_or(to);
        std::fs::create_dir_all(parent).map_err(|e| AuthorError::file(parent, e))?;
        std::fs::write(&path, text).map_err(|e| AuthorError::file(&path, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if entry.path().is_dir() && name != "__pycache__" {
                found.extend(below(&entry.path()).into_iter().map(|path| format!("{name}/{path}")));
            } else if entry.path().is_file() {
                found.push(name);
            }
        }
        found.sort();
        found
    }

    #[test]
    fn every_file_of_a_kit_is_embedded_in_the_program() {
        let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins");
        for (folder, kit) in
            [("sdk", RUST), ("sdk-python", PYTHON), ("sdk-js", JAVASCRIPT), ("sdk-c", C), ("sdk/wit", WIT)]
        {
            let carried: Vec<&str> = kit.iter().map(|(path, _)| *path).collect();
            assert_eq!(carried, below(&plugins.join(folder)), "{folder}");
        }
    }
}
