//! Reads and writes `[plugins.scheduler]` in a model's `sequor.toml`. The rest of the file stays as it is.

use std::path::Path;
use std::time::Duration;

use toml_edit::{DocumentMut, InlineTable, Item, Table, Value};

use crate::config::atomic_file::{self, SyncMode};
use crate::config::units::Span;

/// The new contents of `[plugins.scheduler]`.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct SavedScheduler<'a> {
    pub(in crate::model) plugin: &'a str,
    pub(super) sha256: &'a str,
    pub(in crate::model) time: Option<Duration>,
    pub(in crate::model) max_wait: Option<Duration>,
    /// A JSON table.
    pub(in crate::model) config: &'a str,
}

/// Writes the table to the file atomically.
pub(super) fn save(file: &Path, saved: SavedScheduler<'_>) -> Result<(), String> {
    let text = match fs_err::read_to_string(file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => "schema = 1\n".to_owned(),
        Err(e) => return Err(e.to_string()),
    };
    let text = edited(&text, saved).map_err(|e| format!("{}: {e}", file.display()))?;
    write(file, &text)
}

/// Writes the file atomically.
pub(in crate::model) fn write(file: &Path, text: &str) -> Result<(), String> {
    let written = atomic_file::replace(file, &[text.as_bytes()], None, SyncMode::Now);
    written.map_err(|e| format!("{}: {e}", file.display()))
}

fn edited(text: &str, saved: SavedScheduler<'_>) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| e.message().to_owned())?;
    let plugins = document.entry("plugins").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let plugins = plugins.as_table_like_mut().ok_or("plugins is no table")?;
    let mut table = plugins.get("scheduler").and_then(Item::as_table).cloned().unwrap_or_default();
    table.insert("use", toml_edit::value(saved.plugin));
    table.insert("sha256", toml_edit::value(saved.sha256));
    for (key, span) in [("time", saved.time), ("max_wait", saved.max_wait)] {
        match span {
            Some(span) => table.insert(key, toml_edit::value(Span(span).to_string())),
            None => table.remove(key),
        };
    }
    let config: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(saved.config).map_err(|e| e.to_string())?;
    match config.is_empty() {
        true => table.remove("config"),
        false => table.insert("config", toml_edit::value(inline(&config)?)),
    };
    plugins.insert("scheduler", Item::Table(table));
    Ok(document.to_string())
}

fn inline(map: &serde_json::Map<String, serde_json::Value>) -> Result<InlineTable, String> {
    let mut table = InlineTable::new();
    for (key, json) in map {
        table.insert(key, value(json).ok_or_else(|| format!("config.{key} is null, which TOML cannot say"))?);
    }
    Ok(table)
}

fn value(json: &serde_json::Value) -> Option<Value> {
    use serde_json::Value as Json;
    Some(match json {
        Json::Null => return None,
        Json::Bool(is) => Value::from(*is),
        Json::String(text) => Value::from(text.as_str()),
        Json::Number(n) => n.as_i64().map(Value::from).or_else(|| n.as_f64().map(Value::from))?,
        Json::Array(list) => Value::from(list.iter().map(value).collect::<Option<toml_edit::Array>>()?),
        Json::Object(map) => Value::from(inline(map).ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: SavedScheduler<'_> = SavedScheduler {
        plugin: "fair-share",
        sha256: "3f2a",
        time: Some(Duration::from_millis(1)),
        max_wait: Some(Duration::from_secs(5)),
        config: r#"{"burst":4,"weights":{"gold":4.5,"names":["a","b"]},"on":true}"#,
    };

    #[test]
    fn saving_a_scheduler_keeps_the_rest_of_sequor_toml() {
        let file = "# the encoder\nschema = 1\n\n[sequence]   # long calls\nidle = \"5s\"\n";
        let with = edited(file, SAVED).unwrap();
        let table = "\n[plugins.scheduler]\nuse = \"fair-share\"\nsha256 = \"3f2a\"\ntime = \"1ms\"\nmax_wait = \"5s\"\n\
                     config = { burst = 4, weights = { gold = 4.5, names = [\"a\", \"b\"] }, on = true }\n";
        assert_eq!(with, format!("{file}{table}"));
        let other = SavedScheduler { plugin: "edf", time: None, max_wait: None, config: "{}", ..SAVED };
        assert_eq!(
            edited(&with, other).unwrap(),
            format!("{file}\n[plugins.scheduler]\nuse = \"edf\"\nsha256 = \"3f2a\"\n")
        );
    }

    #[test]
    fn a_saved_scheduler_configuration_parses_back() {
        let text = edited("", SAVED).unwrap();
        let read: toml::Table = text.parse().unwrap();
        assert_eq!(read["plugins"]["scheduler"]["config"]["weights"]["gold"].as_float(), Some(4.5));
        assert!(edited("plugins = 3", SAVED).is_err());
        assert!(edited("", SavedScheduler { config: r#"{"a":null}"#, ..SAVED }).unwrap_err().contains("null"));
    }
}
