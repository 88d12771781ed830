//! The scripts of `tests/python`, run by the interpreter that `cargo xtask test` prepares: with Triton's own clients, and ONNX Runtime to
//! hold answers against. Without that interpreter a test fails; it never passes for want of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{Server, root};

/// What `cargo xtask test` put into the environment.
pub(crate) fn prepared(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable);
    value.map_or_else(|| panic!("${variable} is not set: run `cargo xtask test`, which prepares it"), PathBuf::from)
}

/// Runs a program of Python's to its end; its standard output.
pub(crate) fn run(script: &Path, arguments: &[String]) -> String {
    let mut command = Command::new(prepared("SEQUOR_PYTHON"));
    command.arg(script).args(arguments).current_dir(root());
    command.env("SEQUOR_SOUNDS", prepared("SEQUOR_SOUNDS")).env("PYTHONDONTWRITEBYTECODE", "1");
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let [stdout, stderr] = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success(), "{}: {}\n{stdout}{stderr}", script.display(), done.status);
    stdout
}

/// Runs a script of `tests/python` against a server, and prints what it counted.
pub(crate) fn check(script: &str, server: &Server) {
    check_with(script, server, &[]);
}

/// The same, with more arguments.
pub(crate) fn check_with(script: &str, server: &Server, more: &[&str]) {
    let addresses = [("--grpc", server.grpc), ("--http", server.http), ("--metrics", server.metrics)];
    let addresses = addresses.iter().flat_map(|(flag, at)| [(*flag).to_owned(), at.to_string()]);
    let arguments: Vec<String> = addresses.chain(more.iter().map(|argument| (*argument).to_owned())).collect();
    print!("{}", run(&root().join("tests/python").join(script), &arguments));
}
