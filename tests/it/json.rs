//! Tests the shape of the commands' `--output json`, so that a change of the output shows what programs will read.

use std::fs;

use insta::assert_snapshot;
use serde_json::{Map, Value, json};

use crate::python::prepared;
use crate::server::{Call, copy, models, root};

/// Replaces each part of a value by its type. A list becomes its first element and the number of distinct shapes.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!(null),
        Value::Bool(_) => json!("bool"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("text"),
        Value::Array(all) => {
            let mut kinds: Vec<Value> = Vec::new();
            for kind in all.iter().map(shape) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            json!(kinds)
        }
        // A table with numbers as keys: only the shape of its values.
        Value::Object(fields) if fields.keys().any(|key| key.parse::<u64>().is_ok()) => {
            json!({ "N": fields.values().next().map(shape) })
        }
        Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), shape(v))).collect::<Map<_, _>>().into(),
    }
}

/// Runs a command and returns its JSON. Appends the command, its exit code and the shape of the output to `transcript`.
fn json_of(transcript: &mut String, server: Option<&str>, arguments: &[&str], code: i32) -> Value {
    let mut call = Call::sequor().environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE"));
    if let Some(server) = server {
        call = call.environment("SEQUOR_SERVER", server);
    }
    let ended = call.arguments(arguments).arguments(["--output", "json"]).end();
    assert_eq!(ended.code, Some(code), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    let value: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}", ended.stdout));
    let words: Vec<&str> = arguments.iter().map(|word| word.rsplit('/').next().unwrap()).collect();
    *transcript += &format!("$ sequor {}   # exit {code}\n{:#}\n\n", words.join(" "), shape(&value));
    value
}

#[test]
fn author_commands_print_json() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str| prepared("SEQUOR_GUESTS").join(format!("{name}.wasm")).display().to_string();
    let (edf, readme) = (file("edf"), root().join("README.md").display().to_string());
    let folder = scratch.path().join("mine");
    let (folder, case) = (folder.display().to_string(), folder.join("cases/burst.toml").display().to_string());
    let mut transcript = String::new();
    let mut all = |arguments: &[&str], code| json_of(&mut transcript, None, arguments, code);
    let made = all(&["plugin", "new", "mine", "--dir", &folder], 0);
    assert_eq!((&made["name"], &made["language"], &made["folder"]), (&json!("mine"), &json!("rust"), &json!(folder)));
    let checked = all(&["plugin", "check", &edf, &readme], 3);
    assert_eq!(
        (&checked[0]["ok"], &checked[1]["ok"], &checked[0]["component"]["name"]),
        (&json!(true), &json!(false), &json!("edf"))
    );
    assert_eq!(
        checked[1]["error"].as_str().unwrap(),
        format!("{readme} is no WebAssembly; sequor plugin build makes a component")
    );
    let tested = all(&["plugin", "test", &edf, "--case", &case], 0);
    assert_eq!((&tested[0]["ok"], tested[0]["report"]["runs"].as_array().unwrap().len()), (&json!(true), 2));
    let measured = all(&["plugin", "bench", &edf, "--for", "1ms"], 0);
    assert!(
        measured[0]["plans"].as_array().unwrap().iter().all(|plan| plan["calls"].as_u64().unwrap() >= 20),
        "{measured}"
    );
    let seen = all(&["plugin", "inspect", &edf], 0);
    assert_eq!(seen[0]["sha256"].as_str().unwrap().len(), 64);
    let found = all(&["plugin", "doctor"], 0);
    assert_eq!(found.as_array().unwrap().len(), 4, "{found}");
    assert_snapshot!(transcript);
}

#[test]
fn operator_commands_print_json() {
    let call = Call::serve("repository").arguments(["--admin-upload=true", "--model-control-mode=explicit"]);
    let model = "accumulator_int32";
    let folder = call.folder.path().join("repository").join(model);
    copy(&models().join(model), &folder);
    fs::write(folder.join("sequor.toml"), "schema = 1\n[sequence]\nidle = \"1h\"\n").unwrap();
    let server = call.start();
    let single = prepared("SEQUOR_GUESTS").join("single.wasm").display().to_string();
    let (admin, mut transcript) = (server.admin.unwrap().to_string(), String::new());
    let mut all = |arguments: &[&str]| json_of(&mut transcript, Some(&admin), arguments, 0);
    all(&["model", "load", model]);
    let listed = all(&["model", "list"]);
    assert_eq!(listed[0]["model"], model);
    let figures = all(&["top", "--once", "--interval", "100ms"]);
    assert_eq!(figures["models"][0]["model"], model);
    all(&["plugin", "load", "mine", "--from", &single]);
    all(&["plugin", "attach", "mine", "--model", model]);
    let shown = all(&["plugin", "show", "mine"]);
    assert_eq!(shown["attached"][0]["state"], "active");
    assert_eq!(all(&["plugin", "list"]).as_array().unwrap().len(), 1);
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] });
    let parameters = json!({ "sequence_id": 7, "sequence_start": true });
    let body = json!({ "parameters": parameters, "inputs": [input] });
    crate::plugins::post(server.http, &format!("/v2/models/{model}/infer"), &body);
    all(&["sequence", "list", "--model", model]);
    all(&["sequence", "show", model, "7"]);
    let explained = all(&["why", model, "7"]);
    assert_eq!((&explained["place"], &explained["steps"][0]["step"]), (&json!("live"), &json!(1)));
    all(&["sequence", "drop", model, "7"]);
    all(&["plugin", "detach", "mine", "--model", model]);
    all(&["plugin", "unload", "mine"]);
    all(&["model", "unload", model]);
    assert_eq!(all(&["drain"]), json!({ "draining": true, "out": false }));
    assert_snapshot!(transcript);
}
