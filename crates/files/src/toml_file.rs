//! TOML texts: parsed into a type with the line of every error, and the place of any key for faults that are found later.

use std::path::Path;

use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use toml::Table;
use toml::de::{DeTable, DeValue, Deserializer, Error};

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
    toml::from_str(text).map_err(|e| fault(path, text, &e, is_offered))
}

fn fault(path: &Path, text: &str, error: &Error, is_offered: &dyn Fn(&str) -> bool) -> Fault {
    let place = error.span().map_or(Place::UNKNOWN, |span| Place::at_offset(text, span.start));
    let message = one_line(error.message());
    let what = unknown_key(&message, is_offered).unwrap_or(message);
    Fault { at: place.at(path), code: code::PARSE, what }
}

/// The entries of a text that a type accepts, and the faults of all others.
#[derive(Debug, Default)]
pub struct AcceptedEntries {
    pub table: Table,
    pub faults: Vec<Fault>,
    /// The path of each entry that was left out. An empty path stands for an entry that could not be parsed.
    pub left_out: Vec<Vec<String>>,
}

/// Maximum number of faults that are reported of one text. A text of another format has one in each line.
const MOST_FAULTS: usize = 20;
/// Maximum number of entries that are left out, also of those whose faults follow from others. The text is checked again after each.
const MOST_LEFT_OUT: usize = 200;

impl AcceptedEntries {
    /// Ends the check of a text that has further faults. Nothing of it is accepted.
    fn cut(mut self) -> AcceptedEntries {
        let last = self.faults.iter().map(|fault| &fault.at).max_by_key(|at| (at.line, at.column));
        let what = "and more: this file has further faults, which were not looked for".to_owned();
        self.faults.push(Fault { at: last.cloned().unwrap_or_default(), code: code::PARSE, what });
        self.left_out.push(Vec::new());
        self
    }
}

/// Checks every entry of the text against `T`. A faulty entry is left out, and the check goes on, up to a maximum number of faults.
/// `is_offered` is that of [`read_offering`].
pub fn accepted<T: DeserializeOwned>(path: &Path, text: &str, is_offered: &dyn Fn(&str) -> bool) -> AcceptedEntries {
    let (mut document, mut unparsed) = DeTable::parse_recoverable(text);
    let mut found = AcceptedEntries::default();
    found.left_out.extend(unparsed.first().map(|_| Vec::new()));
    let mended = with_closed_headers(text, &unparsed);
    let mut text = text;
    if let Some(mended) = &mended {
        unparsed.retain(is_unclosed_header);
        found.faults.extend(unparsed.iter().take(MOST_FAULTS).map(|error| fault(path, text, error, is_offered)));
        (document, unparsed) = DeTable::parse_recoverable(mended);
        text = mended;
    }
    for error in &unparsed {
        let fault = fault(path, text, error, is_offered);
        let follows = mended.is_some() && found.faults.iter().any(|known| known.at.line == fault.at.line);
        if !follows && found.faults.len() >= MOST_FAULTS {
            return found.cut();
        }
        found.faults.extend((!follows).then_some(fault));
    }
    let unparsed = found.faults.len();
    while let Err(error) = T::deserialize(Deserializer::from(document.clone())) {
        let of_type = fault(path, text, &error, is_offered);
        let removed = error.span().and_then(|span| remove_at(document.get_mut(), span.start));
        // What was recovered of a line that does not parse has often the wrong type, and a key that was left out is missing.
        let is_unparsed = found.faults.iter().take(unparsed).any(|known| known.at.line == of_type.at.line);
        let is_in = |outer: &Vec<String>| found.left_out.iter().any(|path| path.starts_with(outer));
        let is_missing = of_type.what.starts_with("missing field") && removed.as_ref().is_some_and(is_in);
        let is_new = !is_unparsed && !is_missing;
        if (is_new && found.faults.len() >= MOST_FAULTS) || found.left_out.len() >= MOST_LEFT_OUT {
            return found.cut();
        }
        found.faults.extend(is_new.then_some(of_type));
        let is_last = removed.is_none();
        found.left_out.push(removed.unwrap_or_default());
        if is_last {
            return found;
        }
    }
    found.table = Table::deserialize(Deserializer::from(document)).unwrap_or_default();
    found
}

/// Whether the error is about the head of a section without its end: `[http`.
fn is_unclosed_header(error: &Error) -> bool {
    error.message().starts_with("unclosed table") || error.message().starts_with("unclosed array table")
}

/// The text with the missing ends of these heads. Without them, the parser takes the keys below a head as part of it.
fn with_closed_headers(text: &str, errors: &[Error]) -> Option<String> {
    let missing = |error: &Error| {
        let at = error.span()?.start;
        let head = text.get(..at)?.rsplit('\n').next()?.trim_start();
        Some((at, if head.starts_with("[[") && !head.ends_with(']') { "]]" } else { "]" }))
    };
    let mut ends: Vec<_> = errors.iter().filter(|error| is_unclosed_header(error)).filter_map(missing).collect();
    ends.sort_unstable();
    let mut mended = text.to_owned();
    for (at, end) in ends.iter().rev() {
        mended.insert_str(*at, end);
    }
    (!ends.is_empty()).then_some(mended)
}

/// Removes the smallest entry at this offset: its key or its value is there. Returns its path.
fn remove_at(table: &mut DeTable<'_>, offset: usize) -> Option<Vec<String>> {
    let mut found = None;
    for (key, value) in table.iter_mut() {
        let name = key.get_ref().as_ref().to_owned();
        if let Some(inner) = remove_within(value.get_mut(), offset) {
            return Some(std::iter::once(name).chain(inner).collect());
        }
        // The value of a line that does not parse may be empty.
        if [key.span(), value.span()].iter().any(|span| span.contains(&offset) || span.start == offset) {
            found = Some((key.clone(), name));
        }
    }
    let (key, name) = found?;
    table.remove(&key);
    Some(vec![name])
}

fn remove_within(value: &mut DeValue<'_>, offset: usize) -> Option<Vec<String>> {
    match value {
        DeValue::Table(table) => remove_at(table, offset),
        DeValue::Array(list) => list.iter_mut().find_map(|element| remove_within(element.get_mut(), offset)),
        _ => None,
    }
}

/// The sentence about an unknown key: with the probable name, or with all names if none is near.
fn unknown_key(message: &str, is_offered: &dyn Fn(&str) -> bool) -> Option<String> {
    let (name, list) = message.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let names: Vec<&str> = list.split('`').skip(1).step_by(2).filter(|name| is_offered(name)).collect();
    let near = did_you_mean(name, names.iter().copied());
    if !near.is_empty() {
        return Some(format!("unknown field `{name}`{near}"));
    }
    let expected = match *names {
        [] => "no key is served here".to_owned(),
        [only] => format!("expected `{only}`"),
        [first, second] => format!("expected `{first}` or `{second}`"),
        _ => format!("expected one of {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    Some(format!("unknown field `{name}`, {expected}"))
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
        assert_eq!(sentence, "unknown field `prot`; did you mean \"port\"?");
        let far = unknown_key(&message.replace("prot", "name"), &offered).unwrap();
        assert_eq!(far, "unknown field `name`, expected `port` or `address`");
        assert!(read::<File>(Path::new("x.toml"), "a = 1").is_ok());
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sections {
        one: Option<Section>,
        two: Option<Section>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Section {
        a: Option<u8>,
        b: Option<Vec<u8>>,
    }

    fn found(text: &str) -> (Vec<String>, AcceptedEntries) {
        let found = accepted::<Sections>(Path::new("x.toml"), text, &|_| true);
        let mut lines: Vec<_> = found.faults.iter().map(|fault| (fault.at.line, fault.to_string())).collect();
        lines.sort();
        (lines.into_iter().map(|(_, line)| line).collect(), found)
    }

    #[test]
    fn every_fault_of_a_text_is_found_and_the_rest_is_kept() {
        let text = "three = 1\n[two]\nb = [1, 300, 2]\na = 7\n[one]\nc = 1\na = \"x\"\n";
        let (lines, found) = found(text);
        let starts =
            ["x.toml:1:1: unknown field `three`", "x.toml:3:9: ", "x.toml:6:1: unknown field `c`", "x.toml:7:5: "];
        assert_eq!(lines.len(), starts.len(), "{lines:?}");
        assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:?}");
        assert_eq!(found.table.to_string(), "[one]\n\n[two]\na = 7\n");
        let mut left_out: Vec<String> = found.left_out.iter().map(|path| path.join(".")).collect();
        left_out.sort();
        assert_eq!(left_out, ["one.a", "one.c", "three", "two.b"]);
    }

    #[test]
    fn a_line_that_does_not_parse_hides_no_fault_of_another_line() {
        let (lines, found) = found("[one]\na = \n[two]\na = 300\n");
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("x.toml:2:") && lines[1].starts_with("x.toml:4:5: "), "{lines:?}");
        assert!(found.left_out.contains(&Vec::new()));
    }

    #[test]
    fn a_head_without_its_end_is_one_fault_and_hides_none() {
        let starts = |text: &str| {
            let place = |line: &String| line.strip_prefix("x.toml:").unwrap().split(": ").next().unwrap().to_owned();
            found(text).0.iter().map(place).collect::<Vec<_>>()
        };
        let (lines, _) = found("[one\na = 1\n");
        assert!(lines.len() == 1 && lines[0].starts_with("x.toml:1:5: unclosed table"), "{lines:?}");
        assert_eq!(starts("[one\na = 300\nc = 1\n"), ["1:5", "2:5", "3:1"]);
        assert_eq!(starts("[one # no end\na = 1\n[two\nb = [1]\n"), ["1:5", "3:5"]);
        assert_eq!(starts("[one a]\na = 1\n[two]\nb = 1\n"), ["1:5", "4:5"]);
        assert_eq!(starts("[[one\na = 1\n"), ["1:6"]);
        assert_eq!(starts("[[one]\na = 1\n"), ["1:7"]);
        assert_eq!(starts("[one\na = \n"), ["1:5", "2:5"]);
        let many = "[one\n".repeat(3000);
        assert_eq!(found(&many).0.len(), MOST_FAULTS + 1);
    }

    #[test]
    fn the_check_of_a_text_ends_after_twenty_faults() {
        let yaml: String = (0..3000).map(|n| format!("key_{n}: value\n")).collect();
        let unknown: String = (0..3000).map(|n| format!("key_{n} = 1\n")).collect();
        for text in [yaml, unknown] {
            let (lines, found) = found(&text);
            assert_eq!((lines.len(), found.table.len()), (MOST_FAULTS + 1, 0), "{lines:?}");
            let last = found.faults.last().unwrap();
            assert!(last.what.starts_with("and more: ") && last.at.line >= 20, "{last}");
            assert!(found.left_out.contains(&Vec::new()));
        }
        let most: String = (0..MOST_FAULTS).map(|n| format!("key_{n} = 1\n")).collect();
        let (lines, found) = found(&format!("{most}[one]\na = 1\n"));
        assert_eq!((lines.len(), found.table.to_string()), (MOST_FAULTS, "[one]\na = 1\n".to_owned()), "{lines:?}");
    }

    #[test]
    fn faults_that_follow_from_an_unparsed_line_are_bounded_too() {
        let keys: Vec<String> = (0..1000).map(|n| format!("key_{n} = 1")).collect();
        let (lines, found) = found(&format!("[one]\na = \nb = {{ {}, x = }}\n", keys.join(", ")));
        assert!(lines.len() <= 3 && found.left_out.len() <= MOST_LEFT_OUT + 1, "{lines:?}");
        let (lines, found) = self::found(&format!("one = {{ {}, x = }}\n", keys.join(", ")));
        assert!(lines.len() <= 3 && found.left_out.len() == MOST_LEFT_OUT + 1, "{lines:?}");
    }

    #[test]
    fn a_text_without_faults_is_kept_whole() {
        let (lines, found) = found("one.a = 1\n[two]\nb = [1]\n");
        assert!(lines.is_empty() && found.left_out.is_empty(), "{lines:?}");
        assert_eq!(found.table.to_string(), "[one]\na = 1\n\n[two]\nb = [1]\n");
    }
}
