//! Models with a state initializer, through the whole server: first states, copies, prompts, and plug-ins that do what no plug-in should.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::initializer_wat::InitializerWat;
use crate::operator::{attached, logs, replace};
use crate::server::{Call, Server, root};
use crate::states::infer;
use crate::steps::metric;

/// The input of the START says what it answers: from 1000 on it is the first state; 1 traps, 2 never comes back, 3 is refused, 4 has wrong
/// dimensions, 6 takes a gibibyte; 5 is a copy of sequence 7; 10 is what `p` leads to, 11 has 10,000 steps, 14 steps that are not kept. All else begins
/// with zeros.
const INITIALIZE: &str = "
    (local $v i32)
    (local.set $v (i32.load (i32.load offset=20 (local.get $inputs))))
    (if (i32.eq (local.get $v) (i32.const 1)) (then unreachable))
    (if (i32.eq (local.get $v) (i32.const 2)) (then (loop $ever (br $ever))))
    (if (i32.eq (local.get $v) (i32.const 3)) (then (return (call $refuse (i32.const 4)))))
    (if (i32.eq (local.get $v) (i32.const 4)) (then (return (call $state (i32.const 1) (i32.const 2) (i32.const 0)))))
    (if (i32.eq (local.get $v) (i32.const 5)) (then (return (call $text (i32.const 2) (i32.const 0) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 6)) (then
        (drop (memory.grow (i32.const 16384)))
        (i32.store (i32.const 1073741824) (i32.const 1))))
    (if (i32.eq (local.get $v) (i32.const 14)) (then (return (call $text (i32.const 3) (i32.const 0) (i32.const 0)))))
    (if (i32.and (i32.ge_u (local.get $v) (i32.const 10)) (i32.lt_u (local.get $v) (i32.const 12))) (then
        (return (call $text (i32.const 3) (i32.sub (local.get $v) (i32.const 6)) (i32.const 1)))))
    (if (i32.ge_u (local.get $v) (i32.const 1000)) (then
        (return (call $state (local.get $v) (i32.const 1) (i32.const 0)))))
    (call $text (i32.const 0) (i32.const 0) (i32.const 0))";

/// Three steps of 100, of `k` 10,000.
const STEPS: &str = "
    (if (local.get $name_len) (then
        (if (i32.eq (i32.load8_u (local.get $name)) (i32.const 107)) (then
            (return (call $steps (i32.const 1) (i32.const 10000)))))))
    (call $steps (i32.const 100) (i32.const 3))";

const CONFIG: &str = r#"backend: "onnxruntime" max_batch_size: 8
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
    sequence_batching { max_sequence_idle_microseconds: 60000000 oldest { max_candidate_sequences: 16 } state [ {
        input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }"#;

const TOML: &str = r#"[[feature]]
name = "tenant"
from = "parameter"
key = "tenant"
type = "key"
[plugins.initializer]
use = "guest"
time = "50ms"
copy_if_same = ["tenant"]
"#;

/// A running sum with the guest, and one without beside it.
fn serve() -> Server {
    serve_with("1000")
}

/// The same, where so many strikes within a minute park the guest.
fn serve_with(strikes: &str) -> Server {
    let strikes = format!("--plugins-strikes={strikes}");
    let call = Call::serve("repository").arguments(["--admin-upload=true", "--plugins-dir=plugins", &strikes]);
    let (repository, plugins) = (call.folder.path().join("repository"), call.folder.path().join("plugins"));
    write_model(&repository.join("sum"));
    write_model(&repository.join("beside"));
    fs::write(repository.join("sum/sequor.toml"), TOML).unwrap();
    fs::create_dir_all(&plugins).unwrap();
    fs::write(plugins.join("guest.wasm"), guest(STEPS)).unwrap();
    call.start()
}

/// The guest with these steps.
fn guest(steps: &str) -> Vec<u8> {
    let manifest = "reads = [\"INPUT\"]\n";
    InitializerWat { initialize: INITIALIZE, steps, manifest, ..InitializerWat::default() }.component()
}

/// One step of 5 for each name.
const OTHER_STEPS: &str = "(call $steps (i32.const 5) (i32.const 1))";

fn write_model(model: &Path) {
    fs::create_dir_all(model.join("1")).unwrap();
    fs::write(model.join("config.pbtxt"), CONFIG).unwrap();
    fs::copy(root().join("tests/models/sum_int32.onnx"), model.join("1/model.onnx")).unwrap();
}

/// One step: the running sum, or the refusal.
fn step(server: &Server, model: &str, id: u64, start: bool, tenant: &str, value: i32) -> Result<i64, (u16, Value)> {
    let body = json!({
        "parameters": { "sequence_id": id, "sequence_start": start, "tenant": tenant },
        "inputs": [{ "name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [value] }],
        "outputs": [{ "name": "OUTPUT" }],
    });
    infer(server, model, &body).map(|outputs| outputs[0].1[0].as_i64().unwrap())
}

fn start(server: &Server, id: u64, value: i32) -> i64 {
    step(server, "sum", id, true, "a", value).unwrap()
}

fn next(server: &Server, id: u64, value: i32) -> i64 {
    step(server, "sum", id, false, "a", value).unwrap()
}

fn runs(server: &Server) -> f64 {
    metric(server, "nv_inference_exec_count", &["model=\"sum\""])
}

#[test]
fn a_first_state_of_a_plug_in_is_what_the_model_goes_on_from() {
    let server = serve();
    assert_eq!([start(&server, 1, 50), start(&server, 2, 1000)], [50, 2000]);
    assert_eq!([next(&server, 1, 1), next(&server, 2, 1)], [51, 2001]);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn the_second_start_of_a_prompt_runs_nothing_and_is_the_first_bit_for_bit() {
    let server = serve();
    assert_eq!((start(&server, 1, 10), runs(&server)), (310, 4.0));
    assert_eq!((start(&server, 2, 10), runs(&server)), (310, 5.0));
    assert_eq!([next(&server, 1, 7), next(&server, 2, 7)], [317, 317]);
    let kept = |result: &str| metric(&server, "sequor_kept_states_total", &["model=\"sum\"", result]);
    assert_eq!((kept("result=\"hit\""), kept("result=\"miss\"")), (1.0, 1.0));
    assert!(metric(&server, "sequor_kept_states_bytes", &["model=\"sum\""]) > 4.0);
}

#[test]
fn a_child_goes_on_as_its_parent_and_another_tenant_gets_nothing() {
    let server = serve();
    start(&server, 7, 50);
    assert_eq!(next(&server, 7, 3), 53);
    assert_eq!(start(&server, 20, 5), 58);
    assert_eq!([next(&server, 7, 5), next(&server, 20, 1)], [58, 59]);
    let (status, said) = step(&server, "sum", 21, true, "b", 5).unwrap_err();
    assert_eq!(status, 404);
    assert!(said["error"].as_str().unwrap().contains("no live sequence that may be copied has this id"), "{said}");
    assert!(step(&server, "sum", 21, false, "b", 5).is_err());
}

#[test]
fn whatever_an_initializer_does_it_costs_its_own_start_alone() {
    let server = serve();
    assert_eq!(start(&server, 1, 50), 50);
    step(&server, "beside", 1, true, "", 5).unwrap();
    let state_bytes = || metric(&server, "sequor_state_bytes", &["model=\"sum\""]);
    let before = state_bytes();
    for (round, value) in [1, 2, 3, 4, 5, 6, 11].into_iter().cycle().take(21).enumerate() {
        let id = 100 + u64::try_from(round).unwrap();
        let (status, said) = step(&server, "sum", id, true, "a", value).unwrap_err();
        assert_eq!(status, if value == 3 || value == 5 { 404 } else { 500 }, "{value}: {said}");
        assert!(step(&server, "sum", id, false, "a", 1).is_err(), "{value}");
        let sum = 51 + i64::try_from(round).unwrap();
        assert_eq!(next(&server, 1, 1), sum, "{value}");
        assert_eq!(step(&server, "beside", 1, false, "", 1), Ok(sum - 45), "{value}");
    }
    assert_eq!((state_bytes(), metric(&server, "sequor_sequences_live", &["model=\"sum\""])), (before, 1.0));
    let strikes = |reason: &str| metric(&server, "sequor_plugin_traps_total", &["plugin=\"guest\"", reason]);
    assert_eq!((strikes("reason=\"time\""), strikes("reason=\"memory\"")), (3.0, 3.0));
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn an_operator_sees_and_changes_it_by_command() {
    let server = serve();
    assert_eq!(start(&server, 1, 10), 310);
    let next_file = server.process.folder().join("next.wasm");
    fs::write(&next_file, guest(OTHER_STEPS)).unwrap();
    let next_file = next_file.display().to_string();
    let command = |arguments: &[&str]| {
        let call = Call::sequor().environment("SEQUOR_SERVER", server.admin.unwrap().to_string());
        let ended = call.arguments(["plugin"]).arguments(arguments).end();
        (ended.code, format!("{}{}", ended.stdout, ended.stderr))
    };
    let told = |arguments: &[&str]| {
        let (code, text) = command(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {text}");
        text
    };
    assert!(told(&["list"]).contains("guest"));
    let shown: Value = serde_json::from_str(&told(&["show", "guest", "--output", "json"])).unwrap();
    let first = shown["sha256"].clone();
    assert_eq!(
        (&shown["world"], &shown["attached"][0]["model"]),
        (&json!("state-initializer"), &json!("sum")),
        "{shown}"
    );
    told(&["replace", "guest", "--from", &next_file]);
    assert_eq!(start(&server, 2, 10), 15, "what the version before has kept is gone");
    assert_eq!(next(&server, 1, 1), 311, "live sequences go on");
    told(&["rollback", "guest"]);
    let shown: Value = serde_json::from_str(&told(&["show", "guest", "--output", "json"])).unwrap();
    assert_eq!(shown["sha256"], first);
    assert_eq!(start(&server, 3, 10), 310);
    told(&["park", "guest"]);
    assert_eq!(step(&server, "sum", 4, true, "a", 50).unwrap_err().0, 503);
    assert_eq!(next(&server, 1, 1), 312);
    told(&["unpark", "guest"]);
    assert_eq!(start(&server, 4, 50), 50);
    for refused in [&["unload", "guest"][..], &["attach", "guest", "--model", "beside"]] {
        assert_eq!(command(refused).0, Some(5), "{refused:?}");
    }
    assert_eq!(metric(&server, "sequor_plugin_reload_total", &["plugin=\"guest\"", "result=\"ok\""]), 2.0);
    let calls = metric(&server, "sequor_plugin_call_seconds_count", &["plugin=\"guest\"", "hook=\"initialize\""]);
    assert_eq!(calls, 4.0);
    let log = server.stop().stderr;
    for what in ["replace", "rollback", "park", "unpark"] {
        assert!(log.contains(&format!("what=\"{what}\" plugin=\"guest\"")), "{what}: {log}");
    }
}

#[test]
fn three_failures_park_it_and_a_new_version_serves_again() {
    let server = serve_with("3");
    start(&server, 1, 50);
    for id in 2..5 {
        assert_eq!(step(&server, "sum", id, true, "a", 1).unwrap_err().0, 500);
    }
    let (status, said) = step(&server, "sum", 5, true, "a", 50).unwrap_err();
    assert!(status == 503 && said["error"].as_str().unwrap().contains("guest is parked on sum"), "{status} {said}");
    assert_ne!(server.get("/v2/models/sum/ready").0, 200);
    let at = attached(&server, "guest");
    assert_eq!((&at["state"], &at["strikes"]), (&json!("parked"), &json!(3)));
    assert!(logs(&server, "guest").last().unwrap().contains("The model is not ready"));
    assert_eq!(next(&server, 1, 1), 51);
    replace(&server, "guest", &guest(OTHER_STEPS));
    assert_eq!(server.get("/v2/models/sum/ready").0, 200);
    assert_eq!([start(&server, 5, 50), start(&server, 6, 10)], [50, 15]);
}
