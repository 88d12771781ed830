//! Checks pages: links and anchors exist, every reason has a section in troubleshooting, and pages and sentences are short.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{prose, root, sources};

/// Pages that may be longer than 250 lines.
const REFERENCES: [&str; 4] = ["docs/reference/", "docs/dev/", "docs/model-config.md", "docs/plugins/tutorial.md"];

fn pages() -> Vec<(String, String)> {
    let ours = |path: &str| path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'));
    let all = prose::texts().into_iter().filter(|(path, _)| path.ends_with(".md"));
    all.filter(|(path, _)| ours(path) || path.starts_with("models/") || path == "plugins/README.md").collect()
}

/// The text of a page without its blocks of code.
fn without_code(text: &str) -> String {
    let mut inside = false;
    let line = |line: &str| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        if inside || fence { "\n".to_owned() } else { format!("{line}\n") }
    };
    text.lines().map(line).collect()
}

/// The anchors of a page: its headings as GitHub and mdBook name them, and explicit anchors.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in without_code(text).lines() {
        for (at, mark) in line.match_indices("<a id=\"") {
            found.insert(line[at + mark.len()..].split('"').next().unwrap_or_default().to_owned());
        }
        if let Some(title) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()) {
            let title = title.split("<a ").next().unwrap_or(title).trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

/// The targets of a page's links.
fn links(text: &str) -> Vec<String> {
    let text = without_code(text);
    let behind = text.match_indices("](").map(|(at, mark)| &text[at + mark.len()..]);
    behind.filter_map(|rest| rest.split_once(')').map(|(link, _)| link.to_owned())).collect()
}

/// Resolves `..` in the path.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

#[test]
fn every_link_leads_somewhere() {
    let mut faults = Vec::new();
    for (page, text) in pages() {
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let path = match file {
                "" => PathBuf::from(&page),
                file => plain(&Path::new(&page).parent().unwrap().join(file)),
            };
            let target = root().join(&path);
            if page.starts_with("docs/") && !path.starts_with("docs") {
                faults.push(format!("{page}: {link} leaves docs/, where the book ends"));
            } else if !target.exists() {
                faults.push(format!("{page}: {link} leads nowhere"));
            } else if !anchor.is_empty() && !anchors(&fs::read_to_string(target).unwrap_or_default()).contains(anchor) {
                faults.push(format!("{page}: {link}: no such anchor"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// mdBook does not render Mermaid, so pictures are files, and each has a version for dark pages.
#[test]
fn pictures_are_files_for_light_and_dark_pages() {
    let mut faults = Vec::new();
    for (page, text) in pages() {
        if text.contains("```mermaid") {
            faults.push(format!("{page}: a Mermaid block, which the book does not draw"));
        }
    }
    let pictures = fs::read_dir(root().join("docs/pictures")).unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<PathBuf> = pictures.collect();
    assert!(all.len() >= 6, "{all:?}");
    for picture in all {
        if !fs::read_to_string(&picture).unwrap().contains("@media (prefers-color-scheme: dark)") {
            faults.push(format!("{}: no colours for dark pages", picture.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_book_lists_every_page() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> = links(&summary).into_iter().map(|link| format!("docs/{link}")).collect();
    let pages = pages().into_iter().map(|(page, _)| page);
    let missing: Vec<String> =
        pages.filter(|p| p.starts_with("docs/") && p != "docs/SUMMARY.md" && !listed.contains(p)).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not list {missing:?}");
}

/// The reasons in the code: those next to a status code, and those of ended sequences.
fn reasons() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, text) in sources("crates/server/src") {
        let text = text.split("#[cfg(test)]").next().unwrap_or(&text);
        for (at, _) in text.match_indices("Code::") {
            let rest = text[at + 6..].trim_start_matches(char::is_alphanumeric);
            let Some(rest) = rest.strip_prefix(',').map(str::trim_start).and_then(|rest| rest.strip_prefix('"')) else {
                continue;
            };
            let word = rest.split('"').next().filter(|w| w.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            found.extend(word.map(str::to_owned));
        }
    }
    let table = fs::read_to_string(root().join("tests/cases/refusals.toml")).unwrap();
    found.extend(
        table.lines().filter_map(|line| line.strip_prefix("reason = \"")?.strip_suffix('"')).map(str::to_owned),
    );
    found
}

#[test]
fn every_reason_has_its_place_in_troubleshooting() {
    let page = fs::read_to_string(root().join("docs/troubleshoot.md")).unwrap();
    let (anchors, reasons) = (anchors(&page), reasons());
    assert!(reasons.len() > 25 && reasons.contains("expired") && reasons.contains("unauthenticated"), "{reasons:?}");
    let missing: Vec<&String> = reasons.iter().filter(|reason| !anchors.contains(*reason)).collect();
    assert!(missing.is_empty(), "docs/troubleshoot.md has no anchor for {missing:?}");
}

/// The lengths of a page's sentences, in words. Headings, tables and code do not count.
fn sentences(text: &str) -> Vec<usize> {
    let (mut all, mut words) = (Vec::new(), 0);
    let mut end = |words: &mut usize| {
        if *words > 1 {
            all.push(*words);
        }
        *words = 0;
    };
    for line in without_code(text).lines().map(str::trim) {
        let item = line.starts_with("* ") || line.starts_with("- ") || line.starts_with(|c: char| c.is_ascii_digit());
        if line.is_empty() || line.starts_with(['#', '|', '<', '>']) || item {
            end(&mut words);
        }
        if line.starts_with(['#', '|', '<', '>']) {
            continue;
        }
        for word in line.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)) {
            words += 1;
            if word.trim_end_matches(['*', '`', ')', '"']).ends_with(['.', '!', '?']) {
                end(&mut words);
            }
        }
    }
    end(&mut words);
    all
}

#[test]
fn pages_have_at_most_250_lines() {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for (page, text) in pages() {
        let lengths = sentences(&text);
        let (count, words) = (lengths.len(), lengths.iter().sum::<usize>());
        if count > 0 {
            println!("{page}: {} words a sentence ({count} sentences)", words.div_ceil(count));
        }
        let reference = REFERENCES.iter().any(|begin| page.starts_with(begin)) || page == "CHANGELOG.md";
        if !reference && text.lines().count() > 250 {
            faults.push(format!("{page} has {} lines", text.lines().count()));
        }
        all.extend(lengths);
    }
    let mean = all.iter().sum::<usize>() as f64 / all.len() as f64;
    println!("all pages: {mean:.1} words a sentence, {} sentences", all.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Pages named in messages and comments exist.
#[test]
fn pages_that_the_code_names_are_there() {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    let (mut named, mut faults) = (0, Vec::new());
    for (path, text) in ["src", "crates", "xtask"].into_iter().flat_map(sources) {
        for (at, _) in text.match_indices("docs/").filter(|(at, _)| !text[..*at].ends_with(is_part)) {
            let rest = &text[at..];
            let page = rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())].trim_end_matches('.');
            if page.ends_with(".md") {
                named += 1;
                if !root().join(page).is_file() {
                    faults.push(format!("{} names {page}", path.display()));
                }
            }
        }
    }
    assert!(named > 10, "{named}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What `docs/logs.md` tells readers to search for is in the code: targets and sentences as texts, fields where something is logged.
#[test]
fn log_lines_that_the_page_lists_are_in_the_code() {
    let page = fs::read_to_string(root().join("docs/logs.md")).unwrap();
    let table = page.split("## Lines to search for").nth(1).unwrap().split("\n## ").next().unwrap();
    let searches =
        table.lines().filter_map(|line| line.split('|').nth(2)).flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let targets = page.split('`').skip(1).step_by(2).filter(|span| span.starts_with("sequor::"));
    let code: Vec<String> = ["src", "crates"].into_iter().flat_map(sources).map(|(_, text)| text).collect();
    let (mut listed, mut faults) = (BTreeSet::new(), Vec::new());
    for word in searches.chain(targets.map(|target| target.split('=').next().unwrap())).filter(|word| *word != "ERROR")
    {
        let is_there = match word {
            target if target.contains("::") => code.iter().any(|text| text.contains(&format!("\"{target}\""))),
            sentence if sentence.contains(' ') => code.iter().any(|text| text.contains(sentence)),
            field => {
                let is_word = |text: &String| {
                    let mut places = text.match_indices(field).map(|(at, _)| (&text[..at], &text[at + field.len()..]));
                    places
                        .any(|(before, after)| !before.ends_with(super::in_word) && !after.starts_with(super::in_word))
                };
                code.iter().filter(|text| text.contains("tracing::")).any(is_word)
            }
        };
        listed.insert(word);
        if !is_there {
            faults.push(word);
        }
    }
    assert!(listed.len() > 15, "{listed:?}");
    assert!(faults.is_empty(), "docs/logs.md lists what the code does not log: {faults:?}");
}

#[test]
fn anchors_and_sentences_are_counted() {
    assert_eq!(
        anchors("# A `b`, c\n## Do x-y_z <a id=\"w\"></a>\n"),
        ["a-b-c", "do-x-y_z", "w"].map(String::from).into()
    );
    assert_eq!(sentences("# T\n\nOne two. Three four five.\n\n* a b c\n* d e\n\n| x | y |\n"), [2, 3, 3, 2]);
    assert_eq!(links("see [a](b.md#c) and [d](e)"), ["b.md#c", "e"]);
}
