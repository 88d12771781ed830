//! Runs the examples as a user who copied them would.

use std::path::Path;
use std::process::Command;

use crate::python;
use crate::server::{BUILT, Server, root};

/// The last number of every line.
fn probabilities(printed: &str) -> Vec<f32> {
    printed.lines().map(|line| line.split_whitespace().last().unwrap().parse().unwrap()).collect()
}

/// Checks the result for the examples' six seconds of sound: silence at first, then speech.
fn assert_speech(printed: &str) {
    let heard = probabilities(printed);
    assert_eq!(heard.len(), 187, "{printed}");
    assert!(heard[0] < 0.1, "{printed}");
    assert!(heard.iter().all(|p| (0.0..=1.0).contains(p)), "{printed}");
    assert!(heard.iter().filter(|p| **p > 0.5).count() > 100, "{printed}");
}

#[test]
fn the_python_example_detects_speech() {
    let server = Server::of_models();
    assert_speech(&python::run(&root().join("examples/python/client.py"), &[server.grpc.to_string()]));
}

#[test]
fn the_ovms_client_examples_print_correct_sums() {
    let server = Server::of_models();
    for (script, address) in [("ovms_grpc.py", server.grpc), ("ovms_rest.py", server.http)] {
        let printed = python::run(&root().join("examples/python").join(script), &[address.to_string()]);
        assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), ["1", "2", "3", "4"], "{script}");
    }
}

#[test]
fn the_stateful_backend_client_examples_print_correct_sums() {
    let server = Server::of_models();
    for (script, address) in [("stateful_grpc.py", server.grpc), ("stateful_rest.py", server.http)] {
        let printed = python::run(&root().join("examples/python").join(script), &[address.to_string()]);
        assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), ["5", "9", "13", "17"], "{script}");
    }
}

#[test]
fn the_rust_example_detects_speech() {
    let example = Path::new(BUILT).parent().unwrap().join("examples/stream_speech");
    assert!(example.is_file(), "{} is not built: run `cargo xtask test`", example.display());
    let server = Server::of_models();
    let done = Command::new(example).arg(server.grpc.to_string()).current_dir(root()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_speech(&String::from_utf8(done.stdout).unwrap());
}
