//! Compares the parser of config.pbtxt with protobuf's own: thousands of configurations from a seed, with every field in every spelling,
//! half of them made invalid. Both must accept the same texts with the same messages, and refuse the same texts.

use std::collections::BTreeMap;
use std::path::Path;

use prost::Message as _;
use sequor_proto::ModelConfig;
use serde::Deserialize;
use serde_json::Value;

use sequor::config::fault::Fault;
use sequor::config::model::text;

use crate::python;
use crate::server::root;

/// One text, and protobuf's result.
#[derive(Deserialize)]
struct Line {
    text: String,
    /// The wire format in hexadecimal digits.
    message: Option<String>,
    refused: Option<String>,
    /// Line and column of the refusal.
    place: Option<(u32, u32)>,
}

/// Known differences of Python's parser from the format (and from the C++ parser, which Triton uses). Sequor follows the format. Each has a
/// description, whether Python accepts it, and a test for texts with it.
type Known = (&'static str, bool, fn(&str) -> bool);

const KNOWN: [Known; 6] = [
    ("an escape that does not exist keeps its backslash", true, |t| {
        has_pair(t, |a, b| a == '\\' && !ESCAPES.contains(b))
    }),
    ("`\\?` keeps its backslash", true, |t| t.contains("\\?")),
    ("`_` between digits", true, |t| has_pair(t, |a, b| a.is_ascii_digit() && b == '_')),
    ("`+` before a number", true, |t| has_pair(t, |a, b| a == '+' && b.is_ascii_digit())),
    ("binary numbers", true, |t| t.contains("0b")),
    ("no space between `-` and its number", false, |t| t.contains("- 1")),
];

/// Characters to try behind a backslash.
const ESCAPES: &str = "abfnrtvxXuU?\\'\"01234567";

fn has_pair(text: &str, is: impl Fn(char, char) -> bool) -> bool {
    text.chars().zip(text.chars().skip(1)).any(|(a, b)| is(a, b))
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The difference of a refusal's line and column. Sequor reports the string that is not UTF-8, and protobuf the token behind it.
fn another_place(fault: &Fault, line: &Line) -> Option<String> {
    let place = line.place.filter(|_| fault.what != "string is not valid utf-8")?;
    let refused = line.refused.as_deref().unwrap_or_default();
    (place != (fault.at.line, fault.at.column)).then(|| format!("{ANOTHER_PLACE}: {fault}, theirs {refused}"))
}

const ANOTHER_PLACE: &str = "another place";

/// The difference between Sequor's and protobuf's results, if any.
fn difference(line: &Line) -> Option<String> {
    let ours = text::parse(Path::new("config.pbtxt"), &line.text);
    match (ours, &line.message) {
        (Err(fault), None) => another_place(&fault, line),
        (Err(fault), Some(_)) => Some(format!("we refuse it: {fault}")),
        (Ok(_), None) => Some(format!("protobuf refuses it: {}", line.refused.as_deref().unwrap_or_default())),
        (Ok(ours), Some(theirs)) => {
            // Both pass the same encoder, which sorts maps. Bytes are compared and not numbers, because NaN differs from itself.
            let theirs = ModelConfig::decode(bytes(theirs).as_slice()).unwrap();
            (ours.encode_to_vec() != theirs.encode_to_vec())
                .then(|| format!("another message:\n  ours {ours:?}\ntheirs {theirs:?}"))
        }
    }
}

#[test]
fn configurations_are_read_as_protobuf_reads_them() {
    let count = std::env::var("SEQUOR_ORACLE").ok().and_then(|n| n.parse().ok()).unwrap_or(5000u32);
    let arguments = ["--seed", "1", "--count", &count.to_string()].map(str::to_owned);
    let found = python::run(&root().join("tests/python/oracle.py"), &arguments);
    let lines: Vec<Line> = found.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), count as usize);
    let (mut faults, mut known) = (Vec::new(), BTreeMap::new());
    for line in &lines {
        let Some(what) = difference(line) else { continue };
        let same_verdict = what.starts_with(ANOTHER_PLACE);
        match KNOWN.iter().find(|(_, taken, is)| (same_verdict || line.message.is_some() == *taken) && is(&line.text)) {
            Some((name, ..)) => *known.entry(*name).or_insert(0) += 1,
            None => faults.push(format!("{}\n=> {what}", line.text)),
        }
    }
    let taken = lines.iter().filter(|line| line.message.is_some()).count();
    let placed = lines.iter().filter(|line| line.place.is_some()).count();
    println!(
        "seed 1: {count} configurations, {taken} of them sound, {placed} refused at a place; known differences: {known:?}"
    );
    assert!(placed * 4 > lines.len(), "{placed} of {count} refusals have a place");
    assert!(taken * 3 > lines.len() && taken * 4 < lines.len() * 3, "{taken} of {count} are sound");
    let shown: Vec<&str> = faults.iter().take(20).map(String::as_str).collect();
    assert!(faults.is_empty(), "{} differ:\n\n{}", faults.len(), shown.join("\n\n=====\n\n"));
}

/// In the other direction: protobuf parses the JSON form that Sequor writes.
#[test]
fn a_configuration_as_json_is_the_same_message() {
    let script = root().join("tests/python/oracle.py");
    let text = python::run(&script, &["--seed", "2", "--count", "300"].map(str::to_owned));
    for line in text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap()) {
        let Some(message) = &line.message else { continue };
        let config = ModelConfig::decode(bytes(message).as_slice()).unwrap();
        let json: Value = sequor::config::model::json::to_json(&config);
        let back = sequor::config::model::json::from_json(Path::new("config"), &json.to_string());
        let back = back.unwrap_or_else(|e| panic!("{e}\n{json}"));
        assert_eq!(back.encode_to_vec(), config.encode_to_vec(), "{json}");
    }
}
