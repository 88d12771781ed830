//! Checks that every claim of `docs/dev/conformance.md` and `docs/reference/semantics.md` has a test: each `yes` and `partly` names tests,
//! and each named test exists.

use std::fs;
use std::path::PathBuf;

use crate::server::root;

struct Row {
    number: usize,
    status: String,
    tests: Vec<String>,
}

fn rows(page: &str) -> Vec<Row> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let [number, _, status, tests] = cells.as_slice() else { panic!("not four cells: {line}") };
        let tests = tests.split(',').map(|t| t.trim().trim_matches('`').to_owned()).filter(|t| !t.is_empty()).collect();
        Some(Row { number: number.parse().ok()?, status: (*status).to_owned(), tests })
    };
    text.lines().filter_map(row).collect()
}

/// The locations of tests: next to the sources of the packages, or in folders of test programs.
const PLACES: [&str; 16] = [
    "src",
    "crates/backend/src",
    "crates/config/src",
    "crates/core/src",
    "crates/core/tests",
    "crates/executor/src",
    "crates/files/src",
    "crates/model/src",
    "crates/plugins/src",
    "crates/server/src",
    "crates/state/src",
    "crates/telemetry/src",
    "crates/proto/tests",
    "crates/wasm/src",
    "tests",
    "xtask/src",
];

/// Whether this is a test: a script that some test runs, or the test function with this path.
fn is_there(test: &str) -> bool {
    if let Some(script) = test.strip_prefix("tests/python/") {
        return root().join(test).is_file() && is_run(script);
    }
    let parts: Vec<&str> = test.split("::").collect();
    let Some((name, modules)) = parts.split_last() else { return false };
    PLACES.iter().any(|place| {
        (1..=modules.len()).rev().any(|depth| {
            let (outer, inner) = modules.split_at(depth);
            files(place, outer).into_iter().filter_map(|file| fs::read_to_string(file).ok()).any(|text| {
                inner.iter().all(|module| text.contains(&format!("mod {module} {{"))) && has_test(&text, name)
            })
        })
    })
}

/// The files that may contain this module.
fn files(place: &str, modules: &[&str]) -> [PathBuf; 4] {
    let path = root().join(place).join(modules.iter().collect::<PathBuf>());
    // A test module named `tests` may be a file next to its subject, or in a folder of tests there, under the subject's name.
    let (beside, within) = match modules.split_last() {
        Some((&"tests", [.., name])) => {
            let subject = path.parent().unwrap_or(&path);
            let within = subject.with_file_name("tests").join(name).with_extension("rs");
            (subject.with_extension("").display().to_string() + "_tests.rs", within)
        }
        _ => (String::new(), PathBuf::new()),
    };
    [path.with_extension("rs"), path.join("mod.rs"), PathBuf::from(beside), within]
}

/// Whether the text has a test function with this name.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let begin = format!("fn {name}(");
    (0..lines.len()).any(|at| {
        lines[at].trim_start_matches("async ").starts_with(&begin)
            && lines[..at]
                .iter()
                .rev()
                .take_while(|line| line.starts_with("#["))
                .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    })
}

/// Whether one of these tests, or the recipe around them, runs a script.
fn is_run(script: &str) -> bool {
    let recipe = fs::read_to_string(root().join("xtask/src/test.rs")).unwrap();
    let ours = fs::read_dir(root().join("tests/it")).unwrap().map(|entry| entry.unwrap().path());
    recipe.contains(&format!("\"tests/python/{script}\""))
        || ours
            .filter_map(|file| fs::read_to_string(file).ok())
            .any(|text| text.contains(&format!("check(\"{script}\"")))
}

/// Checks every claim of a page against the tests. Returns the number of rows.
fn judge(page: &str) -> usize {
    let (mut faults, mut counts) = (Vec::new(), [0; 4]);
    let rows = rows(page);
    for (place, Row { number, status, tests }) in rows.iter().enumerate() {
        if *number != place + 1 {
            faults.push(format!("row {number} stands where row {} belongs", place + 1));
        }
        let Some(kind) = ["yes", "partly", "not yet", "no"].iter().position(|word| word == status) else {
            faults.push(format!("row {number}: \"{status}\" is no status"));
            continue;
        };
        counts[kind] += 1;
        match (kind, tests.is_empty()) {
            (0 | 1, true) => faults.push(format!("row {number}: {status}, and no test says so")),
            (2 | 3, false) => faults.push(format!("row {number}: {status}, and yet it names tests")),
            _ => {}
        }
        faults.extend(tests.iter().filter(|t| !is_there(t)).map(|t| format!("row {number}: there is no test {t}")));
    }
    assert!(faults.is_empty(), "{page}:\n{}", faults.join("\n"));
    let [yes, partly, not_yet, no] = counts;
    println!("{page}: {} rows: {yes} yes, {partly} partly, {not_yet} not yet, {no} no", rows.len());
    rows.len()
}

#[test]
fn every_claim_has_its_tests() {
    assert!(judge("docs/dev/conformance.md") >= 209);
}

#[test]
fn every_claim_on_the_semantics_page_has_its_tests() {
    assert!(judge("docs/reference/semantics.md") >= 20);
}

#[test]
fn tests_are_found_and_others_are_not() {
    let there = [
        "it::features::tests_are_found_and_others_are_not",
        "generated::checked_in_files_match_the_output_of_the_generator",
        "scenarios::a_batch_never_has_two_requests_of_a_sequence",
        "policies::direct::tests::all_that_are_alike_run_at_once",
        "config::model::tests::every_fault_of_a_configuration_alone_is_reported",
        "backend::onnx::tests::numbers::scalars_have_no_dimensions",
        "api::kserve::json::tests::ids_are_numbers_or_texts",
        "state::tests::every_way_to_bind_gives_each_sequence_its_own_last_committed_state",
        "server::tests::metrics_are_on_their_own_port",
        "tests/python/sums.py",
        "tests/python/models.py",
    ];
    let not = [
        "it::features::rows",
        "it::features::nothing",
        "features::tests_are_found_and_others_are_not",
        "config::model::every_fault_of_a_configuration_alone_is_reported",
        "policies::oldest::tests::all_that_are_alike_run_at_once",
        "tests/python/server.py",
        "tests/python/nothing.py",
        "nothing",
        "",
    ];
    assert_eq!(there.into_iter().filter(|test| !is_there(test)).collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(not.into_iter().filter(|test| is_there(test)).collect::<Vec<_>>(), Vec::<&str>::new());
}
