//! `[[feature]]` and `[plugins.scheduler]`: faults that do not depend on the model.

use std::collections::BTreeSet;

use sequor_core::FEATURES;

use super::keys::{Feature, FeatureType, Keys};
use crate::config::fault::{Fault, code};
use crate::config::model::settings::FeatureKind;
use crate::error::At;

/// Faults of the tables in themselves.
pub(super) fn wrong(keys: &Keys, at: impl Fn(&[&str]) -> At) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |key: &[&str], code: &'static str, what: String| {
        faults.push(Fault { at: at(key), code, what });
    };
    let mut names = BTreeSet::new();
    let mut counts = [0, 0];
    for (n, feature) in keys.feature.iter().enumerate() {
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
        if feature.kind().is_none() {
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
    if let Some(plugin) = &keys.plugins.scheduler {
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

impl Feature {
    /// The kind of a feature with its default; `None` if the default is of another type.
    pub fn kind(&self) -> Option<FeatureKind> {
        match (self.r#type, &self.default) {
            (FeatureType::Number, None) => Some(FeatureKind::Number { default: 0.0 }),
            (FeatureType::Number, Some(toml::Value::Integer(n))) => Some(FeatureKind::Number { default: *n as f64 }),
            (FeatureType::Number, Some(toml::Value::Float(n))) => Some(FeatureKind::Number { default: *n }),
            (FeatureType::Key, None) => Some(FeatureKind::Key { default: None }),
            (FeatureType::Key, Some(toml::Value::String(text))) => {
                Some(FeatureKind::Key { default: Some(text.clone()) })
            }
            _ => None,
        }
    }
}
