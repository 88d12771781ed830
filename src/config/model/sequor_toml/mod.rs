//! A model's own `sequor.toml`: settings that config.pbtxt cannot express. A key that is not served yet is refused by name, at its line.

mod features;
mod keys;
mod reference;

use std::path::{Path, PathBuf};

use crate::config::fault::{Fault, code};
use crate::config::toml_file;
use crate::config::units::SpanOrNever;
use crate::error::At;

pub use features::is_name as is_plugin_name;
pub use keys::{
    Backlog, CropKeys, Durability, FeatureSection, FeatureType, From, InitializerKeys, InputSection, Keys, OnCancel,
    ProcessorKeys, Queue, RaggedMode, Rows, Rules, SequenceSection, State, Storage, When, WhenExpired,
    WhenProcessorFails,
};
pub use reference::{KeyEntry, MODEL_KEYS};

/// The file, read. Without a file: nothing said.
#[derive(Debug, Clone, Default)]
pub struct SequorToml {
    pub keys: Keys,
    path: PathBuf,
    text: String,
}

impl SequorToml {
    /// Reads the file's text, and refuses what is not served.
    pub fn parse(path: &Path, text: &str) -> Result<SequorToml, Vec<Fault>> {
        let keys: Keys = toml_file::read_offering(path, text, &is_offered).map_err(|fault| vec![fault])?;
        let file = SequorToml { keys, path: path.to_owned(), text: text.to_owned() };
        let mut faults = file.refused();
        faults.extend(file.out_of_range());
        faults.extend(features::wrong(&file.keys, |key| file.at(key)));
        if faults.is_empty() { Ok(file) } else { Err(faults) }
    }

    /// Where a key stands.
    pub fn at(&self, key: &[&str]) -> At {
        toml_file::place(&self.text, key).at(&self.path)
    }

    /// Whether a key is written.
    pub fn has(&self, key: &[&str]) -> bool {
        toml_file::find(&self.text, key).is_some()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn refused(&self) -> Vec<Fault> {
        self.not_served().iter().map(|key| self.refuse(key)).collect()
    }

    fn refuse(&self, key: &[&str]) -> Fault {
        let what = format!("{} is not served yet", spelled(key));
        Fault { at: self.at(key), code: code::NOT_SERVED, what }
    }

    /// The keys that are there and not served.
    fn not_served(&self) -> Vec<Vec<&str>> {
        let Keys { sequence, state, durability, reload, model, .. } = &self.keys;
        let durability = durability.as_ref();
        let elsewhere = durability.and_then(|d| d.tier).is_some_and(|tier| tier != keys::TierName::Disk);
        let now_and_then = durability.is_some_and(|d| d.every.is_some() || d.when == Some(When::Every));
        let single: [(bool, &[&str]); 6] = [
            (sequence.client_state, &["sequence", "client_state"]),
            (sequence.watch.is_some(), &["sequence", "watch"]),
            (elsewhere, &["durability", "tier"]),
            (now_and_then, &["durability", "every"]),
            (reload.is_some(), &["reload"]),
            (model.is_some(), &["model"]),
        ];
        let mut keys: Vec<Vec<&str>> = single.iter().filter(|(there, _)| *there).map(|(_, key)| key.to_vec()).collect();
        keys.extend(state.iter().filter(|(_, s)| s.pad.is_some()).map(|(name, _)| vec!["state", name, "pad"]));
        keys
    }

    /// Numbers that mean nothing.
    fn out_of_range(&self) -> Vec<Fault> {
        let sequence = &self.keys.sequence;
        let zero = |n: Option<u32>| n == Some(0);
        let wrong: [(bool, &[&str], &str); 5] = [
            (self.keys.schema.is_some_and(|s| s != 1), &["schema"], "schema must be 1"),
            (zero(sequence.max_live), &["sequence", "max_live"], "max_live must be at least 1"),
            (zero(sequence.max_queued), &["sequence", "max_queued"], "max_queued must be at least 1"),
            (
                sequence.idle == Some(SpanOrNever(Some(std::time::Duration::ZERO))),
                &["sequence", "idle"],
                "idle must be more than nothing, or \"never\"",
            ),
            (
                sequence.idle_scan.is_some_and(|scan| scan.0.is_zero()),
                &["sequence", "idle_scan"],
                "idle_scan must be more than nothing; idle = \"never\" keeps idle sequences",
            ),
        ];
        let wrong = wrong.into_iter().filter(|(is, ..)| *is);
        wrong.map(|(_, key, what)| Fault { at: self.at(key), code: code::VALUE, what: what.to_owned() }).collect()
    }
}

/// Whether a key or table has a meaning here: some served key has it in its path.
fn is_offered(name: &str) -> bool {
    MODEL_KEYS.iter().any(|key| key.is_served() && key.path.split('.').any(|part| part == name))
}

/// `[state.attn_cache] pad`, `[durability]`.
fn spelled(key: &[&str]) -> String {
    match key {
        [table, name, key] => format!("[{table}.{}] {key}", bare(name)),
        [table, key] => format!("[{table}] {key}"),
        other => format!("[{}]", other.join(".")),
    }
}

/// A key as TOML writes it: quoted if it must be.
pub(super) fn bare(key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let faults = SequorToml::parse(Path::new("m/sequor.toml"), text).expect_err("refused");
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_served_is_read() {
        let text = r#"
            schema = 1
            [sequence]
            rules = "ovms"
            rows = "compact"
            idle = "never"
            idle_soft = "2s"
            client_state = false
            on_cancel = "keep"
            [backlog]
            max = 2000
            timeout = "1s"
            [queue]
            expire = "reject"
            [state."a.b"]
            batch_axis = 1
            storage = "fp16"
            [input.sr]
            constant = 16000
        "#;
        let file = SequorToml::parse(Path::new("m/sequor.toml"), text).unwrap();
        assert_eq!(file.keys.sequence.rules, Some(Rules::Ovms));
        assert_eq!(file.keys.sequence.rows, Some(Rows::Compact));
        assert_eq!(file.keys.sequence.idle, Some(SpanOrNever(None)));
        assert_eq!(file.keys.state["a.b"].batch_axis, Some(1));
        assert_eq!(file.keys.state["a.b"].storage, Some(Storage::Fp16));
        assert_eq!(file.keys.input["sr"].constant, Some(toml::Value::Integer(16000)));
    }

    /// The file of the surface's reference, whole.
    const EVERYTHING: &str = r#"schema = 1
[sequence]
client_state = true
watch = "nan"
[state.attn_cache]
pad = 0
[durability]
when = "drain"
every = 10
tier = "disk"
[reload]
drain = "10m"
then = "carry"
[input.speech]
ragged = "bucket"
value = 0.0
multiple_of = 16
buckets = [64, 128, 256]
lengths = "x_lens"
[output.encoder_out]
crop = { like = "speech", ratio = "1/4" }
[[feature]]
name = "tenant"
from = "parameter"
key = "tenant"
type = "key"
default = "anonymous"
[plugins.scheduler]
use = "fair-share"
time = "1ms"
config = { burst = 4, weights = { gold = 4 } }
[[plugins.processor]]
use = "resample-16k"
"#;

    #[test]
    fn what_is_not_served_yet_is_refused_by_name_at_its_line() {
        insta::assert_snapshot!(faults(EVERYTHING).join("\n"));
    }

    #[test]
    fn wrong_values_are_told_at_their_line() {
        assert_eq!(faults("[sequence]\nidle = 5"), ["m/sequor.toml:2:8: invalid type: integer `5`, expected a string"]);
        assert_eq!(
            faults("[backlog]\ntimeout = \"5\""),
            ["m/sequor.toml:2:11: \"5\" is not a duration: it needs a unit (did you mean \"5s\"?)"]
        );
        assert_eq!(
            faults("schema = 2\n[sequence]\nmax_live = 0\n"),
            ["m/sequor.toml:1:1: schema must be 1", "m/sequor.toml:3:1: max_live must be at least 1"]
        );
        assert!(faults("[sequence]\nrules = \"other\"")[0].contains("m/sequor.toml:2:9: unknown variant `other`"));
        assert!(faults("[sequence]\nrows = \"dense\"")[0].contains("m/sequor.toml:2:8: unknown variant `dense`"));
        assert!(faults("[state.x]\nbatch_axes = 1")[0].contains("m/sequor.toml:2:1: unknown field `batch_axes`"));
        let unknown = faults("[sequence]\nidel = \"5s\"");
        assert!(
            unknown[0].ends_with("; did you mean \"idle\"?") && !unknown[0].contains("client_state"),
            "{unknown:?}"
        );
        assert!(faults("[sequence\n")[0].starts_with("m/sequor.toml:1:"));
    }
}
