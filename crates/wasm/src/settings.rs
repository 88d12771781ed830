//! The settings that a plug-in declares in its `plugin.toml`, and the check of an operator's values against them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use sequor_files::fault::did_you_mean;

/// One setting: `[config.burst]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setting {
    #[serde(rename = "type")]
    pub(crate) kind: SettingKind,
    pub(crate) default: Option<Value>,
    /// Its purpose, in its author's words.
    #[serde(default)]
    #[allow(dead_code, reason = "for readers of the file")]
    pub(crate) about: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SettingKind {
    Integer,
    Number,
    #[serde(alias = "text")]
    String,
    Boolean,
    List,
    Table,
}

/// All settings. If there are none, the plug-in accepts any configuration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(transparent)]
pub struct PluginSettings(pub(crate) BTreeMap<String, Setting>);

impl SettingKind {
    pub(crate) fn holds(self, value: &Value) -> bool {
        match self {
            SettingKind::Integer => value.is_i64() || value.is_u64(),
            SettingKind::Number => value.is_number(),
            SettingKind::String => value.is_string(),
            SettingKind::Boolean => value.is_boolean(),
            SettingKind::List => value.is_array(),
            SettingKind::Table => value.is_object(),
        }
    }

    pub(crate) fn article(self) -> &'static str {
        match self {
            SettingKind::Integer => "an integer",
            SettingKind::Number => "a number",
            SettingKind::String => "a string",
            SettingKind::Boolean => "true or false",
            SettingKind::List => "a list",
            SettingKind::Table => "a table",
        }
    }
}

impl PluginSettings {
    /// A table in JSON, with `texts` for the settings that it leaves out. A text without a setting of its name is left out. A plug-in that
    /// declares no settings gets all texts. The error names a text that does not have its setting's type.
    pub fn fill<'a>(&self, given: &str, texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<String, String> {
        let mut table: Map<String, Value> =
            serde_json::from_str(given).map_err(|e| format!("config is not a table in JSON: {e}"))?;
        for (name, text) in texts {
            if table.contains_key(name) {
                continue;
            }
            let value = match self.0.get(name).map(|setting| setting.kind) {
                None if !self.0.is_empty() => continue,
                None | Some(SettingKind::String) => Value::from(text),
                Some(kind) => serde_json::from_str(text.trim())
                    .ok()
                    .filter(|value| kind.holds(value))
                    .ok_or_else(|| format!("parameter {name} must be {}, not \"{text}\"", kind.article()))?,
            };
            table.insert(name.to_owned(), value);
        }
        Ok(Value::Object(table).to_string())
    }

    /// The given settings (a table in JSON; an empty text is `{}`) with defaults for those left out, or an error.
    pub fn resolve(&self, given: &str) -> Result<String, String> {
        let text = if given.trim().is_empty() { "{}" } else { given };
        let mut table: Map<String, Value> =
            serde_json::from_str(text).map_err(|e| format!("config is not a table in JSON: {e}"))?;
        if self.0.is_empty() {
            return Ok(Value::Object(table).to_string());
        }
        for (name, value) in &table {
            let Some(setting) = self.0.get(name) else {
                let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
                let near = did_you_mean(name, names.iter().copied());
                let all = if near.is_empty() { format!(" (there are {})", names.join(", ")) } else { near };
                return Err(format!("config.{name}: there is no such setting{all}"));
            };
            if !setting.kind.holds(value) {
                return Err(format!("config.{name} must be {}, not {value}", setting.kind.article()));
            }
        }
        for (name, setting) in &self.0 {
            if let (Some(default), false) = (&setting.default, table.contains_key(name)) {
                table.insert(name.clone(), default.clone());
            }
        }
        Ok(Value::Object(table).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> PluginSettings {
        toml::from_str(
            "[name]\ntype = \"text\"\n[burst]\ntype = \"integer\"\ndefault = 4\n[weights]\ntype = \"table\"\n[share]\ntype = \"number\"\ndefault = 0.5\nabout = \"of it\"\n",
        )
        .unwrap()
    }

    #[test]
    fn defaults_fill_what_is_not_given() {
        let resolve = |given| settings().resolve(given).unwrap();
        assert_eq!(resolve(""), "{\"burst\":4,\"share\":0.5}");
        assert_eq!(
            resolve("{\"weights\":{\"gold\":4},\"share\":2,\"burst\":1}"),
            "{\"weights\":{\"gold\":4},\"share\":2,\"burst\":1}"
        );
    }

    #[test]
    fn text_parameters_fill_settings_missing_from_the_table() {
        let texts = [("burst", "7"), ("name", "8"), ("EXECUTION_ENV_PATH", "/x")];
        assert_eq!(settings().fill("{\"share\":2}", texts), Ok("{\"share\":2,\"burst\":7,\"name\":\"8\"}".to_owned()));
        assert_eq!(settings().fill("{\"burst\":1}", [("burst", "x")]), Ok("{\"burst\":1}".to_owned()));
        let refused = settings().fill("{}", [("burst", "x")]);
        assert_eq!(refused, Err("parameter burst must be an integer, not \"x\"".to_owned()));
        assert_eq!(PluginSettings::default().fill("{}", [("a", "1")]), Ok("{\"a\":\"1\"}".to_owned()));
    }

    #[test]
    fn invalid_settings_are_refused_with_the_reason() {
        let refused = |given| settings().resolve(given).unwrap_err();
        assert_eq!(refused("{\"burst\":4.5}"), "config.burst must be an integer, not 4.5");
        assert_eq!(refused("{\"weights\":[]}"), "config.weights must be a table, not []");
        assert_eq!(refused("{\"brust\":4}"), "config.brust: there is no such setting; did you mean \"burst\"?");
        let message = "config.nothing: there is no such setting (there are burst, name, share, weights)";
        assert_eq!(refused("{\"nothing\":4}"), message);
        assert!(refused("[]").starts_with("config is not a table in JSON: "));
    }

    #[test]
    fn a_plug_in_that_declares_no_settings_accepts_any_settings() {
        assert_eq!(PluginSettings::default().resolve("{\"x\": 1}"), Ok("{\"x\":1}".to_owned()));
        assert_eq!(PluginSettings::default().resolve("  "), Ok("{}".to_owned()));
    }
}
