//! The operator's configuration: the table `config` of `[plugins.scheduler]`.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A configuration table. Names may be paths: `config.get::<f64>("weights.gold")`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config(Value);

impl Config {
    pub fn from_json(text: &str) -> Result<Config, String> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        serde_json::from_str(text).map(Config).map_err(|e| format!("the configuration is no JSON: {e}"))
    }

    /// A required value. The server has filled in the defaults of plugin.toml.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<T, String> {
        self.find(name)?.ok_or_else(|| format!("\"{name}\" is not configured, and plugin.toml has no default for it"))
    }

    /// An optional value.
    pub fn get_or<T: DeserializeOwned>(&self, name: &str, default: T) -> Result<T, String> {
        Ok(self.find(name)?.unwrap_or(default))
    }

    fn find<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, String> {
        let found = name.split('.').try_fold(&self.0, |table, part| table.get(part));
        let parsed = found.map(|value| T::deserialize(value).map_err(|e| format!("\"{name}\" is {value}: {e}")));
        parsed.transpose()
    }
}

impl Default for Config {
    fn default() -> Config {
        Config(Value::Object(serde_json::Map::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_path_or_the_error_names_them() {
        let config = Config::from_json(r#"{"burst": 4, "weights": {"gold": 2.5}}"#).unwrap();
        assert_eq!(config.get::<u32>("burst"), Ok(4));
        assert_eq!(config.get::<f64>("weights.gold"), Ok(2.5));
        assert_eq!(config.get_or("weights.free", 1.0), Ok(1.0));
        assert!(config.get::<u32>("size").unwrap_err().contains("\"size\" is not configured"));
        assert!(config.get::<bool>("burst").unwrap_err().starts_with("\"burst\" is 4: "));
    }
}
