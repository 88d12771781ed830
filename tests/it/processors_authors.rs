//! Runs the commands and sources of docs/plugins/write-a-processor.md.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::authors::typed;
use crate::plugins::post;
use crate::puppet::{PuppetOrder, PuppetProcessor};
use crate::python::prepared;
use crate::server::{Call, copy, models, root};

fn page() -> String {
    std::fs::read_to_string(root().join("docs/plugins/write-a-processor.md")).unwrap()
}

/// The first block of this kind in a section of the page.
fn block(section: &str, kind: &str) -> String {
    let page = page();
    let section = page.split_once(&format!("\n## {section}\n")).unwrap().1;
    let block = section.split_once(&format!("```{kind}\n")).unwrap().1;
    block.split_once("```").unwrap().0.to_owned()
}

fn commands(section: &str) -> Vec<String> {
    block(section, "sh").lines().map(str::to_owned).collect()
}

fn source(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn the_processor_page_builds_and_tests_a_processor() {
    let scratch = tempfile::tempdir().unwrap();
    // A unique name, because other tests build into the same folder.
    let lines: Vec<String> = commands("Ten minutes").iter().map(|line| line.replace("mine", "windows")).collect();
    let message = typed(&lines, scratch.path(), None);
    let folder = scratch.path().join("windows");
    assert_eq!(source(&folder, "src/lib.rs").split("\n#[cfg(test)]").next().unwrap(), block("In Rust", "rust"));
    let checked = "windows.wasm   ok   windows 0.1.0, processor 0.1.0, ";
    assert!(message.contains(checked) && message.contains("takes SAMPLES INT16[-1], gives y FP32[-1,1]"), "{message}");
    assert!(message.ends_with(&block("Ten minutes", "text")), "{message}");
    let more = ["cd windows", "sequor plugin bench --for 10ms", "sequor plugin inspect"].map(str::to_owned);
    let message = typed(&more, scratch.path(), None);
    assert!(message.contains("PRE us") && message.contains("clients   takes SAMPLES INT16[-1]"), "{message}");
    // A difference is reported by name and fails the command.
    let case = folder.join("cases/ramp.toml");
    let text = std::fs::read_to_string(&case).unwrap();
    std::fs::write(&case, text.replace("runs = 2", "runs = 3")).unwrap();
    let test = Call::sequor().environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE"));
    let ended = test.arguments(["plugin", "test"]).arguments([&folder]).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("packets of 7: the model runs 2 times; 3 are expected"), "{}", ended.stdout);
}

#[test]
fn the_processor_page_builds_and_tests_a_processor_in_python() {
    let scratch = tempfile::tempdir().unwrap();
    let new = ["sequor plugin new mine --world processor --lang python".to_owned()];
    typed(&new, scratch.path(), None);
    let folder = scratch.path().join("mine");
    assert_eq!(source(&folder, "plugin.py"), block("In Python", "python"));
    let lines = ["cd mine", "sequor plugin build", "sequor plugin check", "sequor plugin test"].map(str::to_owned);
    let message = typed(&lines, scratch.path(), None);
    assert!(message.contains("takes SAMPLES INT16[-1], gives y FP32[-1,1]"), "{message}");
    assert!(message.ends_with(&block("Ten minutes", "text")), "{message}");
    let mut unittest = Command::new(prepared("SEQUOR_PYTHON"));
    unittest.args(["-m", "unittest", "--quiet"]).current_dir(&folder).env("PYTHONPATH", folder.join("sdk"));
    assert!(unittest.status().unwrap().success());
}

/// Runs the case of a guest in the tree. Returns the output.
fn case(guest: &str, case: &str) -> String {
    let test = Call::sequor().environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE")).arguments(["plugin", "test"]);
    let test = test.arguments([prepared("SEQUOR_GUESTS").join(format!("{guest}.wasm")), "--case".into()]);
    let ended = test.arguments([root().join("plugins").join(case)]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

#[test]
fn a_case_shows_the_instances_that_a_failed_call_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    let (component, case) = (scratch.path().join("puppet.wasm"), scratch.path().join("case.toml"));
    std::fs::write(&component, PuppetProcessor::default().component()).unwrap();
    let value = PuppetOrder::Trap.value();
    let text = format!(
        "packets = [1, \"whole\"]\n[model.inputs.INPUT]\ntype = \"INT32\"\nshape = [-1, 1]\n\
         [model.outputs.OUTPUT]\ntype = \"INT32\"\nshape = [-1, 1]\n[send]\nINPUT = [{value}]\n"
    );
    std::fs::write(&case, text).unwrap();
    let test = || {
        let test = Call::sequor().environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE")).arguments(["plugin", "test"]);
        test.arguments([component.as_os_str(), "--case".as_ref(), case.as_os_str()])
    };
    let ended = test().end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for packets in ["1", "whole"] {
        let line = format!("\n  packets of {packets}: 1 instance was replaced after a call that failed\n");
        assert!(ended.stdout.contains(&line), "{ended:?}");
    }
    let ended = test().arguments(["--output", "json"]).end();
    let cases: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(cases[0]["packets"][0]["replaced"], json!({ "memory": 0, "failed_call": 1 }), "{cases:#}");
}

#[test]
fn token_ids_become_text() {
    let message = case("token-text", "guests-python/token-text/cases/hello.toml");
    assert!(message.contains("hello.toml   ok"), "{message}");
}

#[test]
fn audio_in_packets_of_any_size_gives_the_same_windows() {
    let message = case("pcm-window", "guests/pcm-window/cases/speech.toml");
    assert!(message.contains("speech.toml   ok") && message.matches("  188  ").count() == 5, "{message}");
}

#[test]
fn plugin_dev_serves_each_change_and_restores_the_previous_processor() {
    let (cache, scratch) = (prepared("SEQUOR_CACHE"), tempfile::tempdir().unwrap());
    let folder = scratch.path().join("halved");
    typed(&["sequor plugin new halved --world processor".to_owned()], scratch.path(), None);
    let source = folder.join("src/lib.rs");
    let text = std::fs::read_to_string(&source).unwrap().replace("\"x\"", "\"INPUT\"").replace("\"y\"", "\"OUTPUT\"");
    std::fs::write(&source, &text).unwrap();
    typed(&["cd halved".to_owned(), "sequor plugin build".to_owned()], scratch.path(), None);
    let call = Call::serve("models").environment("SEQUOR_CACHE", &cache).environment("SEQUOR_PLUGINS_TIME", "1s");
    let model = call.folder.path().join("models/accumulator_fp32");
    copy(&models().join("accumulator_fp32"), &model);
    let settings = "[[plugins.processor]]\nuse = \"halved\"\ntime = \"1s\"\nconfig = { window = 1 }\n";
    std::fs::write(model.join("sequor.toml"), settings).unwrap();
    let plugins = call.folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::copy(folder.join("halved.wasm"), plugins.join("halved.wasm")).unwrap();
    let server = call.environment("SEQUOR_PLUGINS_DIR", &plugins).start();
    let answer = || {
        let input = json!({ "name": "SAMPLES", "shape": [1], "datatype": "INT16", "data": [16384] });
        let parameters = json!({ "sequence_id": 7, "sequence_start": true });
        let body = json!({ "parameters": parameters, "inputs": [input] });
        let answer = post(server.http, "/v2/models/accumulator_fp32/infer", &body);
        answer["outputs"][0]["data"][0].as_f64().unwrap_or_else(|| panic!("{answer}"))
    };
    assert_eq!(answer(), 0.5);
    let dev = Call::sequor().arguments(["plugin", "dev", "--model", "accumulator_fp32"]).arguments([&folder]);
    let dev = dev.environment("SEQUOR_SERVER", server.admin.unwrap().to_string());
    let mut dev = dev.environment("CARGO_TARGET_DIR", cache.join("target")).environment("SEQUOR_CACHE", &cache).begin();
    dev.wait_for("halved ").expect("it serves");
    std::fs::write(&source, text.replace("/ 32768.0", "/ 16384.0")).unwrap();
    dev.wait_for("halved ").expect("it serves the change");
    assert_eq!(answer(), 1.0);
    dev.terminate();
    let ended = dev.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.ends_with("halved prepares requests of accumulator_fp32 as before\n"), "{}", ended.stdout);
    assert_eq!(answer(), 0.5);
}
