//! Features that flows give their requests by name, in addition to the tenant: numbers and texts, the same for all requests of a flow.

use std::collections::BTreeMap;

use sequor_core::FEATURES;
use serde::Deserialize;

use super::tenants;

/// The key feature that every workload has.
pub const TENANT: &str = "tenant";

/// The features of a flow's requests.
pub type FeatureValues = BTreeMap<String, FeatureValue>;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum FeatureValue {
    Number(f64),
    Text(String),
}

/// The features of a workload, in the order of their columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    pub numbers: Vec<String>,
    /// Names of the key features, the tenant first.
    pub keys: Vec<String>,
    /// Texts of keys, except those of tenants.
    pub texts: Vec<String>,
    /// The numbers and keys of each flow.
    given: Vec<([f64; FEATURES], [u64; FEATURES])>,
}

impl Default for Features {
    fn default() -> Self {
        Features { numbers: Vec::new(), keys: vec![TENANT.to_owned()], texts: Vec::new(), given: Vec::new() }
    }
}

impl Features {
    /// The features of these flows. A feature that a flow does not name is 0 or the empty text in that flow.
    pub(crate) fn collect(flows: &[FeatureValues]) -> Result<Features, String> {
        let mut features = Features::default();
        for (name, value) in flows.iter().flatten() {
            let (here, there) = match value {
                FeatureValue::Number(_) => (&mut features.numbers, &features.keys),
                FeatureValue::Text(_) => (&mut features.keys, &features.numbers),
            };
            if there.contains(name) || name == TENANT {
                let what = if name == TENANT {
                    "is said by `tenant`"
                } else {
                    "is a number in one place and a text in another"
                };
                return Err(format!("the feature \"{name}\" {what}"));
            }
            if !here.contains(name) {
                here.push(name.clone());
            }
        }
        if features.numbers.len() > FEATURES || features.keys.len() > FEATURES {
            return Err(format!("there are at most {FEATURES} numbers and {FEATURES} texts, the tenant among them"));
        }
        for given in flows {
            let (mut numbers, mut keys) = ([0.0; FEATURES], [0; FEATURES]);
            for (name, to) in features.numbers.iter().zip(&mut numbers) {
                if let Some(FeatureValue::Number(number)) = given.get(name) {
                    *to = *number;
                }
            }
            for (name, to) in features.keys.iter().zip(&mut keys).skip(1) {
                let text = match given.get(name) {
                    Some(FeatureValue::Text(text)) => text.as_str(),
                    _ => "",
                };
                features.texts.push(text.to_owned());
                *to = tenants::key(text);
            }
            features.given.push((numbers, keys));
        }
        Ok(features)
    }

    /// The features of a request of this flow and tenant.
    pub(crate) fn at(&self, flow: u16, tenant: u64) -> ([f64; FEATURES], [u64; FEATURES]) {
        let (numbers, mut keys) = self.given.get(usize::from(flow)).copied().unwrap_or_default();
        if let Some(first) = keys.first_mut() {
            *first = tenant;
        }
        (numbers, keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> FeatureValues {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn feature_columns_cover_the_features_of_all_flows() {
        let flows = [given("length = 320\nzone = \"eu\""), given("urgency = 0.5")];
        let features = Features::collect(&flows).unwrap();
        assert_eq!(
            (&features.numbers[..], &features.keys[..]),
            (&["length", "urgency"].map(str::to_owned)[..], &["tenant", "zone"].map(str::to_owned)[..])
        );
        assert_eq!(features.at(0, 7), ([320.0, 0.0, 0.0, 0.0], [7, tenants::key("eu"), 0, 0]));
        assert_eq!(features.at(1, 8), ([0.0, 0.5, 0.0, 0.0], [8, tenants::key(""), 0, 0]));
        assert_eq!(Features::default().at(3, 9), ([0.0; 4], [9, 0, 0, 0]));
    }

    #[test]
    fn contradictory_features_are_refused_with_the_reason() {
        let wrong =
            |flows: &[&str]| Features::collect(&flows.iter().map(|text| given(text)).collect::<Vec<_>>()).unwrap_err();
        assert_eq!(wrong(&["a = 1", "a = \"x\""]), "the feature \"a\" is a number in one place and a text in another");
        assert_eq!(wrong(&["tenant = \"x\""]), "the feature \"tenant\" is said by `tenant`");
        assert!(wrong(&["a = 1\nb = 1\nc = 1\nd = 1\ne = 1"]).starts_with("there are at most 4 numbers"));
    }
}
