//! Tests the declarations of keys: what the parser accepts, and what it refuses.

use std::collections::BTreeSet;

use super::{KeyEntry, Keys, tables};

fn declared() -> Vec<KeyEntry> {
    tables().iter().flat_map(|table| table.keys).copied().collect()
}

/// The keys that the parser accepts in a table. It lists them when it refuses an unknown one.
fn accepted(table: &str) -> BTreeSet<String> {
    let text = format!("{table}no_such_key = 1\n");
    let refused = toml::from_str::<Keys>(&text).expect_err("an unknown key").to_string();
    let (_, list) = refused.split_once("expected ").unwrap_or_else(|| panic!("{refused}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_tables_list_the_keys_that_the_parser_accepts() {
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
        ("[reload]\n", "reload."),
        ("[model]\n", "model."),
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
    let listed: BTreeSet<String> = declared().iter().map(KeyEntry::path).collect();
    assert_eq!(listed, parsed);
    assert_eq!(declared().len(), listed.len(), "a key is listed twice");
}

#[test]
fn examples_of_keys_are_accepted() {
    for key in declared() {
        let (name, _) = key.example.split_once(' ').unwrap_or_default();
        assert_eq!(key.name, name, "{key:?}");
        assert!(!key.value.is_empty() && !key.default.is_empty(), "{key:?}");
        let rest = match key.table {
            "" => String::new(),
            table if table == "feature" || table == "model" || table.starts_with("plugins.") => continue,
            table => format!("[{table}]\n"),
        };
        assert!(toml::from_str::<Keys>(&format!("{rest}{}\n", key.example)).is_ok(), "{key:?}");
    }
}

/// An unknown key of any table is refused with the nearest name of that table.
#[test]
fn the_nearest_name_is_offered_for_an_unknown_key_of_every_table() {
    for table in tables().iter().filter(|table| !table.path.is_empty()) {
        let Some(key) = table.keys.iter().find(|key| key.name.len() > 3) else { continue };
        let header = match table.path {
            "feature" | "plugins.processor" => format!("[[{}]]", table.path),
            path => format!("[{path}]"),
        };
        let text = format!("{header}\n{}s = 1\n", key.name);
        let path = std::path::Path::new("m/sequor.toml");
        let faults = super::SequorToml::parse(path, &text).expect_err("an unknown key");
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        let message = fault.to_string();
        assert!(message.contains(&format!("unknown field `{}s`", key.name)), "{message}");
        assert!(message.ends_with(&format!("did you mean \"{}\"?", key.name)), "{message}");
    }
}
