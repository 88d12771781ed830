//! Runs the commands and sources of docs/plugins/write-an-initializer.md.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::authors::typed;
use crate::plugins::post;
use crate::python::prepared;
use crate::server::{Call, copy, models, root};

/// The first block of this kind in a section of the page.
fn block(section: &str, kind: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/plugins/write-an-initializer.md")).unwrap();
    let section = page.split_once(&format!("\n## {section}\n")).unwrap().1;
    let block = section.split_once(&format!("```{kind}\n")).unwrap().1;
    block.split_once("```").unwrap().0.to_owned()
}

fn source(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn the_initializer_page_builds_and_tests_an_initializer() {
    let scratch = tempfile::tempdir().unwrap();
    // A unique name, because other tests build into the same folder.
    let lines = block("Ten minutes", "sh").replace("mine", "begins");
    let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    let message = typed(&lines, scratch.path(), None);
    let folder = scratch.path().join("begins");
    assert_eq!(source(&folder, "src/lib.rs").split("\n#[cfg(test)]").next().unwrap(), block("In Rust", "rust"));
    assert!(message.contains("begins.wasm   ok   begins 0.1.0, state-initializer 0.1.0, "), "{message}");
    assert!(message.ends_with(&block("Ten minutes", "text")), "{message}");
    let more = ["cd begins", "sequor plugin bench --for 10ms", "sequor plugin inspect"].map(str::to_owned);
    let message = typed(&more, scratch.path(), None);
    assert!(message.contains("initialize") && message.contains("model     states total FP32[1]"), "{message}");
    // A difference is reported by name and fails the command.
    let case = folder.join("cases/tenants.toml");
    let text = std::fs::read_to_string(&case).unwrap();
    std::fs::write(&case, text.replace("total = [100]", "total = [99]")).unwrap();
    let test = Call::sequor().environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE"));
    let ended = test.arguments(["plugin", "test"]).arguments([&folder]).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("state \"total\": 1 of 1 elements differ, the first at 0"), "{}", ended.stdout);
}

#[test]
fn the_initializer_page_builds_and_tests_an_initializer_in_python() {
    let scratch = tempfile::tempdir().unwrap();
    typed(&["sequor plugin new mine --world state-initializer --lang python".to_owned()], scratch.path(), None);
    let folder = scratch.path().join("mine");
    assert_eq!(source(&folder, "plugin.py"), block("In Python", "python"));
    let lines = ["cd mine", "sequor plugin build", "sequor plugin check", "sequor plugin test"].map(str::to_owned);
    let message = typed(&lines, scratch.path(), None);
    assert!(message.ends_with(&block("Ten minutes", "text")), "{message}");
    let mut unittest = Command::new(prepared("SEQUOR_PYTHON"));
    unittest.args(["-m", "unittest", "--quiet"]).current_dir(&folder).env("PYTHONPATH", folder.join("sdk"));
    assert!(unittest.status().unwrap().success());
}

#[test]
fn the_initializer_page_shows_the_source_of_the_prompt_plugin() {
    let guest = std::fs::read_to_string(root().join("plugins/guests/prompt/src/lib.rs")).unwrap();
    assert!(guest.contains(&block("Steps that are kept", "rust")));
}

#[test]
fn plugin_dev_serves_each_change_and_restores_the_previous_initializer() {
    let (cache, scratch) = (prepared("SEQUOR_CACHE"), tempfile::tempdir().unwrap());
    let folder = scratch.path().join("first");
    typed(&["sequor plugin new first --world state-initializer".to_owned()], scratch.path(), None);
    let source = folder.join("src/lib.rs");
    let text = std::fs::read_to_string(&source).unwrap().replace("\"total\"", "\"INPUT_STATE\"");
    let text = text.replace(
        "None => FirstState::Default",
        "None => FirstState::states([(\"INPUT_STATE\", Tensor::new(&[1], &[1f32]))])",
    );
    std::fs::write(&source, &text).unwrap();
    typed(&["cd first".to_owned(), "sequor plugin build".to_owned()], scratch.path(), None);
    let call = Call::serve("models").environment("SEQUOR_CACHE", &cache).environment("SEQUOR_PLUGINS_TIME", "1s");
    let model = call.folder.path().join("models/sum_fp32");
    copy(&models().join("accumulator_fp32"), &model);
    std::fs::copy(root().join("tests/models/sum_fp32.onnx"), model.join("1/model.onnx")).unwrap();
    let config = "backend: \"onnxruntime\" max_batch_size: 8
        input [ { name: \"INPUT\" data_type: TYPE_FP32 dims: [ 1 ] } ]
        output [ { name: \"OUTPUT\" data_type: TYPE_FP32 dims: [ -1 ] } ]
        sequence_batching { oldest { max_candidate_sequences: 16 } state [ {
            input_name: \"INPUT_STATE\" output_name: \"OUTPUT_STATE\" data_type: TYPE_FP32 dims: [ 1 ] } ] }";
    std::fs::write(model.join("config.pbtxt"), config).unwrap();
    let settings = "[[feature]]\nname = \"tenant\"\nfrom = \"parameter\"\nkey = \"tenant\"\ntype = \"key\"\n\
                    [plugins.initializer]\nuse = \"first\"\ntime = \"1s\"\n";
    std::fs::write(model.join("sequor.toml"), settings).unwrap();
    let plugins = call.folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::copy(folder.join("first.wasm"), plugins.join("first.wasm")).unwrap();
    let server = call.environment("SEQUOR_PLUGINS_DIR", &plugins).start();
    let answer = || {
        let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [5] });
        let parameters = json!({ "sequence_id": 7, "sequence_start": true });
        let body = json!({ "parameters": parameters, "inputs": [input] });
        let answer = post(server.http, "/v2/models/sum_fp32/infer", &body);
        answer["outputs"][0]["data"][0].as_f64().unwrap_or_else(|| panic!("{answer}"))
    };
    assert_eq!(answer(), 6.0);
    let dev = Call::sequor().arguments(["plugin", "dev", "--model", "sum_fp32"]).arguments([&folder]);
    let dev = dev.environment("SEQUOR_SERVER", server.admin.unwrap().to_string());
    let mut dev = dev.environment("CARGO_TARGET_DIR", cache.join("target")).environment("SEQUOR_CACHE", &cache).begin();
    dev.wait_for("first ").expect("it serves");
    std::fs::write(&source, text.replace("&[1f32]", "&[2f32]")).unwrap();
    dev.wait_for("first ").expect("it serves the change");
    assert_eq!(answer(), 7.0);
    dev.terminate();
    let ended = dev.ended();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.ends_with("first begins sequences of sum_fp32 as before\n"), "{}", ended.stdout);
    assert_eq!(answer(), 6.0);
}
