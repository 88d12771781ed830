//! TOML texts: read into a type with every error at its line, and the place of any key for the faults that are found later.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, code};
use super::place::Place;

/// Reads the whole text, or says what is wrong and where.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Fault> {
    toml::from_str(text).map_err(|e| {
        let place = e.span().map_or(Place::UNKNOWN, |span| Place::of(text, span.start));
        Fault { at: place.at(path), code: code::PARSE, what: one_line(e.message()) }
    })
}

fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Where a key stands: `["state", "attn_cache", "batch_axis"]`; an element of a list goes by its number. A path that leads nowhere is where
/// its longest part leads.
pub(crate) fn place(text: &str, path: &[&str]) -> Place {
    let Ok(document) = DeTable::parse(text) else { return Place::UNKNOWN };
    let mut found = Place::UNKNOWN;
    let mut table = Some(document.get_ref());
    let mut value: Option<&DeValue<'_>> = None;
    for part in path {
        if let Some(entry) = table.and_then(|t| t.iter().find(|(key, _)| key.get_ref().as_ref() == *part)) {
            found = Place::of(text, entry.0.span().start);
            value = Some(entry.1.get_ref());
        } else if let (Some(DeValue::Array(list)), Ok(n)) = (value, part.parse::<usize>()) {
            let Some(element) = list.get(n) else { break };
            found = Place::of(text, element.span().start);
            value = Some(element.get_ref());
        } else {
            break;
        }
        table = match value {
            Some(DeValue::Table(inner)) => Some(inner),
            _ => None,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_wherever_they_are_written() {
        let text =
            "schema = 1\n[state.\"a.b\"]\n  batch_axis = 1\n[[feature]]\nname = \"x\"\n[[feature]]\nname = \"y\"\n";
        let at = |path: &[&str]| (place(text, path).line, place(text, path).column);
        assert_eq!(at(&["schema"]), (1, 1));
        assert_eq!(at(&["state", "a.b", "batch_axis"]), (3, 3));
        assert_eq!(at(&["state", "a.b", "storage"]), (2, 8));
        assert_eq!(at(&["feature", "1", "name"]), (7, 1));
        assert_eq!(at(&["backlog"]), (0, 0));
    }

    #[test]
    fn an_unknown_key_is_an_error_at_its_line() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            #[allow(dead_code)]
            a: Option<u8>,
        }
        let fault = read::<File>(Path::new("x.toml"), "a = 1\nb = 2\n").unwrap_err();
        assert_eq!(fault.to_string(), "x.toml:2:1: unknown field `b`, expected `a`");
        assert!(read::<File>(Path::new("x.toml"), "a = 1").is_ok());
    }
}
