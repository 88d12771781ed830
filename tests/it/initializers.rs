//! Tests models with a state initializer in a real server: first states, copies, prompts, and hostile plug-ins.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::initializer_orders::{CONFIG, HostileStart, STEPS, guest};
use crate::operator::{ask, attached, logs, replace};
use crate::server::{Call, Server, root};
use crate::states::infer;
use crate::steady::{Part, during};
use crate::steps::{accumulators, metric};

const TOML: &str = r#"[[feature]]
name = "tenant"
from = "parameter"
key = "tenant"
type = "key"
[plugins.initializer]
use = "guest"
time = "TIME"
copy_if_same = ["tenant"]
"#;

/// A server with a running sum behind the guest, and others without it.
fn serve() -> Server {
    serve_with("1000", "1s")
}

/// Like [`serve`]. The guest is parked after this many strikes within a minute, and a call has this much CPU time.
fn serve_with(strikes: &str, time: &str) -> Server {
    let strikes = format!("--plugins-strikes={strikes}");
    let call = Call::serve("repository").arguments(["--admin-upload=true", "--plugins-dir=plugins", &strikes]);
    let (repository, plugins) = (call.folder.path().join("repository"), call.folder.path().join("plugins"));
    write_model(&repository.join("sum"));
    write_model(&repository.join("beside"));
    accumulators(&repository, 64, 600_000_000);
    fs::write(repository.join("sum/sequor.toml"), TOML.replace("TIME", time)).unwrap();
    fs::create_dir_all(&plugins).unwrap();
    fs::write(plugins.join("guest.wasm"), guest(STEPS)).unwrap();
    call.start()
}

/// One step of 5 for each name.
const OTHER_STEPS: &str = "(call $steps (i32.const 5) (i32.const 1))";

fn write_model(model: &Path) {
    fs::create_dir_all(model.join("1")).unwrap();
    fs::write(model.join("config.pbtxt"), CONFIG).unwrap();
    fs::copy(root().join("tests/models/sum_int32.onnx"), model.join("1/model.onnx")).unwrap();
}

fn body(id: u64, start: bool, tenant: &str, value: i32) -> Value {
    json!({
        "parameters": { "sequence_id": id, "sequence_start": start, "tenant": tenant },
        "inputs": [{ "name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [value] }],
        "outputs": [{ "name": "OUTPUT" }],
    })
}

/// Sends one step. Returns the running sum, or the refusal.
fn step(server: &Server, model: &str, id: u64, start: bool, tenant: &str, value: i32) -> Result<i64, (u16, Value)> {
    infer(server, model, &body(id, start, tenant, value)).map(|outputs| outputs[0].1[0].as_i64().unwrap())
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
fn a_model_continues_from_the_first_state_of_its_initializer() {
    let server = serve();
    assert_eq!([start(&server, 1, 50), start(&server, 2, 1000)], [50, 2000]);
    assert_eq!([next(&server, 1, 1), next(&server, 2, 1)], [51, 2001]);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_second_start_of_a_prompt_reuses_the_kept_state_bit_for_bit() {
    let server = serve();
    assert_eq!((start(&server, 1, 10), runs(&server)), (310, 4.0));
    assert_eq!((start(&server, 2, 10), runs(&server)), (310, 5.0));
    assert_eq!([next(&server, 1, 7), next(&server, 2, 7)], [317, 317]);
    let kept = |result: &str| metric(&server, "sequor_kept_states_total", &["model=\"sum\"", result]);
    assert_eq!((kept("result=\"hit\""), kept("result=\"miss\"")), (1.0, 1.0));
    assert!(metric(&server, "sequor_kept_states_bytes", &["model=\"sum\""]) > 4.0);
}

#[test]
fn a_start_copies_its_parents_state_only_within_the_same_tenant() {
    let server = serve();
    start(&server, 7, 50);
    assert_eq!(next(&server, 7, 3), 53);
    assert_eq!(start(&server, 20, 5), 58);
    assert_eq!([next(&server, 7, 5), next(&server, 20, 1)], [58, 59]);
    let (status, json) = step(&server, "sum", 21, true, "b", 5).unwrap_err();
    assert_eq!(status, 404);
    assert!(json["error"].as_str().unwrap().contains("no live sequence that may be copied has this id"), "{json}");
    assert!(step(&server, "sum", 21, false, "b", 5).is_err());
}

#[test]
fn a_hostile_initializer_fails_only_its_own_start() {
    let server = serve();
    assert_eq!(start(&server, 1, 50), 50);
    step(&server, "beside", 1, true, "", 5).unwrap();
    let state_bytes = || metric(&server, "sequor_state_bytes", &["model=\"sum\""]);
    let before = state_bytes();
    let hostile = HostileStart::ALL.map(|start| start as i32);
    for (round, value) in [&hostile[..], &[3, 5]].concat().into_iter().cycle().take(21).enumerate() {
        let id = 100 + u64::try_from(round).unwrap();
        let (status, message) = step(&server, "sum", id, true, "a", value).unwrap_err();
        assert_eq!(status, if hostile.contains(&value) { 500 } else { 404 }, "{value}: {message}");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_starts_under_load_change_no_answer_elsewhere() {
    // Each of the twenty loops uses up the whole limit.
    let server = serve_with("1000", "100ms");
    let http = server.http;
    assert_eq!(start(&server, 1, 50), 50);
    let parts = [Part::of("oldest", 16), Part::of("direct", 4)];
    let (_, alone) = during(&server, &parts, async |progress| progress.everybody(20).await).await;
    for (n, hostile) in HostileStart::ALL.into_iter().enumerate() {
        let (_, seen) = during(&server, &parts, async |progress| {
            progress.everybody(5).await;
            let send = |sender: u64| {
                tokio::task::spawn_blocking(move || {
                    for round in 0..5 {
                        let body = body(1000 * (n as u64 + 1) + 10 * sender + round, true, "a", hostile as i32);
                        let body = body.to_string();
                        let path = "/v2/models/sum/infer";
                        let (status, message) = ask(http, "POST", path, "application/json", body.as_bytes());
                        assert_eq!(status, 500, "{hostile:?}: {message}");
                    }
                })
            };
            for sender in (0..4).map(send).collect::<Vec<_>>() {
                sender.await.unwrap();
            }
            progress.everybody(5).await;
        })
        .await;
        for (part, seen) in parts.iter().zip(&seen) {
            assert!(seen.wrong.is_empty() && seen.sums() > 0, "{hostile:?}: {}: {:#?}", part.model, seen.wrong);
        }
        assert_eq!(next(&server, 1, 1), 51 + n as i64, "{hostile:?}");
        let (with, without) = (seen[1].ms(0.99), alone[1].ms(0.99));
        println!("hostile initializer: {hostile:?}: beside it p99 {with:.1} ms, {without:.1} ms without");
    }
    assert_eq!(metric(&server, "sequor_sequences_live", &["model=\"sum\""]), 1.0);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn commands_show_replace_roll_back_and_park_the_plugin() {
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
    let output_of = |arguments: &[&str]| {
        let (code, text) = command(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {text}");
        text
    };
    assert!(output_of(&["list"]).contains("guest"));
    let shown: Value = serde_json::from_str(&output_of(&["show", "guest", "--output", "json"])).unwrap();
    let first = shown["sha256"].clone();
    assert_eq!(
        (&shown["world"], &shown["attached"][0]["model"]),
        (&json!("state-initializer"), &json!("sum")),
        "{shown}"
    );
    output_of(&["replace", "guest", "--from", &next_file]);
    assert_eq!(start(&server, 2, 10), 15, "what the version before has kept is gone");
    assert_eq!(next(&server, 1, 1), 311, "live sequences go on");
    output_of(&["rollback", "guest"]);
    let shown: Value = serde_json::from_str(&output_of(&["show", "guest", "--output", "json"])).unwrap();
    assert_eq!(shown["sha256"], first);
    assert_eq!(start(&server, 3, 10), 310);
    output_of(&["park", "guest"]);
    assert_eq!(step(&server, "sum", 4, true, "a", 50).unwrap_err().0, 503);
    assert_eq!(next(&server, 1, 1), 312);
    output_of(&["unpark", "guest"]);
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
fn three_failures_park_an_initializer_until_a_new_version_replaces_it() {
    let server = serve_with("3", "1s");
    start(&server, 1, 50);
    for id in 2..5 {
        assert_eq!(step(&server, "sum", id, true, "a", 1).unwrap_err().0, 500);
    }
    let (status, body) = step(&server, "sum", 5, true, "a", 50).unwrap_err();
    assert!(status == 503 && body["error"].as_str().unwrap().contains("guest is parked on sum"), "{status} {body}");
    assert_ne!(server.get("/v2/models/sum/ready").0, 200);
    let at = attached(&server, "guest");
    assert_eq!((&at["state"], &at["strikes"]), (&json!("parked"), &json!(3)));
    assert!(logs(&server, "guest").last().unwrap().contains("The model is not ready"));
    assert_eq!(next(&server, 1, 1), 51);
    replace(&server, "guest", &guest(OTHER_STEPS));
    assert_eq!(server.get("/v2/models/sum/ready").0, 200);
    assert_eq!([start(&server, 5, 50), start(&server, 6, 10)], [50, 15]);
}
