//! `plugin.toml` in tests: the hooks, columns and defaults that the server would use.

use std::path::Path;

use serde_json::{Map, Value};

/// The parts of a `plugin.toml` that a test needs. `None` means every hook, or every column.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Manifest {
    wants: Option<Vec<String>>,
    columns: Option<Vec<String>>,
    /// Inputs that the plug-in sees.
    pub(crate) reads: Option<Vec<String>>,
    /// Features that the model must have.
    pub(crate) features: Option<Vec<String>>,
    /// In bytes. A larger tensor is passed by handle.
    pub(crate) by_value: Option<u64>,
    defaults: Map<String, Value>,
}

impl Manifest {
    /// The manifest of the crate under test. A crate without one has every hook and column, as in the server.
    pub(crate) fn of_this_crate() -> Result<Manifest, String> {
        let folder = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
        let path = Path::new(&folder).join("plugin.toml");
        match std::fs::read_to_string(&path) {
            Ok(text) => Manifest::parse(&text).map_err(|e| format!("{}: {e}", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Manifest::default()),
            Err(e) => Err(format!("{}: {e}", path.display())),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Manifest, String> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.message().to_owned())?;
        let names = |key: &str| {
            let list = table.get(key)?.as_array()?;
            Some(list.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect())
        };
        let mut defaults = Map::new();
        for (name, setting) in table.get("config").and_then(toml::Value::as_table).into_iter().flatten() {
            if let Some(default) = setting.get("default") {
                defaults.insert(name.clone(), serde_json::to_value(default).map_err(|e| e.to_string())?);
            }
        }
        let by_value = table.get("by-value").and_then(toml::Value::as_str).map(size).transpose()?;
        let (reads, features) = (names("reads"), names("features"));
        Ok(Manifest { wants: names("wants"), columns: names("columns"), reads, features, by_value, defaults })
    }

    /// Whether the server calls this hook. The kits' name for `observe` is `on-event`.
    pub(crate) fn wants(&self, hook: &str) -> bool {
        let same = |name: &String| name == hook || (name == "on-event" && hook == "observe");
        self.wants.as_ref().is_none_or(|names| names.iter().any(same))
    }

    /// Whether the server fills this column.
    pub(crate) fn has_column(&self, column: &str) -> bool {
        self.columns.as_ref().is_none_or(|names| names.iter().any(|name| name == column))
    }

    /// A configuration with the defaults filled in.
    pub(crate) fn resolve(&self, config: &str) -> Result<String, String> {
        let config = if config.trim().is_empty() { "{}" } else { config };
        let given: Map<String, Value> =
            serde_json::from_str(config).map_err(|e| format!("config is no JSON table: {e}"))?;
        let mut resolved = self.defaults.clone();
        resolved.extend(given);
        Ok(Value::Object(resolved).to_string())
    }
}

/// `64KiB` in bytes.
fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("B", 1)];
    let found = units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?.parse::<u64>().ok()?, bytes)));
    found.map(|(count, bytes)| count * bytes).ok_or_else(|| format!("\"{text}\" is no size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_limits_hooks_and_columns_and_sets_defaults() {
        let text = "wants = [\"plan\", \"on-event\"]\ncolumns = [\"keys\"]\n[config.burst]\ntype = \"integer\"\ndefault = 4\n[config.size]\ntype = \"number\"\n";
        let manifest = Manifest::parse(text).unwrap();
        assert!(manifest.wants("plan") && manifest.wants("observe") && !manifest.wants("admit"));
        assert!(manifest.has_column("keys") && !manifest.has_column("rows"));
        assert_eq!((&manifest.reads, manifest.by_value), (&None, None));
        let initializer = Manifest::parse("reads = [\"x\"]\nby-value = \"16KiB\"\nfeatures = [\"tenant\"]\n").unwrap();
        assert_eq!((initializer.reads, initializer.by_value), (Some(vec!["x".to_owned()]), Some(16 << 10)));
        assert_eq!(initializer.features, Some(vec!["tenant".to_owned()]));
        assert!(Manifest::parse("by-value = \"2kB\"").is_err());
        assert_eq!(manifest.resolve("").unwrap(), r#"{"burst":4}"#);
        assert_eq!(manifest.resolve(r#"{"burst": 1, "size": 0.5}"#).unwrap(), r#"{"burst":1,"size":0.5}"#);
        assert!(Manifest::default().wants("admit") && Manifest::default().has_column("rows"));
    }
}
