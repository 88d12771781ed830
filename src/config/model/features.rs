//! What schedulers see of requests, and which plug-in decides: `[[feature]]` and `[plugins.scheduler]` of sequor.toml, checked and settled.

use std::collections::BTreeSet;

use sequor_core::{DataType, event::FEATURES};

use super::dtype;
use super::report::Report;
use super::sequor_toml::{self, FeatureType, From, SequorToml};
use super::settings::{Feature, FeatureFrom, FeatureKind, SchedulerPlugin};
use crate::config::fault::{Fault, code, did_you_mean};

/// What is wrong with them in themselves.
pub(super) fn wrong(file: &SequorToml) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |key: &[&str], code: &'static str, what: String| {
        faults.push(Fault { at: file.at(key), code, what });
    };
    let mut names = BTreeSet::new();
    let mut counts = [0, 0];
    for (n, feature) in file.keys.feature.iter().enumerate() {
        let n = n.to_string();
        let key = |name| ["feature", n.as_str(), name];
        if !names.insert(&feature.name) {
            fault(&key("name"), code::FEATURE, format!("there are two features \"{}\"", feature.name));
        }
        let (count, kind) = match feature.r#type {
            FeatureType::Number => (counts.first_mut(), "number"),
            FeatureType::Key => (counts.last_mut(), "key"),
        };
        if let Some(count) = count {
            *count += 1;
            if *count == FEATURES + 1 {
                let what = format!("more than {FEATURES} features of type \"{kind}\": a scheduler sees no more");
                fault(&key("type"), code::FEATURE, what);
            }
        }
        if default(feature).is_none() {
            let what = match feature.r#type {
                FeatureType::Number => "default: a feature of type \"number\" needs a number",
                FeatureType::Key => "default: a feature of type \"key\" needs a text",
            };
            fault(&key("default"), code::FEATURE, what.to_owned());
        }
        if feature.key.is_empty() {
            fault(&key("key"), code::FEATURE, "key: says nothing".to_owned());
        }
    }
    if let Some(plugin) = &file.keys.plugins.scheduler {
        let key = |name| ["plugins", "scheduler", name];
        if !is_name(&plugin.r#use) {
            let what = "use: a plug-in's name is of letters, digits, '-', '_' and '.', as its file in plugins.dir without .wasm";
            fault(&key("use"), code::PLUGIN, what.to_owned());
        }
        let is_hash = |text: &String| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if plugin.sha256.as_ref().is_some_and(|text| !is_hash(text)) {
            fault(&key("sha256"), code::PLUGIN, "sha256: needs 64 hexadecimal digits".to_owned());
        }
        if plugin.time.is_some_and(|time| time.0.is_zero()) {
            fault(&key("time"), code::VALUE, "time must be more than nothing".to_owned());
        }
    }
    faults
}

/// Whether this can be the name of a plug-in: that of a file, without folders.
pub fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=128).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.')
}

/// The kind of a feature with its default; `None` if the default is of another type.
fn default(feature: &sequor_toml::Feature) -> Option<FeatureKind> {
    match (feature.r#type, &feature.default) {
        (FeatureType::Number, None) => Some(FeatureKind::Number { default: 0.0 }),
        (FeatureType::Number, Some(toml::Value::Integer(n))) => Some(FeatureKind::Number { default: *n as f64 }),
        (FeatureType::Number, Some(toml::Value::Float(n))) => Some(FeatureKind::Number { default: *n }),
        (FeatureType::Key, None) => Some(FeatureKind::Key { default: None }),
        (FeatureType::Key, Some(toml::Value::String(text))) => Some(FeatureKind::Key { default: Some(text.clone()) }),
        _ => None,
    }
}

/// Whether the inputs that features come from are there, and of a type that has such values.
pub(super) fn check(report: &mut Report<'_>) {
    for (n, feature) in report.toml.keys.feature.iter().enumerate() {
        if feature.from != From::Input {
            continue;
        }
        let n = n.to_string();
        let at = ["feature", n.as_str(), "key"];
        let Some(input) = report.config.input.iter().find(|i| i.name == feature.key) else {
            let near = did_you_mean(&feature.key, report.config.input.iter().map(|i| i.name.as_str()));
            let what = format!("feature \"{}\": clients send no input \"{}\"{near}", feature.name, feature.key);
            report.toml_fault(&at, code::NO_INPUT, what);
            continue;
        };
        let is_text = dtype::from_proto(input.data_type) == Some(DataType::Bytes);
        if is_text != (feature.r#type == FeatureType::Key) {
            let what = format!(
                "feature \"{}\": input \"{}\" is {}; a \"key\" comes from TYPE_STRING, a \"number\" from the others",
                feature.name,
                feature.key,
                input.data_type().as_str_name(),
            );
            report.toml_fault(&at, code::TYPE, what);
        }
    }
}

pub(super) fn features(report: &Report<'_>) -> Vec<Feature> {
    let feature = |feature: &sequor_toml::Feature| {
        let from = match feature.from {
            From::Parameter => FeatureFrom::Parameter(feature.key.clone()),
            From::Header => FeatureFrom::Header(feature.key.to_ascii_lowercase()),
            From::Input => FeatureFrom::Input(report.config.input.iter().position(|i| i.name == feature.key)?),
        };
        Some(Feature { name: feature.name.clone(), from, kind: default(feature)? })
    };
    report.toml.keys.feature.iter().filter_map(feature).collect()
}

pub(super) fn scheduler(report: &Report<'_>) -> Option<SchedulerPlugin> {
    let plugin = report.toml.keys.plugins.scheduler.as_ref()?;
    let config = plugin.config.as_ref().and_then(|table| serde_json::to_string(table).ok());
    Some(SchedulerPlugin {
        name: plugin.r#use.clone(),
        sha256: plugin.sha256.as_ref().map(|text| text.to_ascii_lowercase()),
        time: plugin.time.map(|time| time.0),
        memory: plugin.memory.map(|memory| memory.0),
        config: config.unwrap_or_else(|| "{}".to_owned()),
        at: report.toml.at(&["plugins", "scheduler", "use"]),
    })
}
