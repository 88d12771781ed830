//! Tests the tree's processors on a real server, and operators' grants for them.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::operator::{ask, refused};
use crate::python::{self, prepared};
use crate::server::{Call, Server, root};
use crate::steps::{accumulators, metric, step, sum};
use sequor::processing::wat_guest::{ALIKE, WatGuest};

/// Writes a model with two BYTES inputs that returns each unchanged.
fn texts(model: &Path, sequor_toml: &str) {
    fs::create_dir_all(model.join("1")).unwrap();
    let tensor = |name: &str| format!(r#"{{ name: "{name}" data_type: TYPE_STRING dims: [ -1 ] }}"#);
    let config = format!(
        "backend: \"onnxruntime\" max_batch_size: 8 input [ {}, {} ] output [ {}, {} ]",
        tensor("INPUT"),
        tensor("INPUT_STATE"),
        tensor("OUTPUT"),
        tensor("OUTPUT_STATE")
    );
    fs::write(model.join("config.pbtxt"), config).unwrap();
    fs::write(model.join("sequor.toml"), sequor_toml).unwrap();
    fs::copy(root().join("tests/models/string_state.onnx"), model.join("1/model.onnx")).unwrap();
}

/// Sends a text to both inputs. Returns the status and the answer.
fn send(http: SocketAddr, text: &str) -> (u16, Value) {
    let tensor = |name: &str| json!({ "name": name, "shape": [1, 1], "datatype": "BYTES", "data": [text] });
    let body = json!({ "inputs": [tensor("INPUT"), tensor("INPUT_STATE")] }).to_string();
    let (status, text) = ask(http, "POST", "/v2/models/texts/infer", "application/json", body.as_bytes());
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

fn output<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let outputs = answer["outputs"].as_array().unwrap_or_else(|| panic!("{answer}"));
    &outputs.iter().find(|output| output["name"] == name).unwrap_or_else(|| panic!("{answer}"))["data"][0]
}

/// Waits until a series has a value, for at most a minute.
fn until(server: &Server, name: &str, labels: &[&str], is: impl Fn(f64) -> bool) {
    let began = Instant::now();
    while !is(metric(server, name, labels)) {
        assert!(began.elapsed() < Duration::from_secs(180), "{name}{labels:?} is {}", metric(server, name, labels));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn redact_drops_fields_and_its_memory_is_gone_with_its_model() {
    let call = Call::serve("repository").arguments(["--model-control-mode=explicit", "--load-model=*"]);
    let call = call.environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS"));
    let config = r#"config = { fields = ["email", "phone"], outputs = ["OUTPUT"] }"#;
    texts(
        &call.folder.path().join("repository/texts"),
        &format!("[[plugins.processor]]\nuse = \"redact\"\ntime = \"1s\"\n{config}\n"),
    );
    let server = call.start();
    let text = r#"{"name": "a", "email": "b", "calls": [{"phone": 1, "at": 2}, 3]}"#;
    let (status, answer) = send(server.http, text);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(output(&answer, "OUTPUT"), r#"{"calls":[{"at":2},3],"name":"a"}"#);
    assert_eq!(output(&answer, "OUTPUT_STATE"), text, "only the output that config names");
    let (status, answer) = send(server.http, "email: b");
    assert_eq!((status, &answer["reason"]), (412, &json!("plugin_rejected")), "{answer}");
    assert!(answer["error"].as_str().unwrap().starts_with("output \"OUTPUT\" of the model is no JSON"), "{answer}");
    assert!(!answer.to_string().contains("email: b"), "{answer}");
    // The gauges of an unloaded model are zero.
    let labels = ["plugin=\"redact\"", "model=\"texts\""];
    until(&server, "sequor_plugin_memory_bytes", &labels, |bytes| bytes > 0.0);
    let (status, text) = ask(server.http, "POST", "/v2/repository/models/texts/unload", "application/json", b"{}");
    assert_eq!(status, 200, "{text}");
    until(&server, "sequor_plugin_memory_bytes", &labels, |bytes| bytes == 0.0);
    assert_eq!(server.stop().code, Some(0));
}

/// Traps unless the server knows the client's id of the sequence, and the id has two digits.
const KNOWS_IDS: WatGuest<'_> = WatGuest {
    extra: "(import \"sequor:plugin/identity@0.1.0\" \"sequence-text\" (func $text (param i64 i32)))",
    configure: ALIKE,
    pre: "(call $text (local.get 0) (i32.const 800))
        (if (i32.eqz (i32.load8_u (i32.const 800))) (then unreachable))
        (if (i32.ne (i32.load (i32.const 808)) (i32.const 2)) (then unreachable))
        (call $run (local.get 11) (local.get 12) (i32.const 1))",
    post: "unreachable",
    manifest: "wants = [\"pre\"]\n",
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_for_the_plug_in_that_it_names() {
    let grant = "--plugins-grants=named=sequence-text";
    let call = Call::serve("repository").arguments(["--admin-upload=true", "--plugins-dir=plugins", grant]);
    let repository = call.folder.path().join("repository");
    accumulators(&repository, 8, 600_000_000);
    fs::create_dir_all(call.folder.path().join("plugins")).unwrap();
    let component = KNOWS_IDS.component();
    fs::write(call.folder.path().join("plugins/named.wasm"), &component).unwrap();
    fs::write(repository.join("oldest/sequor.toml"), "[[plugins.processor]]\nuse = \"named\"\ntime = \"1s\"\n")
        .unwrap();
    let server = call.start();
    let mut client = server.client().await;
    let answer = client.model_infer(step("oldest", 42, String::new(), 5, true, false)).await.unwrap().into_inner();
    assert_eq!(sum(&answer), Some(5));
    let status = client.model_infer(step("oldest", 421, String::new(), 5, true, false)).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Internal, "the plug-in reads the id itself: {status}");
    // The same component under another name has no grant.
    let refused = refused(&server, "/admin/plugins/other", &component);
    let sentence = "ids of sequences can be granted (plugins.grants = [\"other=sequence-text\"])";
    assert!(refused.to_lowercase().contains(sentence), "{refused}");
    drop(client);
    assert_eq!(server.stop().code, Some(0));
}

/// Writes a model that passes windows of ten frames on, behind `fbank`.
fn frames(model: &Path, dtype: &str, config: &str) {
    fs::create_dir_all(model.join("1")).unwrap();
    let name = model.file_name().unwrap().to_str().unwrap();
    let tensor = |name: &str| format!(r#"{{ name: "{name}" data_type: TYPE_{dtype} dims: [ 10, 80 ] }}"#);
    let batching =
        "sequence_batching { max_sequence_idle_microseconds: 600000000 oldest { max_candidate_sequences: 8 } }";
    let (x, y) = (tensor("x"), tensor("y"));
    let text =
        format!("name: \"{name}\" backend: \"onnxruntime\" max_batch_size: 8 input [ {x} ] output [ {y} ] {batching}");
    fs::write(model.join("config.pbtxt"), text).unwrap();
    let processor = format!("[[plugins.processor]]\nuse = \"fbank\"\ntime = \"10s\"\nconfig = {{ {config} }}\n");
    fs::write(model.join("sequor.toml"), format!("[sequence]\nend_without_inputs = true\n{processor}")).unwrap();
    let graph = format!("tests/models/windows_{}.onnx", dtype.to_lowercase());
    fs::copy(root().join(graph), model.join("1/model.onnx")).unwrap();
}

#[test]
fn filter_banks_are_those_of_kaldi_for_packets_of_any_size() {
    let call = Call::serve("repository").environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS"));
    let repository = call.folder.path().join("repository");
    for (name, dtype, config) in
        [("fbank_fp32", "FP32", ""), ("fbank_centred", "FP32", "snip_edges = false"), ("fbank_fp16", "FP16", "")]
    {
        frames(&repository.join(name), dtype, config);
    }
    let server = call.start();
    python::check("fbank.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
