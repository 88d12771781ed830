//! The world of processors, which change a model's inputs and outputs.

use std::path::Path;

use crate::author::sdk::{Kit, WitWorld, files};
use crate::author::world::AuthorWorld;
use crate::config::fault::Fault;
use crate::processing::manifest;

#[derive(Debug)]
pub struct ProcessorProjects;

const WIT: WitWorld = WitWorld {
    name: "processor-plugin",
    name_without_ids: "processor-without-ids",
    without_ids: "package sequor:plugin@0.1.0;
world processor-without-ids {
    import types;
    import host;
    import tensors;
    import calls;
    export processor;
}
",
};

impl AuthorWorld for ProcessorProjects {
    fn name(&self) -> &'static str {
        "processor"
    }

    fn about(&self) -> &'static str {
        "A processor"
    }

    fn wit(&self) -> &'static WitWorld {
        &WIT
    }

    fn python_entry(&self) -> Option<&'static str> {
        Some("sequor_plugin_processor_entry")
    }

    fn common(&self) -> Kit {
        files!(
            "plugin.toml": "processor/common/plugin.toml" "cases/ramp.toml": "processor/common/cases/ramp.toml"
            "README.md": "common/README.md")
    }

    fn template(&self, language: &str) -> Option<Kit> {
        match language {
            "rust" => Some(files!(
                "Cargo.toml": "rust/Cargo.toml" "src/lib.rs": "processor/rust/src/lib.rs"
                ".gitignore": "rust/gitignore")),
            "python" => Some(files!(
                "plugin.py": "processor/python/plugin.py" "test_plugin.py": "processor/python/test_plugin.py"
                ".gitignore": "python/gitignore")),
            _ => None,
        }
    }

    fn check_manifest(&self, path: &Path, text: &str) -> Result<(), Fault> {
        manifest::parse(path, text).map(drop)
    }

    fn case(&self) -> &'static str {
        "cases/*.toml, in packets of every size"
    }
}
