//! Tests models without a graph in the real program: a plug-in that answers, and one that calls it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Call, Server};
use crate::states::infer;
use crate::steps::metric;
use sequor::processing::wat_guest::{ALIKE, WatGuest};

/// Calls `echo` with its input, and replies with the output.
const CALL: &str = r#"
    (import "sequor:plugin/models@0.1.0" "infer" (func $infer (param i32 i32 i32 i32 i32)))
    (data (i32.const 700) "INPUT")
    (data (i32.const 710) "echo")"#;
const CALLS: &str = "
    (i32.store (i32.const 400) (i32.const 700))
    (i32.store (i32.const 404) (i32.const 5))
    (memory.copy (i32.const 408) (i32.add (local.get 11) (i32.const 4)) (i32.const 24))
    (call $infer (i32.const 710) (i32.const 4) (i32.const 400) (i32.const 1) (i32.const 480))
    (if (i32.load8_u (i32.const 480)) (then unreachable))
    (i32.store (i32.const 600) (i32.const 0))
    (memory.copy (i32.const 604) (i32.add (i32.load (i32.const 488)) (i32.const 8)) (i32.const 24))
    (call $reply (i32.const 600) (i32.const 1))";

/// Replies with the input.
const ECHOES: &str = "(call $reply (local.get 11) (local.get 12))";

const CONFIG: &str = r#"backend: "python"
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]"#;

/// Writes the models: `scorer`, which calls `echo`.
fn write(folder: &Path) {
    let plugins = folder.join("plugins");
    fs::create_dir_all(&plugins).unwrap();
    for (model, plugin, extra, pre) in [("scorer", "caller", CALL, CALLS), ("echo", "echoes", "", ECHOES)] {
        let directory = folder.join("repository").join(model);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("config.pbtxt"), CONFIG).unwrap();
        fs::write(directory.join("sequor.toml"), format!("[model]\nplugin = \"{plugin}\"\n")).unwrap();
        let manifest = "wants = [\"pre\"]\n";
        let guest = WatGuest { extra, configure: ALIKE, pre, post: "unreachable", manifest };
        fs::write(plugins.join(format!("{plugin}.wasm")), guest.component()).unwrap();
    }
}

fn serve(grants: &[&str]) -> Server {
    let call = Call::serve("repository").arguments(["--plugins-dir=plugins"]);
    let call = grants.iter().fold(call, |call, grant| call.arguments([format!("--plugins-grants={grant}")]));
    write(call.folder.path());
    call.start()
}

#[test]
fn a_plug_in_that_is_a_model_calls_another_one() {
    let server = serve(&["caller=model:echo"]);
    let (status, shown) = server.get("/v2/models/scorer");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((status, &shown["platform"], &shown["inputs"][0]["shape"]), (200, &json!("python"), &json!([-1])));
    for n in 1..=20 {
        let data: Vec<i32> = (0..n).collect();
        let body = json!({ "inputs": [{ "name": "INPUT", "datatype": "INT32", "shape": [n], "data": data }] });
        assert_eq!(infer(&server, "scorer", &body).unwrap(), [(json!([n]), json!(data))]);
    }
    for model in ["model=\"scorer\"", "model=\"echo\""] {
        assert_eq!(metric(&server, "nv_inference_request_success", &[model]), 20.0);
        assert_eq!(metric(&server, "nv_inference_exec_count", &[model]), 20.0);
    }
    assert_eq!(metric(&server, "sequor_plugin_model_calls", &[]), 0.0);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_model_is_refused_with_the_missing_grant_if_its_plugin_calls_models() {
    let call = Call::serve("repository").arguments(["--plugins-dir=plugins", "--exit-on-error=true"]);
    write(call.folder.path());
    let ended = call.end();
    let message = "Calls to models can be granted (plugins.grants = [\"caller=model:MODEL\"])";
    // The log escapes the quotes of the text.
    let logged = format!("{}{}", ended.stdout, ended.stderr).replace("\\\"", "\"");
    assert!(logged.contains(message), "{ended:?}");
}

#[test]
fn check_runs_a_model_without_a_graph() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let settings = folder.path().join("server.toml");
    let plugins = folder.path().join("plugins");
    fs::write(&settings, format!("[plugins]\ndir = {plugins:?}\n")).unwrap();
    let ended = Call::sequor()
        .arguments(["check", "--output", "json", "--config"])
        .arguments([settings.as_path(), &folder.path().join("repository/echo")])
        .end();
    let body: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
    assert_eq!(ended.code, Some(0), "{body:#}");
}
