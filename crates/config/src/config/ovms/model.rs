//! One model of OVMS, and the rules for its options.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::config::model::settings::VersionPolicy;

/// `max_sequence_number` of a model that does not set it (OVMS's default).
pub const DEFAULT_MAX_SEQUENCES: u32 = 500;

/// The refusal of a `max_sequence_number` beyond 32 bits, in OVMS's words.
pub(super) const TOO_HIGH: &str = "Sequence max number parameter too high";

/// The refusal of `auto` for a stateful model, in OVMS's words.
const NOT_DYNAMIC: &str = "Dynamic shape and dynamic batch size are not supported for stateful models";

/// The remedy for options that change inputs before the model gets them.
pub(super) const PREPARE_INPUTS: &str = "add this step to the ONNX graph or to the client, then remove the option";

/// Default minutes between two scans for idle sequences.
pub const DEFAULT_SCAN_MINUTES: u32 = 5;

/// A model from `config.json` or the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OvmsModel {
    pub name: String,
    /// The folder with one folder for each version.
    pub base_path: PathBuf,
    pub nireq: Option<u16>,
    /// The versions to serve. `None` if no option says it: then the newest one.
    pub version_policy: Option<VersionPolicy>,
    /// `None` if the model has no sequences.
    pub stateful: Option<OvmsSequences>,
    /// Why the model is not served, if it has an unsupported option.
    pub unsupported: Option<String>,
}

impl OvmsModel {
    /// The path at which operators may put their own configuration of the model.
    pub(super) fn own_config(&self) -> PathBuf {
        self.base_path.join("config.pbtxt")
    }

    /// Checks that the model has no unsupported option, and that its name can be that of a folder.
    pub(super) fn check_supported(&self) -> Result<(), String> {
        let name = self.name.as_str();
        if name.is_empty() || matches!(name, "." | "..") || name.contains(|c: char| c == '/' || c.is_control()) {
            return Err("the name must be that of a folder".to_owned());
        }
        self.unsupported.clone().map_or(Ok(()), Err)
    }
}

/// The options of a stateful model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OvmsSequences {
    pub idle_sequence_cleanup: bool,
    pub max_sequence_number: u32,
    pub low_latency_transformation: bool,
}

impl OvmsSequences {
    /// Why a model with these options cannot be served. `is_dynamic`: its shape or batch size is to follow its requests.
    pub(super) fn unsupported(self, is_dynamic: bool) -> Option<String> {
        if is_dynamic {
            return Some(NOT_DYNAMIC.to_owned());
        }
        let what =
            "max_sequence_number is 0, so no sequence could start: set at least 1, or remove it for the default of";
        (self.max_sequence_number == 0).then(|| format!("{what} {DEFAULT_MAX_SEQUENCES}"))
    }
}

/// The options of a stateful model that were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct GivenSequences {
    pub(super) stateful: bool,
    pub(super) idle_sequence_cleanup: Option<bool>,
    pub(super) max_sequence_number: Option<u32>,
    pub(super) low_latency_transformation: Option<bool>,
}

impl GivenSequences {
    /// Fills in the defaults. `without` is the error for options that need `stateful`.
    pub(super) fn resolve(self, without: &str) -> Result<Option<OvmsSequences>, String> {
        let GivenSequences { stateful, idle_sequence_cleanup, max_sequence_number, low_latency_transformation } = self;
        if !stateful {
            let is_given = idle_sequence_cleanup.is_some()
                || max_sequence_number.is_some()
                || low_latency_transformation.is_some();
            return if is_given { Err(without.to_owned()) } else { Ok(None) };
        }
        Ok(Some(OvmsSequences {
            idle_sequence_cleanup: idle_sequence_cleanup.unwrap_or(true),
            max_sequence_number: max_sequence_number.unwrap_or(DEFAULT_MAX_SEQUENCES),
            low_latency_transformation: low_latency_transformation.unwrap_or(false),
        }))
    }
}

/// The policy of `model_version_policy`. A misspelt one is refused: it would serve another version without a word.
pub(super) fn version_policy(policy: &Value) -> Result<VersionPolicy, String> {
    let bad = || {
        format!(
            "model_version_policy {policy} is none of {{\"all\": {{}}}}, {{\"latest\": {{\"num_versions\": 1}}}}, \
             {{\"specific\": {{\"versions\": [1]}}}}; versions and their number begin at 1"
        )
    };
    let only = |of: &Map<String, Value>| {
        Some(of.iter().next()?).filter(|_| of.len() == 1).map(|(k, v)| (k.clone(), v.clone()))
    };
    let (kind, of) = policy.as_object().and_then(only).ok_or_else(bad)?;
    let of = of.as_object().ok_or_else(bad)?;
    let positive = |number: &Value| number.as_u64().filter(|number| *number > 0);
    let chosen = match (kind.as_str(), only(of).as_ref().map(|(key, value)| (key.as_str(), value))) {
        ("all", None) if of.is_empty() => Some(VersionPolicy::All),
        ("latest", Some(("num_versions", number))) => {
            positive(number).map(|number| VersionPolicy::Latest(u32::try_from(number).unwrap_or(u32::MAX)))
        }
        ("specific", Some(("versions", versions))) => {
            let versions = versions.as_array().filter(|versions| !versions.is_empty());
            let versions = versions.and_then(|versions| versions.iter().map(positive).collect::<Option<Vec<u64>>>());
            versions.map(|mut versions| {
                versions.sort_unstable();
                versions.dedup();
                VersionPolicy::Specific(versions)
            })
        }
        _ => None,
    };
    chosen.ok_or_else(bad)
}

/// Whether OVMS would take this batch size or shape from each request.
pub(super) fn is_auto(value: &Value) -> bool {
    match value {
        Value::String(text) => text.trim().eq_ignore_ascii_case("auto"),
        Value::Object(of) => of.values().any(is_auto),
        _ => false,
    }
}

/// The refusal of a `layout` that makes OVMS transpose inputs or outputs. Without a colon it names the model's own layout, which changes
/// nothing. The value is a text, or an object of texts by the names of inputs and outputs.
pub(super) fn transposing_layout(layout: &Value) -> Option<String> {
    let transposes = match layout {
        Value::String(layout) => layout.contains(':'),
        Value::Object(of) => of.values().any(|layout| layout.as_str().is_some_and(|layout| layout.contains(':'))),
        _ => false,
    };
    transposes.then(|| format!("layout {layout} is not served: {PREPARE_INPUTS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_sequences_need_stateful() {
        let given = GivenSequences { max_sequence_number: Some(500), ..GivenSequences::default() };
        assert_eq!(given.resolve("no"), Err("no".to_owned()), "also with the default value");
        assert_eq!(GivenSequences::default().resolve("no"), Ok(None));
        let settled = GivenSequences { stateful: true, ..given }.resolve("no").unwrap().unwrap();
        assert_eq!((settled.idle_sequence_cleanup, settled.low_latency_transformation), (true, false));
    }

    #[test]
    fn version_policies_are_those_of_triton() {
        let of = |text: &str| version_policy(&serde_json::from_str(text).unwrap());
        assert_eq!(of(r#"{"all": {}}"#), Ok(VersionPolicy::All));
        assert_eq!(of(r#"{"latest": {"num_versions": 2}}"#), Ok(VersionPolicy::Latest(2)));
        assert_eq!(of(r#"{"specific": {"versions": [3, 1, 3]}}"#), Ok(VersionPolicy::Specific(vec![1, 3])));
        for misspelt in [
            r#"{"newest": {}}"#,
            r#"{"all": "x"}"#,
            r#"{"all": {"num_versions": 2}}"#,
            r#"{"latest": 7}"#,
            r#"{"latest": {}}"#,
            r#"{"latest": {"num_version": 3}}"#,
            r#"{"latest": {"num_versions": 0}}"#,
            r#"{"specific": {"versions": []}}"#,
            r#"{"specific": {"versions": [0]}}"#,
            r#"{"specific": {"versions": [1], "latest": 2}}"#,
            r#"{"all": {}, "latest": {"num_versions": 1}}"#,
            r#""all""#,
        ] {
            assert!(of(misspelt).is_err(), "{misspelt}");
        }
    }
}
