//! A component's `plugin.toml`, carried as the custom section `sequor:plugin`. This module has the fields that all worlds share; a world
//! adds its own.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::settings::PluginSettings;
use sequor_files::fault::{Fault, code};
use sequor_files::toml_file;

/// The section's name.
pub const SECTION: &str = "sequor:plugin";
/// The file's name in faults.
pub(crate) const PATH: &str = "plugin.toml";

/// A checked `plugin.toml`. `M`: the fields of its world.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared<M> {
    pub name: String,
    /// The author's version.
    pub version: String,
    pub world: String,
    /// The version of the contract that it is built for.
    pub contract: String,
    pub settings: PluginSettings,
    pub manifest: M,
}

/// The fields of every `plugin.toml`, unchecked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fields {
    pub name: String,
    pub version: String,
    pub world: String,
    pub contract: String,
    #[serde(default)]
    pub config: PluginSettings,
}

impl Fields {
    /// Checks the fields of a file of this world.
    pub fn check(&self, path: &Path, text: &str, world: &'static str) -> Result<(), Fault> {
        for (field, value) in [("name", &self.name), ("version", &self.version)] {
            if value.is_empty() || !value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c)) {
                let what = format!("{field} must be letters, digits, \"-\", \"_\", \".\" and \"+\"");
                return Err(wrong(path, text, &[field], what));
            }
        }
        if self.world != world {
            let what = format!("world \"{}\" is not served here; {world} is", self.world);
            return Err(wrong(path, text, &["world"], what));
        }
        for (name, setting) in &self.config.0 {
            if let Some(default) = setting.default.as_ref().filter(|default| !setting.kind.holds(default)) {
                let what = format!("default must be {}, not {default}", setting.kind.article());
                return Err(wrong(path, text, &["config", name, "default"], what));
            }
        }
        Ok(())
    }

    pub fn declare<M>(self, manifest: M) -> Declared<M> {
        let Fields { name, version, world, contract, config: settings } = self;
        Declared { name, version, world, contract, settings, manifest }
    }
}

impl<M> Declared<M> {
    /// The declaration of a component without a `plugin.toml`.
    pub(crate) fn silent(name: &str, (world, contract): (&str, &str), manifest: M) -> Declared<M> {
        let fields = Fields {
            name: name.to_owned(),
            version: "0.0.0".to_owned(),
            world: world.to_owned(),
            contract: contract.to_owned(),
            config: PluginSettings::default(),
        };
        fields.declare(manifest)
    }
}

impl Declared<()> {
    /// Parses the `plugin.toml` of a world that adds no fields.
    pub fn parse(path: &Path, text: &str, world: &'static str) -> Result<Declared<()>, Fault> {
        let fields: Fields = parse(path, text)?;
        fields.check(path, text, world)?;
        Ok(fields.declare(()))
    }
}

/// Parses a file. The fault of an unknown field names the nearest known one.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Fault> {
    toml_file::read(path, text)
}

/// The world that a file names, even if its other fields belong to another world.
pub(crate) fn world(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct OfWorld {
        world: String,
    }
    toml_file::read(PATH.as_ref(), text).ok().map(|OfWorld { world }| world)
}

/// A fault at the value of this key.
pub fn wrong(path: &Path, text: &str, keys: &[&str], what: String) -> Fault {
    Fault { at: toml_file::place(text, keys).at(path), code: code::VALUE, what }
}

/// The section's contents, if the component has one. `Err` if the sections of the file cannot be parsed.
pub fn section(component: &[u8]) -> Result<Option<&str>, &'static str> {
    let Some((_, contents, _)) = parts(component)? else { return Ok(None) };
    std::str::from_utf8(contents).map(Some).map_err(|_| "its section sequor:plugin is not a text")
}

/// The component without the section, as the bytes before and after it. Another `plugin.toml` does not change the code.
pub(super) fn code(component: &[u8]) -> (&[u8], &[u8]) {
    match parts(component) {
        Ok(Some((before, _, behind))) => (before, behind),
        _ => (component, &[]),
    }
}

/// The bytes before the section, its contents, and the bytes after it.
type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn parts(component: &[u8]) -> Result<Option<Parts<'_>>, &'static str> {
    const CUT: &str = "its sections cannot be told apart";
    let mut rest = component.get(8..).ok_or(CUT)?;
    while let Some((id, after)) = rest.split_first() {
        let before = component.len() - rest.len();
        let (size, after) = leb128(after).ok_or(CUT)?;
        let (body, after) = after.split_at_checked(size).ok_or(CUT)?;
        rest = after;
        if *id != 0 {
            continue;
        }
        let (length, named) = leb128(body).ok_or(CUT)?;
        let (name, contents) = named.split_at_checked(length).ok_or(CUT)?;
        if name == SECTION.as_bytes() {
            return Ok(Some((component.get(..before).ok_or(CUT)?, contents, after)));
        }
    }
    Ok(None)
}

/// An unsigned number of at most 32 bits, in WebAssembly's encoding, and the bytes after it.
fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value: u64 = 0;
    for (n, byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, bytes.get(n + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_and_their_lengths_are_checked() {
        let mut file = b"\0asm\x0d\0\x01\0".to_vec();
        assert_eq!(section(&file), Ok(None));
        file.extend([1, 2, 0xaa, 0xbb]);
        file.extend([0, 17, 13]);
        file.extend(b"sequor:pluginabc");
        assert_eq!(section(&file), Ok(Some("abc")));
        for end in 0..file.len() {
            let _ = section(&file[..end]);
        }
        assert!(section(&file[..file.len() - 1]).is_err());
        assert!(section(b"\0asm\x0d\0\x01\0\0\xff\xff\xff\xff\xff\xff").is_err());
    }
}
