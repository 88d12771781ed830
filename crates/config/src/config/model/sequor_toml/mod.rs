//! A model's own `sequor.toml`: settings that config.pbtxt cannot express. A value that is not served yet is refused by name, at its line.

mod checks;
mod declare;
mod features;
mod keys;
mod plugins;
mod tensors;

#[cfg(test)]
mod key_tests;

use std::path::{Path, PathBuf};

use crate::config::fault::Fault;
use crate::config::toml_file;
use crate::error::At;

pub use checks::is_plugin_name;
pub(super) use declare::bare;
pub use declare::{KeyEntry, TableEntry};
pub use keys::{
    Backlog, Durability, Keys, OnCancel, Queue, ReloadSection, Rows, Rules, SequenceSection, State, Storage, Watch,
    When, WhenDrained, WhenExpired,
};
pub use plugins::{
    FeatureSection, FeatureType, From, InitializerKeys, ModelPluginKeys, Plugins, ProcessorKeys, SchedulerKeys,
    WhenProcessorFails,
};
pub use tensors::{CropKeys, InputSection, OutputSection, PadKeys, PadSide, RaggedMode};

use declare::{KeyFault, Section};

/// The parsed file. A missing file gives an empty one.
#[derive(Debug, Clone, Default)]
pub struct SequorToml {
    pub keys: Keys,
    path: PathBuf,
    text: String,
}

/// Every fault of a text that does not parse.
fn all_unparsed(path: &Path, text: &str, first: Fault) -> Vec<Fault> {
    let all = toml_file::accepted::<Keys>(path, text, &is_offered).faults;
    if all.is_empty() { vec![first] } else { all }
}

impl SequorToml {
    /// Parses the file's text, and refuses unserved keys.
    pub fn parse(path: &Path, text: &str) -> Result<SequorToml, Vec<Fault>> {
        let keys: Keys =
            toml_file::read_offering(path, text, &is_offered).map_err(|first| all_unparsed(path, text, first))?;
        let file = SequorToml { keys, path: path.to_owned(), text: text.to_owned() };
        let mut refused = Vec::new();
        file.keys.check(&mut Vec::new(), &mut refused);
        let fault = |KeyFault { key, code, what }: KeyFault| {
            let key: Vec<&str> = key.iter().map(String::as_str).collect();
            Fault { at: file.at(&key), code, what }
        };
        let mut faults: Vec<Fault> = refused.into_iter().map(fault).collect();
        faults.extend(features::wrong(&file.keys, |key| file.at(key)));
        faults.sort_by_key(|fault| (fault.at.line, fault.at.column));
        if faults.is_empty() { Ok(file) } else { Err(faults) }
    }

    /// The place of a key.
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
}

/// The tables of the file and their keys, in the order of the page.
pub fn tables() -> Vec<TableEntry> {
    let mut all = Vec::new();
    Keys::entries(&mut all);
    all
}

/// Whether to suggest this name for a misspelled one: it is part of the path of a key.
fn is_offered(name: &str) -> bool {
    let is_in = |table: &TableEntry| table.path.split('.').any(|part| part == name);
    let offers = |table: &TableEntry| table.keys.iter().any(|key| key.name == name || is_in(table));
    tables().iter().any(offers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::units::SpanOrNever;

    fn faults(text: &str) -> Vec<String> {
        let faults = SequorToml::parse(Path::new("m/sequor.toml"), text).expect_err("refused");
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn supported_keys_of_sequor_toml_are_parsed() {
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
            [reload]
            drain = "0s"
            then = "carry"
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
        assert_eq!(file.keys.reload.then, Some(WhenDrained::Carry));
        assert_eq!(file.keys.state["a.b"].batch_axis, Some(1));
        assert_eq!(file.keys.state["a.b"].storage, Some(Storage::Fp16));
        assert_eq!(file.keys.input["sr"].constant, Some(toml::Value::Integer(16000)));
    }

    /// A file with every key of the reference.
    const EVERYTHING: &str = r#"schema = 1
[sequence]
client_state = true
watch = "nan"
[state.attn_cache]
pad = { side = "left", mask = "cache_mask" }
[durability]
when = "drain"
every = 10
tier = "disk"
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
    fn every_table_is_read() {
        let file = SequorToml::parse(Path::new("m/sequor.toml"), EVERYTHING).unwrap();
        assert!(file.keys.sequence.client_state && file.keys.sequence.watch == Some(Watch::Nan));
        let refused = faults("[durability]\nwhen = \"drain\"\ntier = \"redis\"\n");
        assert_eq!(refused, ["m/sequor.toml:3:1: [durability] tier is not served yet; only \"disk\" is"]);
    }

    #[test]
    fn invalid_values_of_sequor_toml_are_reported_at_their_line() {
        assert_eq!(
            faults("[sequence]\nidle = 5"),
            [
                "m/sequor.toml:2:8: invalid type: integer `5`, expected a duration with its unit, as \"20s\", or \"never\""
            ]
        );
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
        assert!(unknown[0].ends_with("; did you mean \"idle\"?"), "{unknown:?}");
        assert!(faults("[sequence\n")[0].starts_with("m/sequor.toml:1:"));
    }
}
