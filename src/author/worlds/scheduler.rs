//! The world of schedulers, which decide which requests run together, and when.

use std::path::Path;

use crate::author::sdk::{Kit, WitWorld, files};
use crate::author::world::AuthorWorld;
use crate::config::fault::Fault;
use crate::scheduling::manifest;

#[derive(Debug)]
pub struct SchedulerProjects;

const WIT: WitWorld = WitWorld {
    name: "scheduler-plugin",
    name_without_ids: "without-ids",
    without_ids: "package sequor:plugin@0.1.0;
world without-ids {
    import types;
    import host;
    export scheduler;
}
",
};

impl AuthorWorld for SchedulerProjects {
    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn about(&self) -> &'static str {
        "A scheduler"
    }

    fn wit(&self) -> &'static WitWorld {
        &WIT
    }

    fn python_entry(&self) -> Option<&'static str> {
        Some("sequor_plugin_entry")
    }

    fn common(&self) -> Kit {
        files!(
            "plugin.toml": "common/plugin.toml" "cases/burst.toml": "common/cases/burst.toml"
            "README.md": "common/README.md")
    }

    fn template(&self, language: &str) -> Option<Kit> {
        match language {
            "rust" => Some(
                files!("Cargo.toml": "rust/Cargo.toml" "src/lib.rs": "rust/src/lib.rs" ".gitignore": "rust/gitignore"),
            ),
            "python" => Some(files!(
                "plugin.py": "python/plugin.py" "test_plugin.py": "python/test_plugin.py"
                ".gitignore": "python/gitignore")),
            "js" => Some(files!(
                "plugin.js": "js/plugin.js" "plugin.test.js": "js/plugin.test.js" "package.json": "js/package.json"
                ".gitignore": "js/gitignore")),
            "c" => Some(files!("plugin.c": "c/plugin.c" ".gitignore": "c/gitignore")),
            _ => None,
        }
    }

    fn check_manifest(&self, path: &Path, text: &str) -> Result<(), Fault> {
        manifest::parse(path, text).map(drop)
    }

    fn case(&self) -> &'static str {
        "cases/*.toml, in virtual time"
    }
}
