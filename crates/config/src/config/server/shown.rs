//! The settings as operators read them: every key, its value in the file's syntax, and its origin.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Value;

use super::file::{ServerFile, keys};
use super::layers::Origin;

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The key, for example `http.port`.
    pub key: &'static str,
    /// Empty if there is no value.
    pub value: String,
    /// `default`, with the source of a derived default; otherwise a place in the file, a variable or a flag.
    pub origin: String,
    /// The value that waits for a restart. It is empty if the setting is no longer set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}

/// Lists every key. `sources` has the sources of the defaults that depend on the machine.
pub(super) fn shown(
    file: &ServerFile,
    origins: &BTreeMap<&'static str, Origin>,
    sources: &BTreeMap<&'static str, String>,
) -> Vec<Shown> {
    let table = toml::Table::try_from(file).map(Value::Table).unwrap_or(Value::Table(toml::Table::new()));
    let of = |path: &str| path.split('.').try_fold(&table, |value, part| value.get(part));
    let row = |path: &'static str| Shown {
        key: path,
        value: of(path).map(ToString::to_string).unwrap_or_default(),
        origin: match sources.get(path) {
            Some(source) => format!("{}: {source}", Origin::Default),
            None => origins.get(path).unwrap_or(&Origin::Default).to_string(),
        },
        pending: None,
    };
    keys().map(|key| row(key.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_value_and_an_origin() {
        let origins = BTreeMap::from([("http.port", Origin::Flag("--http-port".to_owned()))]);
        let shown = shown(&ServerFile::default(), &origins, &BTreeMap::new());
        let of = |key: &str| shown.iter().find(|s| s.key == key).map(|s| (s.value.as_str(), s.origin.as_str()));
        assert_eq!(of("http.port"), Some(("8000", "--http-port")));
        assert_eq!(of("admin.address"), Some(("\"127.0.0.1\"", "default")));
        assert_eq!(of("limits.state"), Some(("", "default")));
        assert_eq!(of("otlp.sample"), Some(("0.01", "default")));
    }
}
