//! Names of the counters that plug-ins define, and the contract's rules for them.

use std::fmt;

/// Maximum counters of a plug-in. Each set of label values is a counter of its own.
pub(crate) const COUNTERS: usize = 32;
/// Maximum labels of a counter.
const LABELS: usize = 4;
/// Maximum bytes of the name of a counter or a label.
const NAME: usize = 63;
/// Maximum bytes of a label's value.
const VALUE: usize = 128;
/// Labels that the server sets.
const OURS: [&str; 3] = ["plugin", "world", "name"];

/// A counter of a plug-in, by its name and its labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterName {
    pub name: String,
    /// Names and values, sorted by name.
    pub labels: Vec<(String, String)>,
}

impl CounterName {
    /// `None` if the name or a label breaks a rule of the contract.
    pub fn new(name: &str, mut labels: Vec<(String, String)>) -> Option<CounterName> {
        labels.sort_unstable();
        let twice = labels.windows(2).any(|two| matches!(two, [(a, _), (b, _)] if a == b));
        let good =
            |(name, value): &(String, String)| is_name(name) && !OURS.contains(&name.as_str()) && value.len() <= VALUE;
        let valid = is_name(name) && labels.len() <= LABELS && !twice && labels.iter().all(good);
        valid.then(|| CounterName { name: name.to_owned(), labels })
    }
}

impl fmt::Display for CounterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (n, (name, value)) in self.labels.iter().enumerate() {
            write!(f, "{}{name}={value:?}", if n == 0 { "{" } else { "," })?;
        }
        f.write_str(if self.labels.is_empty() { "" } else { "}" })
    }
}

/// `[a-z][a-z0-9_]{0,62}`
fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.len() <= NAME && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, labels: &[(&str, &str)]) -> Option<String> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        CounterName::new(name, labels).map(|counter| counter.to_string())
    }

    #[test]
    fn invalid_counter_names_and_labels_are_refused() {
        assert_eq!(named("shed", &[("tenant", "gold"), ("code", "1")]).unwrap(), "shed{code=\"1\",tenant=\"gold\"}");
        assert_eq!(named("shed", &[]).unwrap(), "shed");
        let long = "x".repeat(129);
        for labels in [
            &[("plugin", "x")][..],
            &[("name", "x")],
            &[("Tenant", "x")],
            &[("a", "1"), ("a", "2")],
            &[("a", long.as_str())],
            &[("a", ""), ("b", ""), ("c", ""), ("d", ""), ("e", "")],
        ] {
            assert_eq!(named("shed", labels), None, "{labels:?}");
        }
        assert!(named("A", &[]).is_none() && named("", &[]).is_none() && named(&"x".repeat(64), &[]).is_none());
    }
}
