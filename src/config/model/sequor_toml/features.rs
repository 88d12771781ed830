//! `[[feature]]` and the tables of plug-ins: faults that do not depend on the model.

use std::collections::BTreeSet;

use sequor_core::FEATURES;

use super::keys::{FeatureSection, FeatureType, Keys};
use crate::config::fault::{Fault, code};
use crate::config::model::settings::FeatureKind;
use crate::config::units::Span;
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
        for (name, code, what) in wrong_plugin(&plugin.r#use, plugin.sha256.as_deref(), plugin.time) {
            fault(&["plugins", "scheduler", name], code, what);
        }
        if plugin.max_wait.is_some_and(|span| span.0.is_zero()) {
            fault(&["plugins", "scheduler", "max_wait"], code::VALUE, "max_wait must be more than nothing".to_owned());
        }
    }
    if let Some(plugin) = &keys.plugins.initializer {
        for (name, code, what) in wrong_plugin(&plugin.r#use, plugin.sha256.as_deref(), plugin.time) {
            fault(&["plugins", "initializer", name], code, what);
        }
        for (n, name) in plugin.copy_if_same.iter().enumerate() {
            let is_key = |feature: &&FeatureSection| feature.name == *name && feature.r#type == FeatureType::Key;
            if keys.feature.iter().any(|feature| is_key(&feature)) {
                continue;
            }
            let what = format!("copy_if_same: no [[feature]] of type \"key\" is named \"{name}\"");
            fault(&["plugins", "initializer", "copy_if_same", &n.to_string()], code::FEATURE, what);
        }
    }
    for (n, plugin) in keys.plugins.processor.iter().enumerate() {
        let n = n.to_string();
        for (name, code, what) in wrong_plugin(&plugin.r#use, plugin.sha256.as_deref(), plugin.time) {
            fault(&["plugins", "processor", n.as_str(), name], code, what);
        }
        if n == PROCESSORS.to_string() {
            let what = format!("more than {PROCESSORS} processors");
            fault(&["plugins", "processor", n.as_str(), "use"], code::VALUE, what);
        }
    }
    faults
}

/// Maximum number of processors of a model.
const PROCESSORS: usize = 8;

/// Faults of the keys that every plug-in has: key, code and sentence.
fn wrong_plugin(name: &str, sha256: Option<&str>, time: Option<Span>) -> Vec<(&'static str, &'static str, String)> {
    let mut faults = Vec::new();
    if !is_name(name) {
        let what =
            "use: a plug-in's name is of letters, digits, '-', '_' and '.', as its file in plugins.dir without .wasm";
        faults.push(("use", code::PLUGIN, what.to_owned()));
    }
    let is_hash = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if sha256.is_some_and(|text| !is_hash(text)) {
        faults.push(("sha256", code::PLUGIN, "sha256: needs 64 hexadecimal digits".to_owned()));
    }
    if time.is_some_and(|time| time.0.is_zero()) {
        faults.push(("time", code::VALUE, "time must be more than nothing".to_owned()));
    }
    faults
}

/// Whether this can be the name of a plug-in: that of a file, without folders.
pub fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=128).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.')
}

impl FeatureSection {
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
