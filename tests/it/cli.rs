//! Tests the exact text of `--help`, so that a changed flag shows the text that users will read.

use insta::assert_snapshot;

use crate::server::{Call, models};

fn help(arguments: &[&str]) -> String {
    let message = Call::sequor().arguments(arguments).arguments(["--help"]).end();
    assert_eq!((message.code, message.stderr.as_str()), (Some(0), ""));
    message.stdout
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

/// As behind `| head`, once that has read what it wants.
#[test]
fn a_command_whose_reader_has_gone_ends_without_a_message() {
    let server = Call::serve(models()).start();
    let repository = models();
    let commands: [&[&str]; 7] = [
        &["config", "show"],
        &["config", "show", "--output", "json"],
        &["runtime", "path"],
        &["check", repository.to_str().unwrap()],
        &["migrate", repository.to_str().unwrap()],
        &["status"],
        &["model", "list", "--output", "json"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let call = Call::sequor().environment("SEQUOR_SERVER", server.admin.unwrap().to_string());
        let ended = call.arguments(arguments).writing_to(writer).end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(141), ""), "{arguments:?}");
    }
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let help = help(&[]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.contains(&"serve") && !commands.contains(&"man"), "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let message = Call::sequor().arguments(["completions", shell]).end();
        assert_eq!((message.code, message.stderr.as_str()), (Some(0), ""), "{shell}");
        for command in &commands {
            assert!(message.stdout.contains(command), "{shell}: {command}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let message = Call::sequor().arguments(["man".as_ref(), folder.path().as_os_str()]).end();
    assert_eq!(message.code, Some(0), "{}", message.stderr);
    for command in &commands {
        let page = folder.path().join(format!("sequor-{command}.1"));
        assert!(std::fs::read_to_string(page).unwrap().contains(".TH"), "{command}");
    }
}

#[test]
fn the_version_flag_prints_the_package_version() {
    let message = Call::sequor().arguments(["--version"]).end();
    assert_eq!((message.code, message.stdout.as_str()), (Some(0), concat!("sequor ", env!("CARGO_PKG_VERSION"), "\n")));
}
