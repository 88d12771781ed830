//! The fields of a processor's `plugin.toml` that not all worlds have.

use std::path::Path;

use sequor_wasm::manifest::{self, Declared, Fields, wrong};
use sequor_wasm::settings::PluginSettings;
use serde::Deserialize;

use super::contract::WORLD;
use crate::config::fault::{Fault, did_you_mean};
use crate::config::units::{Size, human};

const WANTS: [&str; 2] = ["pre", "post"];

/// Maximum bytes of scratch per sequence.
const SCRATCH: u64 = 16 << 20;
/// Maximum of `by_value`, and its default.
const BY_VALUE: (u64, u64) = (1 << 20, 64 << 10);

/// The checked fields of `plugin.toml` that not all worlds have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorManifest {
    /// Whether `pre` and `post` are called.
    pub pre: bool,
    pub post: bool,
    /// Inputs and outputs that the processor sees. `None` means all.
    pub reads: Option<Vec<String>>,
    /// Maximum bytes of scratch per sequence.
    pub scratch: u64,
    /// A tensor larger than this many bytes is passed by handle.
    pub by_value: u64,
    /// Features that the model must have.
    pub features: Vec<String>,
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    version: String,
    world: String,
    contract: String,
    wants: Option<Vec<String>>,
    reads: Option<Vec<String>>,
    #[serde(default)]
    scratch: Size,
    #[serde(rename = "by-value")]
    by_value: Option<Size>,
    #[serde(default)]
    features: Vec<String>,
    #[serde(default)]
    config: PluginSettings,
}

/// Parses a `plugin.toml`. Faults name the file as `path`.
pub fn parse(path: &Path, text: &str) -> Result<Declared<ProcessorManifest>, Fault> {
    let File { name, version, world, contract, wants, reads, scratch, by_value, features, config } =
        manifest::parse(path, text)?;
    let fields = Fields { name, version, world, contract, config };
    fields.check(path, text, WORLD)?;
    let (pre, post) = hooks(path, text, wants.as_deref())?;
    let by_value = by_value.map_or(BY_VALUE.1, |size| size.0);
    for (field, value, most) in [("scratch", scratch.0, SCRATCH), ("by-value", by_value, BY_VALUE.0)] {
        if value > most {
            let what = format!("{field} is {}; the maximum is {}", human(value), human(most));
            return Err(wrong(path, text, &[field], what));
        }
    }
    Ok(fields.declare(ProcessorManifest { pre, post, reads, scratch: scratch.0, by_value, features }))
}

/// The functions to call. Both, if the file names none.
fn hooks(path: &Path, text: &str, wants: Option<&[String]>) -> Result<(bool, bool), Fault> {
    let Some(wants) = wants else { return Ok((true, true)) };
    let (mut pre, mut post) = (false, false);
    for (n, hook) in wants.iter().enumerate() {
        match hook.as_str() {
            "pre" => pre = true,
            "post" => post = true,
            _ => {
                let near = did_you_mean(hook, WANTS.iter().copied());
                let all = if near.is_empty() { format!(" (there are {})", WANTS.join(", ")) } else { near };
                let what = format!("there is no hook \"{hook}\"{all}");
                return Err(wrong(path, text, &["wants", &n.to_string()], what));
            }
        }
    }
    Ok((pre, post))
}

/// The manifest of a component without a `plugin.toml`.
pub(super) fn undeclared() -> ProcessorManifest {
    ProcessorManifest { pre: true, post: true, reads: None, scratch: 0, by_value: BY_VALUE.1, features: Vec::new() }
}

impl ProcessorManifest {
    /// Whether the processor sees the input or output of this name.
    pub(super) fn sees(&self, name: &str) -> bool {
        self.reads.as_ref().is_none_or(|reads| reads.iter().any(|read| read == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PCM: &str = r#"name = "pcm-window"
version = "0.1.0"
world = "processor"
contract = "0.1.0"
wants = ["pre"]
reads = ["AUDIO"]
scratch = "4KiB"
by-value = "16KiB"
"#;

    fn read(text: &str) -> Result<ProcessorManifest, String> {
        parse(Path::new("plugin.toml"), text).map(|declared| declared.manifest).map_err(|e| e.to_string())
    }

    #[test]
    fn the_fields_of_a_manifest_are_parsed() {
        let manifest = read(PCM).unwrap();
        assert_eq!((manifest.pre, manifest.post, manifest.scratch, manifest.by_value), (true, false, 4096, 16384));
        assert!(manifest.sees("AUDIO") && !manifest.sees("speech"));
        let all =
            read(&PCM.replace("wants", "# ").replace("reads", "# ").replace("scratch", "# ").replace("by-", "# "));
        assert_eq!(all, Ok(undeclared()));
        assert!(undeclared().sees("speech"));
    }

    #[test]
    fn a_fault_is_reported_at_its_line() {
        for (from, to, fault) in [
            ("\"pre\"", "\"prepare\"", "plugin.toml:5:10: there is no hook \"prepare\" (there are pre, post)"),
            ("4KiB", "1GiB", "plugin.toml:7:1: scratch is 1 GiB; the maximum is 16 MiB"),
            ("16KiB", "2MiB", "plugin.toml:8:1: by-value is 2 MiB; the maximum is 1 MiB"),
            ("\"processor\"", "\"scheduler\"", "plugin.toml:3:1: world \"scheduler\" is not served here"),
            ("reads", "read", "did you mean \"reads\"?"),
        ] {
            let message = read(&PCM.replace(from, to)).unwrap_err();
            assert!(message.contains(fault), "{message}");
        }
    }
}
