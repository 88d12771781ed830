//! No files depend on each other in a circle. Each file can thus be read and tested with only the files below it.
//!
//! An edge leads from a file to the file that defines a name it uses. A `mod.rs` that only re-exports the name is skipped. Tests do not
//! count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{PACKAGES, code, in_word, sources};

type Module = Vec<String>;

/// The modules of one crate, by their paths.
struct Crate {
    files: BTreeMap<Module, File>,
}

struct File {
    path: PathBuf,
    /// Without comments and tests.
    code: String,
    /// Re-exported names, and the paths behind them.
    handed_on: BTreeMap<String, Vec<String>>,
}

impl Crate {
    fn of(folder: &str) -> Crate {
        let mut files = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for (path, text) in sources(folder).into_iter().filter(|(path, _)| path != Path::new("main.rs")) {
            let module = module(&path);
            let (code, of_tests) = without_tests(&code(&text));
            tests.extend(of_tests.into_iter().map(|name| joined(&module, &name)));
            let handed_on = handed_on(&code);
            files.insert(module, File { path: Path::new(folder).join(path), code, handed_on });
        }
        files.retain(|module, _| !(1..=module.len()).any(|n| tests.contains(&module[..n])));
        Crate { files }
    }

    /// The file that defines the item of a path in this module.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<&Path> {
        let mut at: Module = from.to_vec();
        for (n, part) in path.iter().enumerate() {
            match part.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => _ = at.pop()?,
                name if self.files.contains_key(&joined(&at, name)) => at = joined(&at, name),
                name => {
                    let behind = self.files.get(&at)?.handed_on.get(name);
                    // A path cannot refer to itself, but a name can re-export itself, as in `pub use x::x`.
                    let behind = behind.filter(|behind| behind.as_slice() != &path[n..]);
                    return behind.map_or_else(|| Some(self.files.get(&at)?.path.as_path()), |p| self.resolve(&at, p));
                }
            }
        }
        Some(self.files.get(&at)?.path.as_path())
    }

    fn arrows(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let mut arrows: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
        for (module, file) in &self.files {
            let children = self.files.keys().filter(|m| m.len() == module.len() + 1 && m.starts_with(module));
            let children: BTreeSet<&str> = children.filter_map(|m| m.last()).map(String::as_str).collect();
            let to = arrows.entry(&file.path).or_default();
            for path in paths(&without_handing_on(&file.code), &children) {
                to.extend(self.resolve(module, &path).filter(|to| *to != file.path));
            }
        }
        arrows
    }
}

fn joined(module: &[String], name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

fn module(path: &Path) -> Module {
    let mut parts: Module = path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib")) {
        parts.pop();
    }
    parts
}

/// The code without tests, and the modules that exist only in tests.
pub(super) fn without_tests(code: &str) -> (String, Vec<String>) {
    let (mut kept, mut modules) = (String::new(), Vec::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if !["#[cfg(test)]", "#[cfg(any(test, feature = \"testing\"))]"].contains(&line) {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let item = lines.by_ref().find(|line| !line.starts_with("#[")).unwrap_or_default();
        match item.strip_suffix(';') {
            Some(item) => modules.extend(item.split_once("mod ").map(|(_, name)| name.to_owned())),
            None => _ = lines.by_ref().find(|line| *line == "}"),
        }
    }
    (kept, modules)
}

/// Every `use` statement of the file itself, and whether it is public.
fn statements(code: &str) -> impl Iterator<Item = (&str, bool)> {
    let begins = code.match_indices("use ").map(|(at, _)| at);
    begins.filter_map(|at| {
        let before = &code[..at];
        let public = before.ends_with("pub ") || before.ends_with(") ");
        let its_own = public || before.is_empty() || before.ends_with('\n');
        Some((code[at..].split(';').next()?, public)).filter(|_| its_own)
    })
}

/// The names that children can use through their parent: all its imports, public or not.
fn handed_on(code: &str) -> BTreeMap<String, Vec<String>> {
    let of = |(statement, _): (&str, bool)| spread(statement.trim_start_matches("use ").trim());
    let all = statements(code).flat_map(of);
    all.filter_map(|(path, name)| Some((name.or_else(|| path.last().cloned())?, path))).collect()
}

fn without_handing_on(code: &str) -> String {
    let public = statements(code).filter(|(_, public)| *public);
    public.fold(code.to_owned(), |code, (statement, _)| code.replacen(statement, "", 1))
}

/// All paths of a tree in a `use`, each with the name it gets.
fn spread(tree: &str) -> Vec<(Vec<String>, Option<String>)> {
    let tree = tree.trim();
    if let Some((begin, group)) = tree.split_once('{') {
        let begin: Vec<String> = begin.split("::").map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect();
        let within = &group[..closing(group)];
        let each = split(within).into_iter().flat_map(spread);
        return each.map(|(path, name)| (begin.iter().cloned().chain(path).collect(), name)).collect();
    }
    let (path, name) =
        tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim().to_owned())));
    let parts = path.split("::").map(|part| part.trim().to_owned());
    let parts: Vec<String> = parts.filter(|p| !p.is_empty() && p != "*" && p != "self").collect();
    if tree.is_empty() { Vec::new() } else { vec![(parts, name)] }
}

/// The end of a group whose opening brace is directly before it.
fn closing(group: &str) -> usize {
    let mut depth = 0;
    let close = |(_, c): &(usize, char)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth < 0
    };
    group.char_indices().find(close).map_or(group.len(), |(at, _)| at)
}

/// The parts between the top-level commas of a group.
fn split(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            parts.push(&group[from..at]);
            from = at + 1;
        }
    }
    parts.push(&group[from..]);
    parts
}

/// All paths in the code that lead out of its file: those that begin with `crate`, `super`, `self` or the name of a child.
fn paths(code: &str, children: &BTreeSet<&str>) -> Vec<Vec<String>> {
    let (mut found, mut from, mut inline) = (Vec::new(), 0, false);
    while let Some(at) = code[from..].find("::").map(|at| from + at) {
        let begin = code[..at].rfind(|c| !in_word(c)).map_or(0, |b| b + 1);
        let head = &code[begin..at];
        from = at + 2;
        // A path in a visibility refers to no item.
        let within = code[..begin].ends_with("::") || code[..begin].ends_with("(in ");
        if within || !(["crate", "super", "self"].contains(&head) || children.contains(head)) {
            continue;
        }
        let end = code[at..].find(|c: char| !in_word(c) && c != ':').map_or(code.len(), |e| at + e);
        let path = code[begin..end].trim_end_matches("::");
        let group = code[end..].strip_prefix('{').map_or("", |group| &group[..closing(group)]);
        from = end + group.len();
        // In a module within the file, `super` means the file.
        let line = code[..begin].lines().rfind(|line| line.starts_with(|c: char| !c.is_whitespace())).unwrap_or("");
        inline = if line.contains("mod ") && line.ends_with('{') { true } else { inline && line != "}" };
        let path = if inline && head == "super" { path.replacen("super", "self", 1) } else { path.to_owned() };
        let whole = if group.is_empty() { path } else { format!("{path}::{{{group}}}") };
        found.extend(spread(&whole).into_iter().map(|(path, _)| path));
    }
    found
}

/// All files that can be reached from a file.
fn reach<'a>(arrows: &BTreeMap<&'a Path, BTreeSet<&'a Path>>, from: &'a Path) -> BTreeSet<&'a Path> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        next.extend(arrows.get(at).into_iter().flatten().filter(|to| seen.insert(**to)));
    }
    seen
}

/// The files of each circle; each file is in one circle only.
fn circles<'a>(arrows: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> Vec<BTreeSet<&'a Path>> {
    let reach: BTreeMap<&Path, BTreeSet<&Path>> = arrows.keys().map(|file| (*file, reach(arrows, file))).collect();
    let of = |file: &&'a Path| -> BTreeSet<&'a Path> {
        reach[*file].iter().filter(|other| reach[**other].contains(*file)).copied().collect()
    };
    arrows.keys().map(of).filter(|circle| circle.len() > 1).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn files_have_no_cyclic_imports() {
    let below = ["crates/core/src", "crates/files/src", "crates/sync/src", "crates/wasm/src"];
    let crates: Vec<Crate> = below.into_iter().chain(PACKAGES).map(Crate::of).collect();
    let mut faults = Vec::new();
    for arrows in crates.iter().map(Crate::arrows) {
        for circle in circles(&arrows) {
            for file in &circle {
                let to: Vec<_> = arrows[*file].intersection(&circle).map(|to| to.display().to_string()).collect();
                faults.push(format!("{} stands in a circle, by {}", file.display(), to.join(", ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// === tests of these checks ===

#[test]
fn imported_paths_resolve_to_the_files_that_define_their_names() {
    let text = "use super::{a::B, c::{D, e::F}};\nfn f() { crate::g::h(); x::y(); child::z() }\nmod m {\n    use super::n;\n}\n";
    let found: Vec<String> = paths(text, &BTreeSet::from(["child"])).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["super::a::B", "super::c::D", "super::c::e::F", "crate::g::h", "child::z", "n"]);

    let file = |path: &str, code: &str| {
        let (path, code) = (PathBuf::from(path), code.to_owned());
        (module(&path), File { handed_on: handed_on(&code), path, code })
    };
    let made = Crate {
        files: BTreeMap::from([
            file("lib.rs", ""),
            file("a/mod.rs", "pub use b::Thing;\npub struct Own;\n"),
            file("a/b.rs", "use super::c::take;\npub struct Thing;\n"),
            file("a/c.rs", "use crate::a::{Own, Thing};\npub fn take() {}\n"),
        ]),
    };
    let arrows = made.arrows();
    let (a, b, c) = (Path::new("a/mod.rs"), Path::new("a/b.rs"), Path::new("a/c.rs"));
    assert_eq!(arrows[b], BTreeSet::from([c]));
    assert_eq!(arrows[c], BTreeSet::from([a, b]));
    assert!(arrows[a].is_empty(), "a face is no arrow");
    assert_eq!(circles(&arrows), [BTreeSet::from([b, c])]);
}

#[test]
fn imports_of_test_modules_do_not_count() {
    let (kept, modules) =
        without_tests("use a;\n#[cfg(test)]\n#[cfg(x)]\nmod tests;\n#[cfg(test)]\nmod more {\n    use b;\n}\nuse c;\n");
    assert_eq!((kept.as_str(), modules), ("use a;\nuse c;\n", vec!["tests".to_owned()]));
}
