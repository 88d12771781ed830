//! The world of state initializers, which make the first state of a sequence.

use std::path::Path;

use crate::author::sdk::{Kit, WitWorld, files};
use crate::author::world::AuthorWorld;
use crate::config::fault::Fault;
use crate::initializing::manifest;

#[derive(Debug)]
pub struct InitializerProjects;

const WIT: WitWorld = WitWorld {
    name: "state-initializer-plugin",
    name_without_ids: "state-initializer-without-ids",
    without_ids: "package sequor:plugin@0.1.0;
world state-initializer-without-ids {
    import types;
    import host;
    import tensors;
    import calls;
    export state-initializer;
}
",
};

impl AuthorWorld for InitializerProjects {
    fn name(&self) -> &'static str {
        "state-initializer"
    }

    fn about(&self) -> &'static str {
        "A state initializer"
    }

    fn wit(&self) -> &'static WitWorld {
        &WIT
    }

    fn python_entry(&self) -> Option<&'static str> {
        Some("sequor_plugin_initializer_entry")
    }

    fn common(&self) -> Kit {
        files!(
            "plugin.toml": "initializer/common/plugin.toml" "cases/tenants.toml": "initializer/common/cases/tenants.toml"
            "README.md": "common/README.md")
    }

    fn template(&self, language: &str) -> Option<Kit> {
        match language {
            "rust" => Some(files!(
                "Cargo.toml": "rust/Cargo.toml" "src/lib.rs": "initializer/rust/src/lib.rs"
                ".gitignore": "rust/gitignore")),
            "python" => Some(files!(
                "plugin.py": "initializer/python/plugin.py" "test_plugin.py": "initializer/python/test_plugin.py"
                ".gitignore": "python/gitignore")),
            _ => None,
        }
    }

    fn check_manifest(&self, path: &Path, text: &str) -> Result<(), Fault> {
        manifest::parse(path, text).map(drop)
    }

    fn case(&self) -> &'static str {
        "cases/*.toml, START by START"
    }
}
