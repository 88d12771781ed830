//! The contract with plug-ins: its files are frozen, and the kits use its names.

use std::fmt::Write as _;
use std::fs;

use sha2::{Digest, Sha256};

use super::root;

/// Files of `wit/0.1.0` with their SHA-256. A published version never changes, because plug-ins built for it must keep working. Before
/// 0.1.0 is published, a file may change together with its line here and with all kits. Afterwards, a change needs a new version beside
/// this one.
const FROZEN: &[(&str, &str)] = &[
    ("calls.wit", "a8a0981566094a82ca89c551420a8efeb2da2e4fa7c9b66c0b421d44af11152b"),
    ("host.wit", "9e55f1d4c923a16027ff33b36fd20859218eef6c4b242e4a6bf600a64a9633d0"),
    ("models.wit", "5e8ef86ffc985044a33b0479ba5325006e9c3a6ecaa31282cbd7b0057e6c8c62"),
    ("processor.wit", "8202cb58f08b2b20ffc19242230e4ff60411f7dddd9d09a88911d9d9d6744037"),
    ("scheduler.wit", "f0f86bf09886b046bdf8fd154ee64b631a9c3b5053a8ed7bc0cbbfd0f43f82f8"),
    ("state-initializer.wit", "6ad6c19b1fc1ebc4b4b0ae13f876ac3ab702741a4029d2e58b0d058173e63af5"),
    ("tensors.wit", "3d132a65fb5700b9eb4630d2925f76b82017c574f22230625538c773ed3a337e"),
    ("types.wit", "932921af46a9caae32ed0ac4c707f0990f71d587aa9f7e509b8e68ff913be10a"),
];

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn the_contract_is_frozen() {
    for (file, frozen) in FROZEN {
        let path = format!("wit/0.1.0/{file}");
        assert_eq!(hex(&Sha256::digest(read(&path))), *frozen, "{path} has changed; see FROZEN in this test");
        assert_eq!(read(&path), read(&format!("plugins/sdk/wit/{file}")), "{file}: the copy of the kit");
    }
    let all = fs::read_dir(root().join("wit/0.1.0")).unwrap().count();
    assert_eq!(all, FROZEN.len(), "every file of the contract is frozen");
}

#[test]
fn every_kit_has_the_answers_of_an_initializer() {
    let answers = ["default", "states", "copy-of", "kept"];
    let wit = read("wit/0.1.0/state-initializer.wit");
    let (_, body) = wit.split_once("variant first-state {").unwrap();
    let (body, _) = body.split_once("\n    }").unwrap();
    let cases = body.lines().map(str::trim).filter(|line| !line.starts_with("///") && !line.is_empty());
    let cases: Vec<&str> = cases.map(|line| line.split(['(', ',']).next().unwrap()).collect();
    assert_eq!(cases, answers);
    let each =
        |text: &dyn Fn(Name) -> String| -> Vec<String> { answers.iter().map(|name| text(Name::new(name))).collect() };
    has("sdk/src/initializer/first_state.rs", &each(&|n| format!("    {}", n.pascal)));
    has("sdk-python/sequor_plugin/initializer.pyi", &each(&|n| format!("def {}(", n.snake)));
    has("sdk/src/initializer/mod.rs", &["fn initialize(".to_owned(), "fn steps(".to_owned()]);
    has("sdk-python/sequor_plugin/initializer.pyi", &["def initialize(".to_owned(), "def steps(".to_owned()]);
}

/// The field names of a record of `scheduler.wit`, in order.
fn fields(record: &str) -> Vec<String> {
    let wit = read("wit/0.1.0/scheduler.wit");
    let (_, body) = wit.split_once(&format!("record {record} {{")).unwrap();
    let (body, _) = body.split_once("\n    }").unwrap();
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("///"));
    lines.filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect()
}

/// A name such as `ready-us` in the forms `ready_us`, `readyUs`, `ReadyUs` and `READY_US`.
struct Name {
    snake: String,
    camel: String,
    pascal: String,
    upper: String,
}

impl Name {
    fn new(kebab: &str) -> Name {
        let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
        let pascal: String = kebab.split('-').map(capital).collect();
        let snake = kebab.replace('-', "_");
        let camel = pascal[..1].to_lowercase() + &pascal[1..];
        Name { camel, pascal, upper: snake.to_uppercase(), snake }
    }
}

/// Checks that a file of a kit contains all of these texts.
fn has(path: &str, texts: &[String]) {
    let file = read(&format!("plugins/{path}"));
    let missing: Vec<&String> = texts.iter().filter(|text| !file.contains(text.as_str())).collect();
    assert!(missing.is_empty(), "plugins/{path} has no {missing:?}");
}

#[test]
fn every_kit_has_the_names_of_the_contract() {
    let each = |names: &[String], text: &dyn Fn(Name) -> String| -> Vec<String> {
        names.iter().map(|name| text(Name::new(name))).collect()
    };
    let round = fields("round");
    assert_eq!(round.len(), 8);
    has("sdk/src/round.rs", &each(&round, &|n| format!("    pub {}: u", n.snake)));
    has("sdk-python/sequor_plugin/__init__.pyi", &each(&round, &|n| format!("    {}: int", n.snake)));
    has("sdk-js/index.d.ts", &each(&round, &|n| format!("  {}: ", n.camel)));
    // Features are accessed by name, and Rust has two methods for the flags.
    let numbers = ["numbers", "keys", "start-end", "len"];
    let columns: Vec<String> = fields("columns").into_iter().filter(|name| !numbers.contains(&name.as_str())).collect();
    assert_eq!(columns.len(), 11);
    has("sdk/src/ready.rs", &each(&columns, &|n| format!("    pub fn {}(&self, i: u32)", n.snake)));
    has("sdk-python/sequor_plugin/columns.pyi", &each(&columns, &|n| format!("    {}: list[int]", n.snake)));
    has("sdk-js/index.d.ts", &each(&columns, &|n| format!("  readonly {}: ", n.camel)));
}

#[test]
fn every_kit_has_the_same_events_and_answers() {
    let each = |names: &[&str], text: &dyn Fn(Name) -> String| -> Vec<String> {
        names.iter().map(|name| text(Name::new(name))).collect()
    };
    let events = ["began", "slotted", "done", "failed", "ended", "batch-ran"];
    has("sdk/src/event.rs", &each(&events, &|n| format!("    {} {{", n.pascal)));
    has("sdk-python/sequor_plugin/events.py", &each(&events, &|n| format!("\"{}\"", n.snake)));
    has("sdk-js/index.d.ts", &each(&events, &|n| format!("\"{}\"", n.camel)));
    has("sdk-c/sequor.h", &each(&events, &|n| format!("SEQUOR_{} = ", n.upper)));
    let plans = ["fire", "wait", "wait-us", "wait-until-us"];
    has("sdk/src/plan.rs", &each(&plans, &|n| format!("pub fn {}(", n.snake)));
    has("sdk-python/sequor_plugin/answers.pyi", &each(&plans, &|n| format!("def {}(", n.snake)));
    has("sdk-js/index.d.ts", &each(&plans, &|n| format!("static {}(", n.camel)));
    let refusals = ["reject", "shed"];
    has("sdk/src/plan.rs", &each(&refusals, &|n| format!("pub fn {}(", n.snake)));
    has("sdk-python/sequor_plugin/answers.pyi", &each(&refusals, &|n| format!("    def {}(self", n.snake)));
    has("sdk-js/index.d.ts", &each(&refusals, &|n| format!("  {}(candidate: number", n.camel)));
    has("sdk-c/sequor.h", &each(&refusals, &|n| format!("void sequor_{}_candidate(", n.snake)));
    let admissions = ["take", "evict", "defer", "reject"];
    has("sdk/src/admission.rs", &each(&admissions, &|n| format!("    {}", n.pascal)));
    has("sdk-python/sequor_plugin/answers.pyi", &each(&admissions, &|n| format!("def {}(", n.snake)));
    has("sdk-js/index.d.ts", &each(&admissions, &|n| format!("  {}(", n.camel)));
    has("sdk-c/sequor.h", &each(&admissions, &|n| format!("sequor_admission sequor_{}(", n.snake)));
    let helpers = ["sorted", "batch", "indices", "key", "number"];
    has("sdk/src/ready.rs", &each(&helpers, &|n| format!("pub fn {}", n.snake)));
    has("sdk-python/sequor_plugin/columns.pyi", &each(&helpers, &|n| format!("    def {}(self", n.snake)));
    has("sdk-js/index.d.ts", &each(&helpers, &|n| format!("  {}(", n.camel)));
    let host = ["log", "metric-add", "key-text", "sequence-text"];
    has("sdk/src/host.rs", &each(&host, &|n| format!("pub fn {}(", n.snake)));
    has("sdk-python/sequor_plugin/host.pyi", &each(&host, &|n| format!("def {}(", n.snake)));
    has("sdk-js/index.d.ts", &each(&host, &|n| format!("  function {}(", n.camel)));
}
