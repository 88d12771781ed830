//! `sequor demo`: it brings its own model and sounds, so it runs in an empty folder.

use crate::server::Call;

#[test]
fn the_demo_comes_out_as_it_should() {
    let demo = Call::sequor().arguments(["demo"]).end();
    assert_eq!(demo.code, Some(0), "{demo:?}");
    let last: Vec<&str> = demo.stdout.lines().rev().take(2).collect();
    assert!(last[0].ends_with("equal to ONNX Runtime on the whole file, bit for bit       OK"), "{}", demo.stdout);
    assert!(last[1].starts_with("8 sequences of 4 clients, 1120 steps, "), "{}", demo.stdout);
    assert_eq!(demo.stderr, "");
    print!("{}", demo.stdout);
}
