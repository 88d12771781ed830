//! The table of keys against the parser.

use std::collections::BTreeSet;

use super::super::keys::Keys;
use super::*;

/// The keys that the parser accepts in a table: it lists them when it refuses one that it does not know.
fn accepted(table: &str) -> BTreeSet<String> {
    let text = format!("{table}no_such_key = 1\n");
    let refused = toml::from_str::<Keys>(&text).expect_err("an unknown key").to_string();
    let (_, list) = refused.split_once("expected ").unwrap_or_else(|| panic!("{refused}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_table_lists_the_keys_that_the_parser_accepts() {
    let tables = [
        ("[sequence]\n", "sequence."),
        ("[backlog]\n", "backlog."),
        ("[queue]\n", "queue."),
        ("[state.X]\n", "state.X."),
        ("[input.X]\n", "input.X."),
        ("[output.X]\n", "output.X."),
        ("[[feature]]\n", "feature."),
        ("[plugins.scheduler]\n", "plugins.scheduler."),
        ("[plugins.initializer]\n", "plugins.initializer."),
        ("[[plugins.processor]]\n", "plugins.processor."),
        ("[plugins]\n", "plugins."),
        ("[durability]\n", "durability."),
        ("", ""),
    ];
    let deeper: BTreeSet<&str> = tables.iter().filter_map(|(_, path)| path.strip_suffix('.')).collect();
    let mut parsed = BTreeSet::new();
    for (table, prefix) in tables {
        for name in accepted(table) {
            let path = format!("{prefix}{name}");
            let has_own = deeper.iter().any(|d| *d == path || d.strip_suffix(".X") == Some(path.as_str()));
            if !has_own {
                parsed.insert(path);
            }
        }
    }
    let listed: BTreeSet<String> = MODEL_KEYS.iter().map(|key| key.path.to_owned()).collect();
    assert_eq!(listed, parsed);
    assert_eq!(MODEL_KEYS.len(), listed.len(), "a key is listed twice");
}

#[test]
fn keys_listed_as_not_served_are_refused() {
    let refused = |text: &str| {
        crate::config::model::sequor_toml::SequorToml::parse(std::path::Path::new("m/sequor.toml"), text).is_err()
    };
    for key in MODEL_KEYS.iter().filter(|key| !key.is_served()) {
        let text = match key.path.rsplit_once('.') {
            Some((table, name)) => {
                let value = match name {
                    "client_state" => "true",
                    "ragged" => "\"pad\"",
                    "buckets" => "[1]",
                    "crop" => "{ like = \"x\" }",
                    "lengths" | "mask" | "watch" => "\"x\"",
                    _ => "1",
                };
                format!("[{table}]\n{name} = {value}\n")
            }
            None => format!("[{}]\n", key.path),
        };
        assert!(toml::from_str::<Keys>(&text).is_ok(), "{text}");
        assert!(refused(&text), "{text}");
    }
}

#[test]
fn examples_of_keys_are_accepted() {
    for key in MODEL_KEYS.iter().filter(|key| key.is_served()) {
        let (name, _) = key.example.split_once(' ').unwrap_or_default();
        assert!(key.path.ends_with(name) && !name.is_empty(), "{key:?}");
        let rest = match key.path {
            path if path.starts_with("feature.") || path.starts_with("plugins.") => continue,
            path => path.rsplit_once('.').map_or(String::new(), |(table, _)| format!("[{table}]\n")),
        };
        assert!(toml::from_str::<Keys>(&format!("{rest}{}\n", key.example)).is_ok(), "{key:?}");
    }
}
