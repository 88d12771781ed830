//! The fields of an initializer's `plugin.toml` that not all worlds have.

use std::path::Path;

use sequor_wasm::manifest::{self, Declared, Fields, wrong};
use sequor_wasm::settings::PluginSettings;
use serde::Deserialize;

use super::contract::WORLD;
use crate::config::fault::Fault;
use crate::config::units::{Size, human};

/// Maximum of `by_value`, and its default.
const BY_VALUE: (u64, u64) = (1 << 20, 64 << 10);

/// The checked fields of `plugin.toml` that not all worlds have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitializerManifest {
    /// Inputs of a START that the initializer sees.
    pub reads: Vec<String>,
    /// A tensor larger than this many bytes is passed by handle.
    pub by_value: u64,
    /// Features that the model must have.
    pub features: Vec<String>,
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InitializerFile {
    name: String,
    version: String,
    world: String,
    contract: String,
    #[serde(default)]
    reads: Vec<String>,
    #[serde(rename = "by-value")]
    by_value: Option<Size>,
    #[serde(default)]
    features: Vec<String>,
    #[serde(default)]
    config: PluginSettings,
}

/// Parses a `plugin.toml`. Faults name the file as `path`.
pub fn parse(path: &Path, text: &str) -> Result<Declared<InitializerManifest>, Fault> {
    let InitializerFile { name, version, world, contract, reads, by_value, features, config } =
        manifest::parse(path, text)?;
    let fields = Fields { name, version, world, contract, config };
    fields.check(path, text, WORLD)?;
    let by_value = by_value.map_or(BY_VALUE.1, |size| size.0);
    if by_value > BY_VALUE.0 {
        let what = format!("by-value is {}; the maximum is {}", human(by_value), human(BY_VALUE.0));
        return Err(wrong(path, text, &["by-value"], what));
    }
    Ok(fields.declare(InitializerManifest { reads, by_value, features }))
}

/// The manifest of a component without a `plugin.toml`.
pub(super) fn undeclared() -> InitializerManifest {
    InitializerManifest { reads: Vec::new(), by_value: BY_VALUE.1, features: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: &str = r#"name = "prompt"
version = "0.1.0"
world = "state-initializer"
contract = "0.1.0"
reads = ["token"]
by-value = "16KiB"
features = ["prompt"]
"#;

    fn read(text: &str) -> Result<InitializerManifest, String> {
        parse(Path::new("plugin.toml"), text).map(|declared| declared.manifest).map_err(|e| e.to_string())
    }

    #[test]
    fn an_initializer_manifest_declares_its_inputs_and_limits() {
        let manifest = read(PROMPT).unwrap();
        assert_eq!((manifest.reads, manifest.by_value), (vec!["token".to_owned()], 16384));
        assert_eq!(manifest.features, ["prompt"]);
        let least = PROMPT.replace("reads", "# ").replace("by-", "# ").replace("features", "# ");
        assert_eq!(read(&least), Ok(undeclared()));
    }

    #[test]
    fn a_fault_is_reported_at_its_line() {
        for (from, to, fault) in [
            ("16KiB", "2MiB", "plugin.toml:6:1: by-value is 2 MiB; the maximum is 1 MiB"),
            ("\"state-initializer\"", "\"processor\"", "plugin.toml:3:1: world \"processor\" is not served here"),
            ("reads", "read", "did you mean \"reads\"?"),
        ] {
            let message = read(&PROMPT.replace(from, to)).unwrap_err();
            assert!(message.contains(fault), "{message}");
        }
    }
}
