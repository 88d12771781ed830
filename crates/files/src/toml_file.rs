//! TOML texts: parsed into a type with the line of every error, and the place of any key for faults that are found later.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, code, did_you_mean};
use super::place::Place;

/// Parses the whole text, or returns the fault and its place.
pub fn read<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Fault> {
    read_offering(path, text, &|_| true)
}

/// As [`read`]. If a key is unknown, the fault lists the known keys for which `is_offered` holds.
pub fn read_offering<T: DeserializeOwned>(
    path: &Path,
    text: &str,
    is_offered: &dyn Fn(&str) -> bool,
) -> Result<T, Fault> {
    toml::from_str(text).map_err(|e| {
        let place = e.span().map_or(Place::UNKNOWN, |span| Place::at_offset(text, span.start));
        let message = one_line(e.message());
        let what = unknown_key(&message, is_offered).unwrap_or(message);
        Fault { at: place.at(path), code: code::PARSE, what }
    })
}

/// The sentence about an unknown key, with the probable name.
fn unknown_key(message: &str, is_offered: &dyn Fn(&str) -> bool) -> Option<String> {
    let (name, list) = message.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let names: Vec<&str> = list.split('`').skip(1).step_by(2).filter(|name| is_offered(name)).collect();
    let near = did_you_mean(name, names.iter().copied());
    let expected = match *names {
        [] => "no key is served here".to_owned(),
        [only] => format!("expected `{only}`"),
        [first, second] => format!("expected `{first}` or `{second}`"),
        _ => format!("expected one of {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    Some(format!("unknown field `{name}`, {expected}{near}"))
}

fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The place of a key: `["state", "attn_cache", "batch_axis"]`. An element of a list is named by its number. If the path does not exist,
/// the place of its longest existing part.
pub fn place(text: &str, path: &[&str]) -> Place {
    let parts = (0..=path.len()).rev().filter_map(|n| path.get(..n));
    parts.filter(|part| !part.is_empty()).find_map(|part| find(text, part)).unwrap_or(Place::UNKNOWN)
}

/// The place of a key, if the text has it.
pub fn find(text: &str, path: &[&str]) -> Option<Place> {
    let document = DeTable::parse(text).ok()?;
    let (first, rest) = path.split_first()?;
    let (mut offset, mut value) = entry(document.get_ref(), first)?;
    for part in rest {
        (offset, value) = match value {
            DeValue::Table(table) => entry(table, part)?,
            DeValue::Array(list) => {
                let element = list.get(part.parse::<usize>().ok()?)?;
                (element.span().start, element.get_ref())
            }
            _ => return None,
        };
    }
    Some(Place::at_offset(text, offset))
}

fn entry<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<(usize, &'a DeValue<'i>)> {
    let (key, value) = table.iter().find(|(key, _)| key.get_ref().as_ref() == name)?;
    Some((key.span().start, value.get_ref()))
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
        let offered = |name: &str| name != "later";
        let message = "unknown field `prot`, expected one of `port`, `later`, `address`";
        let sentence = unknown_key(message, &offered).unwrap();
        assert_eq!(sentence, "unknown field `prot`, expected `port` or `address`; did you mean \"port\"?");
        assert!(read::<File>(Path::new("x.toml"), "a = 1").is_ok());
    }
}
