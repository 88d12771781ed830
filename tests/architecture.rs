//! Checks `tests/imports.allow`: which modules may depend on which, and which modules may use which crates. Packages cannot depend on each
//! other in a circle; the modules within one could. Also checks rules of files that no lint knows. It looks for tokens, not for `use` lines, so that it also sees a path in the middle of an expression.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/contract.rs"]
mod contract;
#[path = "architecture/links.rs"]
mod links;
#[path = "architecture/prose.rs"]
mod prose;

type Table = BTreeMap<String, BTreeSet<String>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder, by their paths within it.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), found);
            } else if entry.path().extension().is_some_and(|e| e == "rs") {
                found.push(entry.path());
            }
        }
    }
    let (base, mut found) = (root().join(folder), Vec::new());
    walk(&base, &mut found);
    found.sort();
    assert!(!found.is_empty());
    found.into_iter().map(|p| (p.strip_prefix(&base).unwrap().to_owned(), fs::read_to_string(&p).unwrap())).collect()
}

/// The packages whose modules have a line in `tests/imports.allow`, lowest first.
const PACKAGES: [&str; 9] = [
    "crates/config/src",
    "crates/telemetry/src",
    "crates/executor/src",
    "crates/state/src",
    "crates/backend/src",
    "crates/plugins/src",
    "crates/model/src",
    "crates/server/src",
    "src",
];

/// The Rust files of all modules, by their paths within their packages. No two packages have a module of the same name.
fn sources_of_modules() -> Vec<(PathBuf, String)> {
    PACKAGES.into_iter().flat_map(sources).filter(|(path, _)| module(path).is_some()).collect()
}

/// The folder of a module, or of one within it.
fn folder_of(module: &str) -> PathBuf {
    PACKAGES.iter().map(|package| root().join(package).join(module)).find(|folder| folder.is_dir()).unwrap()
}

/// The lines of `tests/imports.allow` that have this sign between their two sides.
fn table(sign: &str) -> Table {
    let text = fs::read_to_string(root().join("tests/imports.allow")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(sign));
    let table: Table = lines
        .map(|(left, right)| (left.trim().to_owned(), right.split_whitespace().map(str::to_owned).collect()))
        .collect();
    assert!(!table.is_empty());
    table
}

// === tokens ===

/// The text without its comments, which may mention anything.
fn code(text: &str) -> String {
    let line = |line: &str| match line.find("//") {
        Some(at) if !line[..at].ends_with(':') => line[..at].to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(|l| line(l) + "\n").collect()
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The places at which a path begins with this word: `tonic` in `tonic::Status` and in `use tonic;`, but neither in `atonic::` nor in
/// `x::tonic::`.
fn begins<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> + 'a {
    code.match_indices(word).filter_map(move |(at, _)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        let within_a_word = before.ends_with(|c| in_word(c) || c == '$');
        let within_a_path = before.ends_with("::") && !before.ends_with(" ::");
        (!within_a_word && !within_a_path && after.starts_with("::")).then_some(&after[2..])
    })
}

/// The names directly behind `crate::`: one, or those of a group.
fn named(after: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| in_word(*c)).collect::<String>();
    let Some(group) = after.strip_prefix('{') else { return vec![word(after)] };
    let (mut names, mut depth, mut fresh) = (Vec::new(), 0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if in_word(c) && fresh => {
                names.push(word(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

/// For each line: the largest number of consecutive `super::`, and the depth of the line's module below the crate's root.
fn climbs(path: &Path, code: &str) -> Vec<(usize, usize)> {
    let file = path.with_extension("");
    let stays = ["mod", "lib", "main"].iter().any(|name| file.ends_with(name));
    let depth = file.components().count() - usize::from(stays);
    let (mut inline, mut found) = (0, Vec::new());
    for line in code.lines() {
        let opens = ["mod ", "pub mod ", "pub(crate) mod "].iter().any(|begin| line.starts_with(begin));
        if opens && line.ends_with('{') {
            inline = 1;
        } else if line == "}" {
            inline = 0;
        }
        let run = |from: &str| from.split("::").take_while(|part| *part == "super").count();
        let most = line.match_indices("super::").map(|(at, _)| run(&line[at..])).max().unwrap_or(0);
        found.push((most, depth + inline));
    }
    found
}

/// The module that a file belongs to; none for the two files at the root of a package.
fn module(path: &Path) -> Option<String> {
    let first = path.with_extension("").iter().next().unwrap().to_str().unwrap().to_owned();
    (first != "lib" && first != "main").then_some(first)
}

// === the rules ===

#[test]
fn modules_import_only_the_modules_allowed_in_imports_allow() {
    let (allowed, mut used) = (table("->"), Table::new());
    let files = sources_of_modules();
    let modules: BTreeSet<String> = files.iter().filter_map(|(path, _)| module(path)).collect();
    let mut faults = Vec::new();
    for (path, text) in files {
        let code = code(&text);
        let Some(module) = module(&path) else { continue };
        let mut names: BTreeSet<String> =
            begins(&code, "crate").flat_map(named).filter(|name| *name != module).collect();
        if begins(&code, "sequor_core").next().is_some() {
            names.insert("core".to_owned());
        }
        for name in &names {
            if !modules.contains(name) && name != "core" {
                faults.push(format!("{}: crate::{name} is no module", path.display()));
            } else if !allowed.get(&module).is_some_and(|to| to.contains(name)) {
                faults.push(format!("{}: {module} may not name {name}", path.display()));
            }
        }
        for package in PACKAGES.iter().filter_map(|package| package.strip_prefix("crates/")?.strip_suffix("/src")) {
            if begins(&code, &format!("sequor_{package}")).next().is_some() {
                faults.push(format!("{}: lib.rs names the modules of sequor-{package}; say crate::", path.display()));
            }
        }
        used.entry(module).or_default().extend(names);
        for (number, (climbed, depth)) in (1..).zip(climbs(&path, &code)) {
            if climbed >= depth && climbed > 0 {
                faults.push(format!("{}:{number}: climbs out of its module; say crate::", path.display()));
            }
        }
    }
    // An unused permission is not a fault, but the output shows it.
    for (module, to) in &allowed {
        let through = used.get(module).cloned().unwrap_or_default();
        let unused: Vec<&str> = to.difference(&through).map(String::as_str).collect();
        if !unused.is_empty() {
            println!("{module} may name {}, and does not", unused.join(", "));
        }
    }
    for module in modules.iter().filter(|module| !allowed.contains_key(*module)) {
        faults.push(format!("tests/imports.allow: no line for {module}"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The submodules of each module in order, lowest first. A module within another one is named by its path.
fn orders() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(root().join("tests/imports.allow")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" : "));
    lines
        .map(|(module, inner)| (module.trim().to_owned(), inner.split_whitespace().map(str::to_owned).collect()))
        .collect()
}

/// The text behind `crate::ROOM::`, if a path leads there. The error names the part of ROOM that a group hides.
fn within<'a>(after: &'a str, module: &str) -> Result<Option<&'a str>, String> {
    let mut rest = after;
    for part in module.split('/') {
        if rest.starts_with('{') && named(rest).iter().any(|name| name == part) {
            return Err(part.to_owned());
        }
        match rest.strip_prefix(part).and_then(|rest| rest.strip_prefix("::")) {
            Some(inner) => rest = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(rest))
}

/// The faults of a file of `ROOM/INNER/` against the order of the modules within ROOM.
fn against_the_order(path: &Path, text: &str, module: &str, order: &[String]) -> Vec<String> {
    let Some(inner) = path.strip_prefix(module).ok().filter(|inner| inner.components().count() > 1) else {
        return Vec::new();
    };
    let inner = inner.iter().next().unwrap().to_str().unwrap();
    if inner == "tests" {
        return Vec::new();
    }
    let Some(height) = order.iter().position(|other| other == inner) else {
        return vec![format!("{}: {module}/{inner} has no place in tests/imports.allow", path.display())];
    };
    let (code, _) = circles::without_tests(&code(text));
    let (module_path, mut faults) = (module.replace('/', "::"), Vec::new());
    let mut fault = |what: String| faults.push(format!("{}: {what}", path.display()));
    for after in begins(&code, "crate") {
        let within = match within(after, module) {
            Ok(Some(within)) => within,
            Ok(None) => continue,
            Err(part) => {
                fault(format!("a group hides what it names of {part}"));
                continue;
            }
        };
        for name in named(within) {
            match order.iter().position(|other| *other == name) {
                Some(other) if other > height => fault(format!("{inner} may not name {name}")),
                None if name != "tests" => fault(format!("crate::{module_path}::{name}: say in which module it is")),
                _ => {}
            }
        }
    }
    // `super` leaves an inner module before it leaves the outer one.
    let depth_of_module = module.split('/').count();
    for (number, (climbed, depth)) in (1..).zip(climbs(path, &code)) {
        if climbed > 0 && climbed + depth_of_module >= depth {
            fault(format!("line {number} climbs out of {inner}; say crate::{module}::"));
        }
    }
    faults
}

#[test]
fn submodules_import_only_in_the_order_of_imports_allow() {
    let mut faults = Vec::new();
    for (module, order) in orders() {
        let folders = fs::read_dir(folder_of(&module)).unwrap().map(|entry| entry.unwrap().path());
        let modules = folders.filter(|path| path.is_dir() && !path.ends_with("tests"));
        assert_eq!(
            modules.count(),
            order.len(),
            "every module of {module} has its place in tests/imports.allow, and each is there"
        );
        for (path, text) in sources_of_modules().iter().filter(|(path, _)| path.starts_with(&module)) {
            faults.extend(against_the_order(path, text, &module, &order));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The crates that only the host of components uses.
const HOST: [&str; 3] = ["sequor_sync", "wasmparser", "wasmtime"];

/// A type has one job, so its methods are in one file, or in two if one of them is a separate subject.
#[test]
fn methods_of_a_type_span_at_most_two_files() {
    const MODULES: [&str; 6] = ["model", "executor", "device", "state", "batch", "backend"];
    let mut files: BTreeMap<(String, String), BTreeSet<PathBuf>> = BTreeMap::new();
    for (path, text) in sources_of_modules() {
        let Some(module) = module(&path).filter(|module| MODULES.contains(&module.as_str())) else { continue };
        for line in text.lines().filter(|line| line.starts_with("impl") && !line.contains(" for ")) {
            let of = &line["impl".len()..];
            let of = of.split_once("> ").filter(|_| of.starts_with('<')).map_or(of, |(_, of)| of).trim();
            let name: String = of.chars().take_while(|c| in_word(*c)).collect();
            files.entry((module.clone(), name)).or_default().insert(path.clone());
        }
    }
    assert!(files.contains_key(&("model".to_owned(), "Repository".to_owned())), "{:?}", files.keys());
    let faults: Vec<_> = files.iter().filter(|(_, files)| files.len() > 2).collect();
    assert!(faults.is_empty(), "{faults:?}");
}

/// Code that surfaces share is above them, not in one of them.
#[test]
fn a_surface_names_nothing_of_another() {
    const SURFACES: [&str; 3] = ["admin", "kserve", "tfs"];
    let (mut faults, mut files) = (Vec::new(), 0);
    for (path, text) in sources_of_modules().iter().filter(|(path, _)| path.starts_with("api")) {
        let Some(own) = SURFACES.into_iter().find(|surface| path.starts_with(Path::new("api").join(surface))) else {
            continue;
        };
        files += 1;
        let code = code(text);
        for after in begins(&code, "crate").filter_map(|after| after.strip_prefix("api::")) {
            let others = named(after).into_iter().filter(|name| *name != own && SURFACES.contains(&name.as_str()));
            faults.extend(others.map(|other| format!("{}: {own} names {other}", path.display())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(files > 40, "the test sees the files of surfaces");
}

#[test]
fn crates_are_imported_only_by_their_assigned_modules() {
    let mut faults = Vec::new();
    for (krate, homes) in table("@") {
        for (path, text) in sources_of_modules() {
            let code = code(&text);
            let is_named = begins(&code, &krate).next().is_some() || code.contains(&format!("use {krate};"));
            let home = module(&path).is_some_and(|module| homes.contains(&module));
            if is_named && !home {
                faults.push(format!("{}: {krate} lives in {homes:?}", path.display()));
            }
        }
        for folder in ["crates/core/src", "crates/files/src", "crates/sync/src", "crates/wasm/src"] {
            for (path, text) in sources(folder) {
                let lives_here = folder == "crates/wasm/src" && HOST.contains(&krate.as_str());
                if begins(&code(&text), &krate).next().is_some() && !lives_here {
                    faults.push(format!("{folder}/{}: {krate} lives in {homes:?}", path.display()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_core_uses_no_io_threads_clocks_or_dependencies() {
    const WORLD: [&str; 20] = [
        "std::thread",
        "std::io",
        "std::fs",
        "std::net",
        "std::env",
        "std::process",
        "Mutex",
        "RwLock",
        "Condvar",
        "mpsc",
        "Atomic",
        "OnceLock",
        "LazyLock",
        "Instant",
        "SystemTime",
        "print!",
        "println!",
        "eprintln!",
        "dbg!",
        "rand::",
    ];
    let mut faults = Vec::new();
    for (path, text) in sources("crates/core/src") {
        let code = code(&text);
        for word in WORLD.iter().filter(|word| code.contains(**word)) {
            faults.push(format!("crates/core/src/{}: {word}", path.display()));
        }
    }
    assert!(faults.is_empty(), "the core takes events and a time, and touches nothing:\n{}", faults.join("\n"));
    let manifest = fs::read_to_string(root().join("crates/core/Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    assert!(!manifest.contains_key("dependencies"), "the core needs the standard library only");
}

/// Components of any world run in `crates/wasm`, so it may not know any world. A new world must need no change there.
#[test]
fn the_component_host_mentions_no_plugin_world() {
    const OF_A_WORLD: [&str; 6] = ["schedul", "sequor_core", "candidate", "fn plan", "fn admit", "fn observe"];
    let mut faults = Vec::new();
    for (path, text) in sources("crates/wasm/src") {
        // Comments count too: explanations about a world belong to that world.
        let text = text.to_lowercase();
        for word in OF_A_WORLD.iter().filter(|word| text.contains(**word)) {
            faults.push(format!("crates/wasm/src/{}: {word}", path.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_source_file_starts_with_a_module_comment() {
    let folders = [
        "crates/core/src",
        "crates/core/tests",
        "crates/files/src",
        "crates/proto/src",
        "crates/proto/tests",
        "crates/sync/src",
        "crates/wasm/src",
        "xtask/src",
        "tests",
        "examples",
    ];
    let files = folders
        .iter()
        .chain(&PACKAGES)
        .flat_map(|f| sources(f).into_iter().map(move |(path, text)| (format!("{f}/{}", path.display()), text)));
    let silent: Vec<String> = files.filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path).collect();
    assert!(silent.is_empty(), "these files do not open with what lives in them: {silent:?}");
}

#[test]
fn main_rs_has_at_most_60_lines() {
    let lines = fs::read_to_string(root().join("src/main.rs")).unwrap().lines().count();
    assert!(lines <= 60, "src/main.rs has {lines} lines: what it does belongs into the library");
}

// === tests of these checks ===

#[test]
fn imports_against_the_order_are_found() {
    let order = ["low", "middle", "high"].map(str::to_owned);
    let faults = |text: &str| against_the_order(Path::new("a/middle/b.rs"), text, "a", &order).len();
    assert_eq!(faults("use crate::a::low::X;\nuse crate::a::middle::Y;\nuse super::c::Z;\nuse crate::b::W;\n"), 0);
    assert_eq!(faults("use crate::a::high::X;\n"), 1);
    assert_eq!(faults("fn f() { crate::a::{low::X, high::Y}; }\n"), 1);
    assert_eq!(faults("use crate::a::Face;\n"), 1);
    assert_eq!(faults("use crate::{a::low, b};\n"), 1);
    assert_eq!(faults("use super::super::low::X;\n"), 1);
    assert_eq!(faults("#[cfg(test)]\nmod tests {\n    use crate::a::high::X;\n}\n"), 0);
    assert_eq!(against_the_order(Path::new("a/other/b.rs"), "", "a", &order).len(), 1);
    assert!(against_the_order(Path::new("a/mod.rs"), "use high::X;\n", "a", &order).is_empty());
    assert!(against_the_order(Path::new("a/tests/b.rs"), "use crate::a::high::X;\n", "a", &order).is_empty());
    let faults = |text: &str| against_the_order(Path::new("a/b/middle/c.rs"), text, "a/b", &order).len();
    assert_eq!(faults("use crate::a::b::low::X;\nuse crate::a::c::Y;\nuse super::d::Z;\nuse crate::e::W;\n"), 0);
    assert_eq!(faults("use crate::a::b::high::X;\n"), 1);
    assert_eq!(faults("use crate::a::b::Face;\n"), 1);
    assert_eq!(faults("use crate::a::{b::high::X, c};\n"), 1);
    assert_eq!(faults("use crate::{a::b::low, c};\n"), 1);
    assert_eq!(faults("use super::super::low::X;\n"), 1);
}

#[test]
fn crate_paths_and_super_climbs_are_found_in_source_text() {
    let text = "use crate::a::{b, c};\nlet x = crate::d::y(); // crate::e\nuse crate::{f, g::{h, i}, j};\nat(\"http://crate::k\")\n$crate::l\n";
    let code = code(text);
    let names: Vec<String> = begins(&code, "crate").flat_map(named).collect();
    assert_eq!(names, ["a", "d", "f", "g", "j", "k"]);
    assert_eq!(begins("tonic::x atonic::y x::tonic::z (tonic::w", "tonic").collect::<Vec<_>>().len(), 2);
    let climbs = |path: &str, code: &str| climbs(Path::new(path), code);
    assert_eq!(climbs("a.rs", "use super::b;"), [(1, 1)]);
    assert_eq!(climbs("a/mod.rs", "use super::b;"), [(1, 1)]);
    assert_eq!(climbs("a/b.rs", "use super::super::c;"), [(2, 2)]);
    assert_eq!(climbs("a.rs", "mod tests {\n    use super::super::b;\n}"), [(0, 2), (2, 2), (0, 1)]);
}
