//! What a plug-in says of itself: its plugin.toml, carried in the component as the custom section `sequor:plugin`. Whoever says nothing is
//! asked everything and shown everything.

use std::path::Path;

use sequor_core::Hooks;
use sequor_core::policy::columns;
use serde::Deserialize;

use super::contract;
use super::guest::Manifest;
use crate::config::fault::{Fault, code, did_you_mean};
use crate::config::toml_file;
use crate::wasm::settings::Settings;

/// The section's name.
pub const SECTION: &str = "sequor:plugin";

/// The columns by their names in the contract.
const COLUMNS: [(&str, u32); 14] = [
    ("sequence", columns::SEQ),
    ("step", columns::STEP),
    ("slot", columns::SLOT),
    ("arrival-us", columns::ARRIVAL),
    ("ready-us", columns::READY),
    ("deadline-us", columns::DEADLINE),
    ("priority", columns::PRIORITY),
    ("shape-key", columns::SHAPE),
    ("start-end", columns::FLAGS),
    ("rows", columns::ROWS),
    ("input-bytes", columns::BYTES),
    ("state-bytes", columns::STATE_BYTES),
    ("numbers", columns::NUMBERS),
    ("keys", columns::KEYS),
];
/// `on-event` is what the SDKs call `observe`.
const WANTS: [&str; 4] = ["plan", "admit", "observe", "on-event"];
const FIELDS: [&str; 8] = ["name", "version", "world", "contract", "wants", "columns", "features", "window"];

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    version: String,
    world: String,
    contract: String,
    wants: Option<Vec<String>>,
    columns: Option<Vec<String>>,
    #[serde(default)]
    features: Vec<String>,
    #[serde(default)]
    window: u32,
    #[serde(default)]
    config: Settings,
}

/// What the file comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    pub manifest: Manifest,
    pub world: String,
    /// The version of the contract that it is written for.
    pub contract: String,
    pub(super) settings: Settings,
}

impl Declared {
    /// Reads a plugin.toml. `path` is how faults name it.
    pub fn read(path: &Path, text: &str) -> Result<Declared, Fault> {
        let file: File = toml_file::read(path, text).map_err(with_near_names)?;
        let wrong =
            |keys: &[&str], what: String| Fault { at: toml_file::place(text, keys).at(path), code: code::VALUE, what };
        for (field, value) in [("name", &file.name), ("version", &file.version)] {
            if value.is_empty() || !value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c)) {
                return Err(wrong(&[field], format!("{field} must be letters, digits, \"-\", \"_\", \".\" and \"+\"")));
            }
        }
        if file.world != contract::WORLD {
            let near = did_you_mean(&file.world, [contract::WORLD]);
            return Err(wrong(&["world"], format!("world \"{}\" is not served here; scheduler is{near}", file.world)));
        }
        let mut hooks = Hooks { window: file.window, ..everything() };
        if let Some(wants) = &file.wants {
            (hooks.plan, hooks.admit, hooks.observe) = (false, false, false);
            for (n, hook) in wants.iter().enumerate() {
                match hook.as_str() {
                    "plan" => hooks.plan = true,
                    "admit" => hooks.admit = true,
                    "observe" | "on-event" => hooks.observe = true,
                    _ => return Err(wrong(&["wants", &n.to_string()], no_such("hook", hook, &WANTS))),
                }
            }
        }
        if let Some(wanted) = &file.columns {
            hooks.columns = 0;
            for (n, column) in wanted.iter().enumerate() {
                let names = COLUMNS.map(|(name, _)| name);
                let known = COLUMNS.iter().find(|(name, _)| name == column);
                let (_, bit) =
                    known.ok_or_else(|| wrong(&["columns", &n.to_string()], no_such("column", column, &names)))?;
                hooks.columns |= bit;
            }
        }
        for (name, setting) in &file.config.0 {
            if let Some(default) = setting.default.as_ref().filter(|default| !setting.kind.holds(default)) {
                let what = format!("default must be {}, not {default}", setting.kind.article());
                return Err(wrong(&["config", name, "default"], what));
            }
        }
        let File { name, version, world, contract, features, config: settings, .. } = file;
        Ok(Declared { manifest: Manifest { name, version, hooks, features }, world, contract, settings })
    }

    /// Of a component that says nothing.
    pub(super) fn silent(name: &str) -> Declared {
        let (version, features) = ("0.0.0".to_owned(), Vec::new());
        let manifest = Manifest { name: name.to_owned(), version, hooks: everything(), features };
        let (world, contract) = (contract::WORLD.to_owned(), contract::VERSION.to_owned());
        Declared { manifest, world, contract, settings: Settings::default() }
    }
}

fn everything() -> Hooks {
    Hooks { plan: true, admit: true, observe: true, columns: columns::ALL, ..Hooks::default() }
}

fn no_such(kind: &str, name: &str, names: &[&str]) -> String {
    let near = did_you_mean(name, names.iter().copied());
    let all = if near.is_empty() { format!(" (there are {})", names.join(", ")) } else { near };
    format!("there is no {kind} \"{name}\"{all}")
}

/// An unknown key's fault, with the name that was meant.
fn with_near_names(mut fault: Fault) -> Fault {
    if let Some(name) = fault.what.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next()) {
        fault.what += &did_you_mean(name, FIELDS);
    }
    fault
}

/// The section's contents, if the component has one. `Err` if the sections of the file cannot be told apart.
pub fn section(component: &[u8]) -> Result<Option<&str>, &'static str> {
    let Some((_, contents, _)) = parts(component)? else { return Ok(None) };
    std::str::from_utf8(contents).map(Some).map_err(|_| "its section sequor:plugin is not a text")
}

/// The component without the section: what is before and what is behind. Whatever it says of itself, its code is the same.
pub(super) fn code(component: &[u8]) -> (&[u8], &[u8]) {
    match parts(component) {
        Ok(Some((before, _, behind))) => (before, behind),
        _ => (component, &[]),
    }
}

/// What is before the section, its contents, and what is behind.
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

/// An unsigned number of at most 32 bits, as WebAssembly writes it, and what follows.
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

    const FAIR: &str = r#"name = "fair-share"
version = "0.1.0"
world = "scheduler"
contract = "0.1.0"
wants = ["plan", "on-event"]
columns = ["arrival-us", "keys"]
features = ["tenant"]
[config.burst]
type = "integer"
default = 4
"#;

    fn read(text: &str) -> Result<Declared, String> {
        Declared::read(Path::new("plugin.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_file_says_what_is_wanted() {
        let declared = read(FAIR).unwrap();
        let hooks = Hooks { plan: true, observe: true, columns: columns::ARRIVAL | columns::KEYS, ..Hooks::default() };
        let manifest = Manifest {
            name: "fair-share".to_owned(),
            version: "0.1.0".to_owned(),
            hooks,
            features: vec!["tenant".to_owned()],
        };
        assert_eq!(declared.manifest, manifest);
        assert_eq!(declared.settings.settle("{}").unwrap(), "{\"burst\":4}");
        let all = read(&FAIR.replace("wants", "# wants").replace("columns", "window = 64 #")).unwrap().manifest.hooks;
        assert_eq!(all, Hooks { window: 64, ..everything() });
    }

    #[test]
    fn every_column_of_the_contract_has_its_name() {
        let all = COLUMNS.iter().fold(0, |bits, (_, bit)| bits | bit);
        assert_eq!(all, columns::ALL);
        let wit = include_str!("../../wit/0.1.0/scheduler.wit");
        let (_, record) = wit.split_once("record columns {").unwrap();
        let (record, _) = record.split_once('}').unwrap();
        let fields: Vec<&str> = record
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("///"))
            .filter_map(|line| line.split_once(": "))
            .map(|(name, _)| name)
            .filter(|name| *name != "len")
            .collect();
        assert_eq!(fields, COLUMNS.map(|(name, _)| name));
    }

    #[test]
    fn what_is_wrong_is_told_at_its_line() {
        for (from, to, told) in [
            ("on-event", "on-events", "plugin.toml:5:18: there is no hook \"on-events\"; did you mean \"on-event\"?"),
            ("\"keys\"", "\"key\"", "plugin.toml:6:26: there is no column \"key\"; did you mean \"keys\"?"),
            ("scheduler", "processor", "plugin.toml:3:1: world \"processor\" is not served here; scheduler is"),
            ("default = 4", "default = \"4\"", "plugin.toml:10:1: default must be an integer, not \"4\""),
            ("\"fair-share\"", "\"fair share\"", "plugin.toml:1:1: name must be letters"),
            ("features", "feature", "did you mean \"features\"?"),
            ("type = \"integer\"", "type = \"int\"", "unknown variant `int`"),
        ] {
            let fault = read(&FAIR.replace(from, to)).unwrap_err();
            assert!(fault.contains(told), "{fault}");
        }
        assert!(read(&FAIR.replace("arrival-us", "weather")).unwrap_err().contains("(there are sequence, step,"));
        assert!(read("name = \"x\"").unwrap_err().contains("missing field"));
    }

    #[test]
    fn sections_are_found_and_their_ends_believed_by_nobody() {
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
