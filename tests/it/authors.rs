//! Runs the commands and sources of the pages below docs/plugins, in the order of each page.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::plugins::{shown, step};
use crate::python::prepared;
use crate::server::{Call, Server, copy, models, root, runtime, sequor};

/// A page below docs/plugins.
fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(format!("docs/plugins/{name}.md"))).unwrap()
}

/// The text of a section.
fn section(name: &str, title: &str) -> String {
    let page = page(name);
    let begin = page.find(&format!("\n## {title}\n")).unwrap();
    let rest = &page[begin + 4..];
    rest[..rest.find("\n## ").unwrap_or(rest.len())].to_owned()
}

/// The files that a section shows: path and text.
fn files(section: &str) -> Vec<(&str, &str)> {
    let blocks = section.split("```").skip(1).step_by(2);
    let files = blocks.filter_map(|block| {
        let (info, text) = block.split_once('\n')?;
        Some((info.split_once(" file=")?.1, text))
    });
    files.collect()
}

/// The commands of a section.
fn commands(section: &str) -> Vec<String> {
    let blocks = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.flat_map(str::lines).map(str::to_owned).filter(|line| !line.is_empty()).collect()
}

/// The words of a command in a sentence of the pages that begins with this text, without the program's name.
fn within_a_sentence(begin: &str) -> Vec<String> {
    let pages = page("tutorial") + &page("scheduler");
    let mut codes = pages.split('`').skip(1).step_by(2);
    let line = codes.find(|code| code.starts_with(&format!("sequor {begin} "))).unwrap_or_else(|| panic!("{begin}"));
    line.split_whitespace().skip(1).map(str::to_owned).collect()
}

/// Runs commands one after the other in a shell, and returns their output.
pub(crate) fn typed(commands: &[String], folder: &Path, server: Option<&Server>) -> String {
    let bin = |program: &Path| program.parent().unwrap().display().to_string();
    let (sequor, node) = (bin(sequor()), bin(&prepared("SEQUOR_NODE")));
    let path = format!("{sequor}:{node}:{}", std::env::var("PATH").unwrap());
    let script = format!("set -e\n{}\n", commands.join("\n"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder).env("PATH", path).env("ORT_DYLIB_PATH", runtime());
    let cache = prepared("SEQUOR_CACHE");
    // The tests build the same code repeatedly, so the compiler's results are kept.
    shell.env("CARGO_TARGET_DIR", cache.join("target")).env("SEQUOR_CACHE", cache);
    if let Some(server) = server {
        shell.env("SEQUOR_SERVER", server.admin.unwrap().to_string());
    }
    let ended = shell.output().unwrap();
    let message = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ended.status.success(), "{script}\n{}\n{}", message(&ended.stdout), message(&ended.stderr));
    message(&ended.stdout)
}

#[test]
fn the_tutorial_builds_attaches_and_replaces_a_scheduler() {
    let (scratch, mut lines) = (tempfile::tempdir().unwrap(), commands(&section("tutorial", "Ten minutes")));
    let serve = lines.iter().position(|line| line.starts_with("sequor serve")).unwrap();
    let call = Call::serve("models").arguments(lines.remove(serve).split_whitespace().skip(4));
    copy(&models().join("accumulator_int32"), &call.folder.path().join("models/accumulator_int32"));
    let server = call.start();
    let message = typed(&lines, scratch.path(), Some(&server));
    assert!(message.contains("mine.wasm   ok   mine 0.1.0, scheduler 0.1.0"), "{message}");
    assert!(message.contains("cases/burst.toml   ok"), "{message}");
    let built = typed(&["cd mine".to_owned(), "sequor plugin build --output json".to_owned()], scratch.path(), None);
    let built: serde_json::Value = serde_json::from_str(&built).unwrap();
    assert!(built[0]["file"] == "./mine.wasm" && built[0]["bytes"].as_u64().unwrap() > 1000, "{built}");
    let component = std::fs::read(scratch.path().join("mine/mine.wasm")).unwrap();
    let has = |text: &str| component.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(
        !has("/.cargo/registry/") && !has(prepared("SEQUOR_CACHE").to_str().unwrap()),
        "it names folders of this machine"
    );
    assert!(
        message.contains("mine 0.2.0") && message.contains("mine 0.1.0") && message.contains("is back"),
        "{message}"
    );
}

/// Runs a language's page from a new folder to a plug-in that is removed again. A sequence lives meanwhile: whenever another version
/// decides, it takes a step, and its sums stay right.
fn the_whole_loop(language: &str) {
    let call = Call::serve("models").arguments(["--admin-upload=true"]);
    let call = call.environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE")).environment("SEQUOR_DRAIN_FINISH", "0s");
    // The time of a version must not matter on a slow machine.
    let call = call.environment("SEQUOR_PLUGINS_TIME", "1s");
    let model = call.folder.path().join("models/accumulator_int32");
    copy(&models().join("accumulator_int32"), &model);
    std::fs::write(model.join("sequor.toml"), "schema = 1\n[sequence]\nidle = \"1h\"\n").unwrap();
    let server = call.start();
    assert_eq!(step(server.http, 7, 1, true), 1);
    let (scratch, mut folder, mut sum) = (tempfile::tempdir().unwrap(), ".".to_owned(), 1);
    let mut message = String::new();
    for line in commands(&section(&language.to_lowercase(), language)).into_iter().filter(|line| line != "cd ..") {
        if let Some(into) = line.strip_prefix("cd ") {
            folder = into.to_owned();
            continue;
        }
        message += &typed(std::slice::from_ref(&line), &scratch.path().join(&folder), Some(&server));
        if ["attach", "replace", "rollback", "detach"]
            .iter()
            .any(|verb| line.starts_with(&format!("sequor plugin {verb} ")))
        {
            sum += 10;
            assert_eq!(step(server.http, 7, 10, false), sum, "{line}");
        }
        if line.starts_with("sequor plugin rollback ") {
            let at = shown(&server, &folder)["attached"][0].clone();
            assert_eq!(
                (&at["state"], &at["fallbacks"], &at["strikes"]),
                (&json!("active"), &json!(0), &json!(0)),
                "{at}"
            );
            assert!(at["calls"].as_u64().unwrap() >= 3, "each version was asked: {at}");
        }
    }
    let checked = format!("{folder}.wasm   ok   {folder} 0.1.0, scheduler 0.1.0");
    assert!(message.contains(&checked) && message.contains("cases/burst.toml   ok"), "{message}");
    assert!(message.contains(&format!("{folder} 0.2.0")) && message.contains("is back"), "{message}");
    // In C, a log line with a name in it is too long for a template.
    assert!(language == "C" || message.contains("deciding for accumulator_int32 1"), "it writes to its log: {message}");
}

#[test]
fn the_tutorials_own_policy_is_tested_and_built() {
    let (scratch, own) = (tempfile::tempdir().unwrap(), section("tutorial", "A policy of your own"));
    typed(&["sequor plugin new own --lang rust".to_owned()], scratch.path(), None);
    let folder = scratch.path().join("own");
    let files = files(&own);
    assert_eq!(files.iter().map(|(path, _)| *path).collect::<Vec<_>>(), ["src/lib.rs", "more.toml"]);
    files.iter().for_each(|(path, text)| std::fs::write(folder.join(path), text).unwrap());
    let output = typed(&commands(&own), &folder, None);
    assert!(output.contains("a_request_that_cannot_be_answered_in_time_is_shed ... ok"), "{output}");
    assert!(output.contains("own.wasm   ok   own 0.1.0, scheduler 0.1.0"), "{output}");
}

#[test]
fn the_language_page_builds_attaches_and_replaces_a_scheduler_in_python() {
    the_whole_loop("Python");
}

/// Under `cargo xtask test --all-languages`.
#[test]
fn the_language_page_builds_attaches_and_replaces_a_scheduler_in_javascript() {
    the_whole_loop("JavaScript");
}

/// Under `cargo xtask test --all-languages`.
#[test]
fn the_language_page_builds_attaches_and_replaces_a_scheduler_in_c() {
    the_whole_loop("C");
}

#[test]
fn plugin_dev_serves_each_change_and_restores_the_previous_scheduler() {
    let call = Call::serve("models").arguments(["--admin-upload=true"]);
    copy(&models().join("accumulator_int32"), &call.folder.path().join("models/accumulator_int32"));
    let server = call.start();
    let before = json!({ "config": { "MAX_BATCH_VOLUME_BYTES": 64 }, "time": "700ms" });
    crate::operator::load(&server, "volume", &crate::operator::guest("volume"));
    crate::operator::attach(&server, "volume", "accumulator_int32", before);
    let scratch = tempfile::tempdir().unwrap();
    // A unique name, because other tests build into the same folder.
    let folder = scratch.path().join("tended");
    // Built once before, so that the wait below covers a change and not a language's library.
    let new = ["sequor plugin new tended", "cd tended", "sequor plugin build"].map(str::to_owned);
    typed(&new, scratch.path(), None);
    let cache = prepared("SEQUOR_CACHE");
    let dev = Call::sequor().arguments(within_a_sentence("plugin dev")).arguments([&folder]);
    let dev = dev.environment("SEQUOR_SERVER", server.admin.unwrap().to_string());
    let mut dev = dev.environment("CARGO_TARGET_DIR", cache.join("target")).environment("SEQUOR_CACHE", &cache).begin();
    let first = dev.wait_for("tended-dev ").expect("it serves");
    let source = folder.join("src/lib.rs");
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, text.replace("deciding for", "deciding now for")).unwrap();
    let second = dev.wait_for("tended-dev ").expect("it serves the change");
    assert_ne!(first.get(..18), second.get(..18), "another component");
    dev.terminate();
    let ended = dev.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.ends_with("volume decides for accumulator_int32 again\n"), "{}", ended.stdout);
    let list = Call::sequor().arguments(["plugin", "list", "--output", "json"]);
    let list = list.environment("SEQUOR_SERVER", server.admin.unwrap().to_string()).end();
    let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap_or_else(|e| panic!("{e}: {}", list.stderr));
    let names: Vec<_> = list.as_array().unwrap().iter().map(|plugin| &plugin["name"]).collect();
    assert_eq!(names, ["volume"], "nothing is left of it: {list}");
    let at = &list[0]["attached"][0];
    assert_eq!((&at["model"], &at["time_us"]), (&json!("accumulator_int32"), &json!(700_000)), "as it was: {at}");
    assert_eq!(at["config"], "{\"MAX_BATCH_VOLUME_BYTES\":64}", "as it was: {at}");
}

#[test]
fn a_failed_round_can_be_replayed_with_the_same_and_a_fixed_version() {
    let cache = prepared("SEQUOR_CACHE");
    let call = Call::serve("models").arguments(["--admin-upload=true"]).environment("SEQUOR_CACHE", &cache);
    // The plug-in must fail by what it does, even on a slow machine.
    let call = call.environment("SEQUOR_PLUGINS_TIME", "5s");
    copy(&models().join("accumulator_int32"), &call.folder.path().join("models/accumulator_int32"));
    let server = call.start();
    crate::operator::load(&server, "bad", &crate::operator::guest("hostile-trap"));
    crate::operator::attach(&server, "bad", "accumulator_int32", json!({ "config": { "after": 0 } }));
    assert_eq!(step(server.http, 7, 1, true), 1, "no request is lost to it");
    let logs = || {
        let logs = Call::sequor().arguments(["plugin", "logs", "bad"]);
        logs.environment("SEQUOR_SERVER", server.admin.unwrap().to_string()).end().stdout
    };
    let line = loop {
        let message = logs();
        let found =
            message.lines().find_map(|line| line.split_once(" --replay-round ").map(|(_, rest)| rest.to_owned()));
        match found {
            Some(rest) => break rest,
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    let file = line.split(" --policy ").next().unwrap();
    let replay = |guest: &str| {
        let guest = prepared("SEQUOR_GUESTS").join(format!("{guest}.wasm")).display().to_string();
        let words = within_a_sentence("simulate --replay-round").into_iter().map(|word| match word.as_str() {
            "FILE" => file.to_owned(),
            "mine.wasm" => guest.clone(),
            _ => word,
        });
        Call::sequor().environment("SEQUOR_CACHE", &cache).arguments(words).end()
    };
    let same = replay("hostile-trap");
    assert!(same.code == Some(1) && same.stderr.contains("still at fault: trap"), "{same:?}");
    let fixed = replay("single");
    assert!(fixed.code == Some(0) && fixed.stdout.contains("the core takes it"), "{fixed:?}");
}

#[test]
fn plugin_check_tries_a_plugin_with_the_given_settings() {
    let check = |set: &str| {
        let guest = prepared("SEQUOR_GUESTS").join("fair-share.wasm");
        Call::sequor().arguments(["plugin", "check", "--set", set]).arguments([guest]).end()
    };
    let ended = check("weights.gold=3");
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let ended = check("weights.gold=0");
    assert!(ended.code == Some(3) && ended.stdout.contains("weights.gold must be above 0"), "{}", ended.stdout);
}

/// Under `cargo xtask test --all-languages`.
#[test]
fn a_plugin_that_calls_the_operating_system_is_refused_in_c() {
    let scratch = tempfile::tempdir().unwrap();
    typed(&["sequor plugin new loud --lang c".to_owned()], scratch.path(), None);
    let source = scratch.path().join("loud/plugin.c");
    let text = std::fs::read_to_string(&source).unwrap();
    std::fs::write(&source, format!("#include <stdio.h>\n{text}").replace("free(order);", "printf(\"done\\n\");"))
        .unwrap();
    let build = Call::sequor().arguments(["plugin", "build"]).arguments([scratch.path().join("loud")]);
    let ended = build.environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE")).end();
    let message = "loud/plugin.c: it calls an operating system (fd_close, ";
    assert!(ended.code == Some(1) && ended.stderr.contains(message), "{:?}: {}", ended.code, ended.stderr);
}
