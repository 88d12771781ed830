//! One model of OVMS, and the rules for its options.

use std::path::PathBuf;

use serde_json::Value;

/// `max_sequence_number` of a model that does not set it (OVMS's default).
pub const DEFAULT_MAX_SEQUENCES: u32 = 500;

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
    /// The versions to serve, in the syntax of `config.pbtxt`.
    pub version_policy: Option<String>,
    /// `None` if the model has no sequences.
    pub stateful: Option<OvmsSequences>,
    /// Why the model is not served, if it has an unsupported option.
    pub unsupported: Option<String>,
}

impl OvmsModel {
    /// Checks that the model has no unsupported option.
    pub(super) fn check_supported(&self) -> Result<(), String> {
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

/// `model_version_policy` in the syntax of `config.pbtxt`.
pub(super) fn version_policy(policy: &serde_json::Value) -> Result<String, String> {
    use serde_json::Value;
    let bad = || {
        format!("model_version_policy {policy} is none of {{\"all\": {{}}}}, {{\"latest\": …}}, {{\"specific\": …}}")
    };
    let number = |of: &Value| of.as_u64().ok_or_else(bad);
    let (kind, of) = policy.as_object().filter(|o| o.len() == 1).and_then(|o| o.iter().next()).ok_or_else(bad)?;
    match kind.as_str() {
        "all" => Ok("all { }".to_owned()),
        "latest" => Ok(format!("latest {{ num_versions: {} }}", of.get("num_versions").map_or(Ok(1), number)?)),
        "specific" => {
            let versions = of.get("versions").and_then(Value::as_array).ok_or_else(bad)?;
            let versions: Vec<String> =
                versions.iter().map(|v| number(v).map(|n| n.to_string())).collect::<Result<_, _>>()?;
            Ok(format!("specific {{ versions: [ {} ] }}", versions.join(", ")))
        }
        _ => Err(bad()),
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
        assert_eq!(of(r#"{"all": {}}"#), Ok("all { }".to_owned()));
        assert_eq!(of(r#"{"latest": {"num_versions": 2}}"#), Ok("latest { num_versions: 2 }".to_owned()));
        assert_eq!(of(r#"{"specific": {"versions": [1, 3]}}"#), Ok("specific { versions: [ 1, 3 ] }".to_owned()));
        assert!(of(r#"{"newest": {}}"#).is_err());
    }
}
