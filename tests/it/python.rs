//! Runs the scripts of `tests/python` with the interpreter that `cargo xtask test` prepares. It has Triton's own clients, and ONNX Runtime
//! for comparison. Without the interpreter a test fails; it is never skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{Server, root};

/// A path from the environment that `cargo xtask test` sets.
pub(crate) fn prepared(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable);
    value.map_or_else(|| panic!("${variable} is not set: run `cargo xtask test`, which prepares it"), PathBuf::from)
}

/// Runs a Python script to its end. Returns its standard output.
pub(crate) fn run(script: &Path, arguments: &[String]) -> String {
    let mut command = Command::new(prepared("SEQUOR_PYTHON"));
    command.arg(script).args(arguments).current_dir(root());
    command.env("SEQUOR_SOUNDS", prepared("SEQUOR_SOUNDS")).env("PYTHONDONTWRITEBYTECODE", "1");
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let [stdout, stderr] = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success(), "{}: {}\n{stdout}{stderr}", script.display(), done.status);
    stdout
}

/// Runs a script of `tests/python` against a server, and prints its counts.
pub(crate) fn check(script: &str, server: &Server) {
    check_with(script, server, &[]);
}

/// Like [`check`], with more arguments.
pub(crate) fn check_with(script: &str, server: &Server, more: &[&str]) {
    let addresses = [("--grpc", server.grpc), ("--http", server.http), ("--metrics", server.metrics)];
    let addresses = addresses.iter().flat_map(|(flag, at)| [(*flag).to_owned(), at.to_string()]);
    let arguments: Vec<String> = addresses.chain(more.iter().map(|argument| (*argument).to_owned())).collect();
    print!("{}", run(&root().join("tests/python").join(script), &arguments));
}
