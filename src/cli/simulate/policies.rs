//! The policies of a simulation: built-in policies by name and plug-ins by file, with the settings of `--set`.

use std::path::Path;

use super::files::{file_name, unreadable};
use crate::cli::plugin_host::cache;
use crate::simulate::{ComparedPolicy, PluginSpec, Serving, SimulateError, Workload};
use sequor_wasm::limits::Limits;

/// The policy of this name. A plug-in is tried first.
pub(super) fn policy(
    name: &str,
    set: &[String],
    limits: Limits,
    (workload, serving): (&Workload, &Serving),
) -> Result<ComparedPolicy, SimulateError> {
    if !name.ends_with(".wasm") {
        return ComparedPolicy::named(name).map_err(SimulateError::Given);
    }
    let path = Path::new(name);
    let bytes = std::fs::read(path).map_err(|e| unreadable(path, &e))?;
    let file = file_name(path);
    let spec = PluginSpec::new(&file, &bytes, &config(set)?, limits, cache().as_ref()).map_err(SimulateError::Given)?;
    let instances = serving.instances.first().copied().unwrap_or(1);
    spec.try_out(&workload.facts(serving.facts(instances)))
        .map_err(|what| SimulateError::Given(format!("{file}: {what}")))?;
    Ok(ComparedPolicy::plugin(&file, spec))
}

/// Converts `burst=4`, `weights.gold=4`, `name=anna` to a table in JSON.
pub(super) fn config(set: &[String]) -> Result<String, SimulateError> {
    let wrong = |text: &str| SimulateError::Given(format!("--set {text}: KEY=VALUE is wanted, as burst=4"));
    let mut document = String::new();
    for text in set {
        let (key, value) = text.split_once('=').ok_or_else(|| wrong(text))?;
        let line = format!("{key} = {value}\n");
        // A value that is not valid TOML is a text.
        let line = match line.parse::<toml::Table>() {
            Ok(_) => line,
            Err(_) => format!("{key} = {}\n", toml::Value::String(value.to_owned())),
        };
        document += &line;
    }
    let table: toml::Table = document.parse().map_err(|_| wrong(&set.join(" --set ")))?;
    serde_json::to_string(&table).map_err(|_| wrong(&set.join(" --set ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[&str]) -> Result<String, String> {
        config(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>()).map_err(|e| e.to_string())
    }

    #[test]
    fn values_of_set_flags_are_numbers_lists_or_texts() {
        assert_eq!(set(&[]).unwrap(), "{}");
        assert_eq!(
            set(&["burst=4", "weights.gold=2.5", "weights.free=1", "on=true", "name=anna b", "list=[1, 2]"]).unwrap(),
            "{\"burst\":4,\"list\":[1,2],\"name\":\"anna b\",\"on\":true,\"weights\":{\"free\":1,\"gold\":2.5}}"
        );
        assert_eq!(set(&["burst"]).unwrap_err(), "--set burst: KEY=VALUE is wanted, as burst=4");
        assert!(set(&["a b=1"]).is_err());
        assert!(set(&["a=1", "a=2"]).is_err());
    }
}
