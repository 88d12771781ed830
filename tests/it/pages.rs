//! Runs the commands of README and the pages of `docs/`, in the order of each page, and compares their output with what the page shows.
//!
//! The first line of a block decides how it is run:
//! - ```` ```sh run ````: a shell runs it. If a `text` block follows, that is its output; `…` matches any text, or any lines.
//! - ```` ```sh serve ````: starts the server for later blocks. It gets free ports, which replace the page's addresses.
//! - ```` ```python run ````: Python runs it.
//! - ```` ```toml file=PATH ````, in any language: the block is written to that file.
//!
//! A page runs in a separate folder, with copies of `models/` and `examples/`. Every other `sh` block must say `not run by the tests`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python::prepared;
use crate::server::{Call, Server, copy, models, root, runtime, sequor};

/// Pages whose commands another test runs.
const ELSEWHERE: [(&str, &str); 6] = [
    ("docs/plugins/tutorial.md", "authors.rs"),
    ("docs/plugins/python.md", "authors.rs"),
    ("docs/plugins/javascript.md", "authors.rs"),
    ("docs/plugins/c.md", "authors.rs"),
    ("docs/plugins/write-a-processor.md", "processors_authors.rs"),
    ("docs/plugins/write-an-initializer.md", "initializers_authors.rs"),
];

/// A fenced block.
struct Block {
    line: usize,
    /// The words after the opening fence.
    info: Vec<String>,
    text: String,
    /// The paragraph before it.
    before: String,
}

impl Block {
    fn is(&self, language: &str, word: &str) -> bool {
        self.info.first().is_some_and(|l| l == language) && self.info.iter().skip(1).any(|w| w == word)
    }

    fn file(&self) -> Option<&str> {
        self.info.iter().find_map(|word| word.strip_prefix("file="))
    }

    fn is_shell(&self) -> bool {
        self.info.first().is_some_and(|l| l == "sh")
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let (mut blocks, mut open, mut before, mut fresh) = (Vec::<Block>::new(), false, String::new(), true);
    for (n, line) in text.lines().enumerate() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            if !open {
                let info = info.split_whitespace().map(str::to_owned).collect();
                blocks.push(Block { line: n + 1, info, text: String::new(), before: std::mem::take(&mut before) });
                fresh = true;
            }
            open = !open;
        } else if open {
            let block = blocks.last_mut().unwrap();
            block.text.push_str(line);
            block.text.push('\n');
        } else if line.trim().is_empty() {
            fresh = true;
        } else {
            if std::mem::take(&mut fresh) {
                before.clear();
            }
            before.push_str(line);
            before.push(' ');
        }
    }
    blocks
}

/// The paths of all pages.
fn pages() -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|e| e == "md") {
                found.push(entry.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut found = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned(), "SECURITY.md".to_owned()];
    walk(&root().join("docs"), &mut found);
    found.retain(|page| root().join(page).is_file());
    found.sort();
    found
}

/// Whether a line matches the shown one, in which `…` matches any text.
fn fits(shown: &str, line: &str) -> bool {
    let (mut rest, mut first) = (line.trim_end(), true);
    let parts: Vec<&str> = shown.trim_end().split('…').collect();
    for (n, part) in parts.iter().enumerate() {
        let at = if first { rest.starts_with(part).then_some(0) } else { rest.find(part) };
        let at = if n > 0 && n + 1 == parts.len() { rest.ends_with(part).then(|| rest.len() - part.len()) } else { at };
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
        first = false;
    }
    rest.is_empty() || shown.ends_with('…')
}

/// Whether lines match the shown ones, in which a line `…` matches any lines.
fn all_fit(shown: &[&str], lines: &[&str]) -> bool {
    match (shown.split_first(), lines.split_first()) {
        (Some((&"…", rest)), Some((_, later))) => all_fit(rest, lines) || all_fit(shown, later),
        (Some((&"…", rest)), None) => all_fit(rest, lines),
        (Some((shown, rest)), Some((line, later))) => fits(shown, line) && all_fit(rest, later),
        (None, None) => true,
        _ => false,
    }
}

/// The folder, the server and the environment of a running page.
struct Reader {
    folder: tempfile::TempDir,
    server: Option<Server>,
}

impl Reader {
    fn new() -> Reader {
        let folder = tempfile::tempdir().unwrap();
        copy(&models(), &folder.path().join("models"));
        copy(&root().join("examples"), &folder.path().join("examples"));
        Reader { folder, server: None }
    }

    /// Replaces the page's addresses by those of its server.
    fn addressed(&self, text: &str) -> String {
        let Some(server) = &self.server else { return text.to_owned() };
        let at = [(8000, server.http), (8001, server.grpc), (8002, server.metrics), (8003, server.admin.unwrap())];
        at.iter().fold(text.to_owned(), |text, (port, address)| {
            text.replace(&format!("localhost:{port}"), &address.to_string())
                .replace(&format!("127.0.0.1:{port}"), &address.to_string())
        })
    }

    fn serve(&mut self, line: &str) {
        drop(self.server.take());
        let words = line.split_whitespace().collect::<Vec<_>>();
        assert_eq!(words[..2], ["sequor", "serve"], "{line}");
        let ports =
            ["--http-port", "--grpc-port", "--metrics-port", "--admin-port"].iter().flat_map(|flag| [*flag, "0"]);
        let mut call = Call::sequor().arguments(words[1..].iter().copied()).arguments(ports);
        call = call.arguments(["--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1"]);
        call.command.current_dir(self.folder.path());
        self.server = Some(call.environment("SEQUOR_DRAIN_ANNOUNCE", "0s").start());
    }

    /// Runs a program, which must succeed. Returns its output.
    fn run(&self, mut command: Command, text: &str) -> String {
        let python = prepared("SEQUOR_PYTHON");
        let bin = |program: &Path| program.parent().unwrap().to_path_buf();
        let mut path = vec![bin(sequor()), bin(&python), bin(&prepared("SEQUOR_NODE"))];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        command.current_dir(self.folder.path()).env("PATH", std::env::join_paths(path).unwrap());
        command.env("ORT_DYLIB_PATH", runtime()).env("PYTHONDONTWRITEBYTECODE", "1").env("COLUMNS", "100");
        command.env("SEQUOR_CACHE", prepared("SEQUOR_CACHE"));
        if let Some(server) = &self.server {
            command.env("SEQUOR_SERVER", server.admin.unwrap().to_string());
        }
        let ended = command.output().unwrap();
        let message = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(ended.status.success(), "{text}\n{}\n{}", message(&ended.stdout), message(&ended.stderr));
        message(&ended.stdout)
    }
}

/// Runs a page. Returns the number of blocks that ran.
fn read(page: &str) -> usize {
    let (blocks, mut reader, mut count) = (blocks(page), Reader::new(), 0);
    for (n, block) in blocks.iter().enumerate() {
        let printed = if let Some(file) = block.file() {
            let path: PathBuf = reader.folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, reader.addressed(&block.text)).unwrap();
            continue;
        } else if block.is("sh", "serve") {
            reader.serve(&block.text);
            count += 1;
            continue;
        } else if block.is("sh", "run") {
            let text = reader.addressed(&block.text);
            let mut shell = Command::new("bash");
            shell.args(["-e", "-o", "pipefail", "-c", &text]);
            reader.run(shell, &text)
        } else if block.is("python", "run") {
            let text = reader.addressed(&block.text);
            let mut python = Command::new(prepared("SEQUOR_PYTHON"));
            python.args(["-c", &text]);
            reader.run(python, &text)
        } else {
            continue;
        };
        count += 1;
        if let Some(shown) = blocks.get(n + 1).filter(|b| b.info.first().is_some_and(|l| l == "text" || l == "json")) {
            let [shown, printed] = [&shown.text, &printed].map(|text| text.trim_end().lines().collect::<Vec<_>>());
            let (shown_text, printed_text) = (shown.join("\n"), printed.join("\n"));
            assert!(
                all_fit(&shown, &printed),
                "{page}:{}: printed:\n{printed_text}\n--- the page shows:\n{shown_text}",
                block.line
            );
        }
    }
    count
}

macro_rules! read_pages {
    ($($name:ident: $page:literal,)*) => {
        /// The pages with their own tests.
        const READ: &[&str] = &[$($page),*];

        $(
            #[test]
            fn $name() {
                assert!(read($page) > 0, "{} has no block that runs", $page);
            }
        )*
    };
}

read_pages! {
    the_readme_runs: "README.md",
    clients_runs: "docs/clients.md",
    copying_a_state_runs: "docs/copy-a-state.md",
    exporting_runs: "docs/export-a-stateful-onnx.md",
    from_triton_runs: "docs/from-triton.md",
    logs_runs: "docs/logs.md",
    operate_runs: "docs/operate.md",
    quickstart_runs: "docs/quickstart.md",
    reloading_runs: "docs/reload.md",
    restarts_runs: "docs/restarts.md",
    retries_runs: "docs/retries.md",
    the_simulator_reference_runs: "docs/reference/simulate.md",
    troubleshooting_runs: "docs/troubleshoot.md",
    watching_runs: "docs/watch.md",
}

#[test]
fn every_command_block_is_run_or_marked_as_not_run() {
    let mut faults = Vec::new();
    for page in pages() {
        let blocks = blocks(&page);
        if blocks.iter().any(|b| b.is("sh", "run") || b.is("sh", "serve") || b.is("python", "run"))
            && !READ.contains(&page.as_str())
        {
            faults.push(format!("{page}: has blocks to run, and no test in this file"));
        }
        if ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == page) {
            continue;
        }
        for block in blocks.iter().filter(|b| b.is_shell()) {
            let runs = block.is("sh", "run") || block.is("sh", "serve");
            if !runs && !block.before.contains("not run by the tests") && !block.text.contains("not run by the tests") {
                faults.push(format!(
                    "{page}:{}: neither `run` nor `serve`, and no `not run by the tests` before it",
                    block.line
                ));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn output_is_compared_with_what_a_page_shows() {
    assert!(fits("ready in … s", "ready in 0.1 s") && fits("a …", "a b") && fits("abc", "abc  "));
    assert!(!fits("ready in … s", "ready in 0.1") && !fits("abc", "abcd") && !fits("bc", "abc"));
    assert!(all_fit(&["a", "…", "z"], &["a", "b", "c", "z"]) && all_fit(&["a", "…"], &["a"]));
    assert!(!all_fit(&["a", "…", "z"], &["a", "b"]) && !all_fit(&["a"], &["a", "b"]) && !all_fit(&["a"], &[]));
}
