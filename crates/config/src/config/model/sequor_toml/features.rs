//! `[[feature]]` and the tables of plug-ins: checks of several keys that need no model.

use std::collections::BTreeSet;

use sequor_core::FEATURES;

use super::keys::Keys;
use super::plugins::{FeatureSection, FeatureType};
use crate::config::fault::{Fault, code};
use crate::error::At;

/// The faults of these tables.
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
    }
    if let Some(plugin) = &keys.plugins.initializer {
        for (n, name) in plugin.copy_if_same.iter().enumerate() {
            let is_key = |feature: &&FeatureSection| feature.name == *name && feature.r#type == FeatureType::Key;
            if keys.feature.iter().any(|feature| is_key(&feature)) {
                continue;
            }
            let what = format!("copy_if_same: no [[feature]] of type \"key\" is named \"{name}\"");
            fault(&["plugins", "initializer", "copy_if_same", &n.to_string()], code::FEATURE, what);
        }
    }
    if keys.plugins.processor.len() > PROCESSORS {
        let what = format!("more than {PROCESSORS} processors");
        fault(&["plugins", "processor", &PROCESSORS.to_string(), "use"], code::VALUE, what);
    }
    faults
}

/// Maximum number of processors of a model.
const PROCESSORS: usize = 8;
