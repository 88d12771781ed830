//! Checks the wording of the tree: no words of `tests/prose.deny`, and no type name declared twice. `tests/prose.allow` has the remaining
//! count of each folder, which may only go down. `UPDATE_PROSE=1` writes lower counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::root;

const FOLDERS: [&str; 13] = [
    "src", "crates", "xtask", "plugins", "docs", "tests", "benches", "examples", "fuzz", "wit", "proto", "models",
    "deploy",
];
const ENDINGS: [&str; 15] =
    ["rs", "md", "wit", "proto", "py", "js", "mjs", "ts", "toml", "h", "c", "pbtxt", "cu", "service", "allow"];
const NOT_OURS: [&str; 6] = ["node_modules", "target", "generated", "third_party", "bindings.rs", "componentize_py"];

/// All text files of the tree that people write, with their paths.
pub(crate) fn texts() -> Vec<(String, String)> {
    fn walk(path: &Path, found: &mut Vec<(String, String)>) {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        if NOT_OURS.iter().any(|part| name.contains(part))
            || name.starts_with("tests/prose.")
            || name == "tests/architecture/prose.rs"
        {
            return;
        }
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
                walk(&entry.path(), found);
            }
        } else if path.extension().is_some_and(|e| ENDINGS.iter().any(|ending| e == *ending))
            && let Ok(text) = fs::read_to_string(path)
            && !text.contains("@generated")
        {
            found.push((name, text));
        }
    }
    let mut found = Vec::new();
    for folder in FOLDERS.iter().filter(|folder| root().join(folder).exists()) {
        walk(&root().join(folder), &mut found);
    }
    for entry in fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|e| e == "md") {
            walk(&entry, &mut found);
        }
    }
    found.sort();
    found
}

/// The lines of a text without the marks of comments and lists.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(|line| {
        let line = line.trim();
        let line = ["//!", "///", "//", "#", "/*", "*", "-", "|"]
            .iter()
            .find_map(|mark| line.strip_prefix(mark))
            .unwrap_or(line);
        line.trim()
    })
}

/// The words and openings of `tests/prose.deny` that a text contains.
fn denied(text: &str, deny: &[(bool, String)]) -> Vec<String> {
    let (mut whole, mut starts) = (String::new(), BTreeSet::from([0]));
    for line in lines(text) {
        let ends = whole.trim_end().ends_with(['.', ':', '!', '?', '|', '{', '}', ';', ',', ')']);
        if line.is_empty() || ends || whole.ends_with("\n") {
            starts.insert(whole.len());
        }
        whole.push_str(line);
        whole.push(if line.is_empty() { '\n' } else { ' ' });
    }
    for mark in [". ", "! ", "? ", "\"", "| ", "**"] {
        starts.extend(whole.match_indices(mark).map(|(at, mark)| at + mark.len()));
    }
    let small = whole.to_ascii_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (opening, words) in deny {
        let (text, words) = if *opening { (&whole, words.clone()) } else { (&small, words.to_lowercase()) };
        for (at, _) in text.match_indices(&words) {
            let inside = text[..at].ends_with(is_word) || text[at + words.len()..].starts_with(is_word);
            if !inside && (!*opening || starts.contains(&at)) {
                let end = (at + words.len() + 30..).find(|n| text.is_char_boundary((*n).min(text.len()))).unwrap_or(at);
                found.push(whole[at..end.min(whole.len())].to_owned());
            }
        }
    }
    found
}

fn deny() -> Vec<(bool, String)> {
    let text = fs::read_to_string(root().join("tests/prose.deny")).unwrap();
    let line = |line: &str| {
        let (kind, words) = line.split_once(' ').filter(|_| !line.starts_with('#'))?;
        Some((kind == "opening", words.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// The folder for the counts: `crates/model` for `crates/model/src/lib.rs`, `docs` for `docs/install.md`.
fn folder(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [top, below, _, ..] => format!("{top}/{below}"),
        [top, _] => (*top).to_owned(),
        _ => path.to_owned(),
    }
}

/// The contents of `tests/prose.allow`: counts of words by folder, and types that may be declared more than once.
#[derive(Default, PartialEq, Eq)]
struct Allowed {
    words: BTreeMap<String, usize>,
    /// Types, each with the reason.
    types: BTreeMap<String, String>,
}

impl Allowed {
    fn read() -> Allowed {
        let text = fs::read_to_string(root().join("tests/prose.allow")).unwrap_or_default();
        let mut allowed = Allowed::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("words", rest)) => {
                    let (folder, count) = rest.rsplit_once(' ').unwrap();
                    allowed.words.insert(folder.to_owned(), count.parse().unwrap());
                }
                Some(("type", rest)) => {
                    let (name, reason) = rest.split_once(' ').unwrap_or((rest, ""));
                    allowed.types.insert(name.to_owned(), reason.to_owned());
                }
                _ => {}
            }
        }
        allowed
    }

    /// Writes the remaining entries to the file.
    fn write(&self) {
        let mut text = "# What is left of words that tests/prose.deny lists, by folder, and of types that are declared twice, with the reason.\n\
            # Counts may only fall: UPDATE_PROSE=1 cargo test --test architecture prose\n"
            .to_owned();
        for (folder, count) in &self.words {
            let _ = writeln!(text, "words {folder} {count}");
        }
        for (name, reason) in &self.types {
            let _ = writeln!(text, "{}", format!("type {name} {reason}").trim_end());
        }
        fs::write(root().join("tests/prose.allow"), text).unwrap();
    }
}

/// A declaration without `pub`, `pub(super)` or `pub(in PATH)`.
fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = rest.strip_prefix('(').and_then(|path| path.split_once(')')).map_or(rest, |(_, rest)| rest);
    rest.trim_start()
}

/// The names of types that more than one file declares, outside of tests.
fn declared_twice(texts: &[(String, String)]) -> BTreeMap<String, Vec<String>> {
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in texts {
        let ours = ["src/", "crates/", "xtask/"].iter().any(|folder| path.starts_with(folder)) && path.ends_with(".rs");
        if !ours || path.contains("/tests/") || path.contains("/benches/") || path.ends_with("tests.rs") {
            continue;
        }
        // In the macros that declare settings, types are indented by one level.
        let mut in_macro = false;
        for line in text.lines() {
            in_macro = line.ends_with("! {") && line.starts_with(char::is_lowercase) || in_macro && line != "}";
            let line = if in_macro { line.strip_prefix("    ").unwrap_or(line) } else { line };
            let line = without_visibility(line);
            let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
            if let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                // A line of a string may begin with such a word.
                if name.starts_with(char::is_uppercase) {
                    by_name.entry(name).or_default().push(path.clone());
                }
            }
        }
    }
    by_name.retain(|_, paths| paths.len() > 1);
    by_name
}

#[test]
fn prose_has_no_denied_words_and_type_names_are_unique() {
    let (texts, deny, allowed) = (texts(), deny(), Allowed::read());
    assert!(texts.len() > 300 && deny.len() > 5);
    let mut left = Allowed::default();
    let mut where_: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in &texts {
        for found in denied(text, &deny) {
            *left.words.entry(folder(path)).or_default() += 1;
            where_.entry(folder(path)).or_default().push(format!("{path}: {found}"));
        }
    }
    let twice = declared_twice(&texts);
    left.types = twice.keys().map(|n| (n.clone(), allowed.types.get(n).cloned().unwrap_or_default())).collect();
    let words: usize = left.words.values().sum();
    println!("{words} words of tests/prose.deny are left; {} type names are declared twice", twice.len());
    if std::env::var_os("UPDATE_PROSE").is_some() {
        left.write();
        return;
    }
    let mut faults = Vec::new();
    for (folder, count) in &left.words {
        let most = allowed.words.get(folder).copied().unwrap_or(0);
        if *count > most {
            let all = where_[folder].join("\n  ");
            faults.push(format!("{folder}: {count} words of tests/prose.deny, and {most} are allowed:\n  {all}"));
        }
    }
    for (name, paths) in twice.iter().filter(|(name, _)| !allowed.types.contains_key(*name)) {
        faults.push(format!("the type {name} is declared more than once: {}", paths.join(", ")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The lines of doc comments at which a code block begins that the documentation tool would take for Rust.
fn rust_blocks(text: &str) -> Vec<usize> {
    let (mut found, mut is_open) = (Vec::new(), false);
    for (n, line) in text.lines().map(str::trim).enumerate() {
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(fence) = comment.and_then(|comment| comment.trim().strip_prefix("```")) else { continue };
        if !is_open && fence != "text" {
            found.push(n + 1);
        }
        is_open = !is_open;
    }
    found
}

/// The test command runs no doc tests: to build them takes longer than many a test, and there are none. An example that is code is a test.
#[test]
fn code_blocks_of_doc_comments_are_no_rust() {
    for folder in ["src", "crates", "xtask"] {
        for (path, text) in super::sources(folder) {
            assert_eq!(rust_blocks(&text), [0; 0], "{folder}/{}: write ```text, or a test", path.display());
        }
    }
    assert_eq!(rust_blocks("/// ```text\n/// a -> b\n/// ```\n/// ```\n/// assert!(true);\n/// ```\n"), [4]);
}

#[test]
fn types_declared_in_macros_count_as_declarations() {
    let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let twice = declared_twice(&[
        text(
            "src/a.rs",
            "section! {\n    pub struct Admin, \"admin.\" {\n        pub struct_like: u8,\n    }\n}\n    enum Inner {\n",
        ),
        text("src/b.rs", "pub(crate) struct Admin(u8);\nenum Inner {\n"),
    ]);
    assert_eq!(twice.keys().collect::<Vec<_>>(), ["Admin"]);
}

#[test]
fn types_with_a_restricted_visibility_count_as_declarations() {
    let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let twice = declared_twice(&[
        text("src/a.rs", "pub(in crate::model) struct Slots {\n"),
        text("src/b.rs", "pub(super) struct Slots {\n"),
    ]);
    assert_eq!(twice.keys().collect::<Vec<_>>(), ["Slots"]);
}

#[test]
fn denied_words_are_found_and_others_are_not() {
    let deny = deny();
    let count = |text: &str| denied(text, &deny).len();
    assert_eq!(count("/// Whoever calls. It\n/// falls. fn whatever_else() {}"), 2);
    assert_eq!(count("// What is served.\n// One that waits.\n"), 2);
    assert_eq!(count("let x = \"What is wrong\"; // says what is wrong"), 1);
    assert_eq!(count("what is served, the one that waits; it is toldest"), 0);
}
