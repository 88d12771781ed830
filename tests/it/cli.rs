//! What `--help` says, word for word: whoever changes a flag sees here what its users will.

use insta::assert_snapshot;

use crate::server::Call;

fn help(arguments: &[&str]) -> String {
    let said = Call::sequor().arguments(arguments).arguments(["--help"]).end();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    said.stdout
}

#[test]
fn the_programs_help() {
    assert_snapshot!(help(&[]));
}

#[test]
fn help_of_serve() {
    assert_snapshot!(help(&["serve"]));
}

#[test]
fn help_of_check() {
    assert_snapshot!(help(&["check"]));
}

#[test]
fn help_of_demo() {
    assert_snapshot!(help(&["demo"]));
}

#[test]
fn help_of_runtime() {
    let pages: Vec<String> = [&["runtime"][..], &["runtime", "install"], &["runtime", "path"]].map(help).into();
    assert_snapshot!(pages.join("\n=====\n"));
}

#[test]
fn the_version_is_the_packages() {
    let said = Call::sequor().arguments(["--version"]).end();
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), concat!("sequor ", env!("CARGO_PKG_VERSION"), "\n")));
}
