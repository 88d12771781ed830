//! Tests `sequor why` on a real server: a live sequence, one that expired, ones that a plug-in or a limit refused, and unknown ones.

use std::fs;

use serde_json::{Value, json};

use crate::certificates::TestCertificates;
use crate::ensembles;
use crate::operator::{attach, guest, load};
use crate::plugins::post;
use crate::server::{Call, Ended, Server, copy, models, until};
use crate::steps::{STRATEGIES, accumulators, metric};

const MODEL: &str = "accumulator_fp32";

/// A server of the running sum with this idle time.
fn server(idle: &str, flags: &[&str]) -> Server {
    let call = Call::serve("repository").arguments(flags);
    let model = call.folder.path().join("repository").join(MODEL);
    copy(&models().join(MODEL), &model);
    fs::write(model.join("sequor.toml"), format!("schema = 1\n[sequence]\nidle = \"{idle}\"\n")).unwrap();
    call.start()
}

/// Sends a step. Returns the sum, or the reason of the refusal.
fn step(server: &Server, id: &Value, start: bool) -> Result<f64, String> {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [1.0] });
    let body = json!({ "parameters": { "sequence_id": id, "sequence_start": start }, "inputs": [input] });
    let answer = post(server.http, &format!("/v2/models/{MODEL}/infer"), &body);
    answer["outputs"][0]["data"][0].as_f64().ok_or_else(|| answer["reason"].as_str().unwrap_or_default().to_owned())
}

fn command(server: &Server, arguments: &[&str]) -> Ended {
    Call::sequor().environment("SEQUOR_SERVER", server.admin.unwrap().to_string()).arguments(arguments).end()
}

/// The explanation as text, with this exit code.
fn why(server: &Server, id: &str, code: i32) -> String {
    let ended = command(server, &["why", MODEL, id]);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    ended.stdout
}

fn why_as_json(server: &Server, id: &str) -> Value {
    let ended = command(server, &["why", MODEL, id, "--output", "json"]);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"))
}

/// The line that begins with this word, as words.
fn row(text: &str, begin: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(begin));
    line.unwrap_or_else(|| panic!("no {begin}: {text}")).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_live_sequence_is_explained_with_its_steps_and_who_chose_them() {
    let server = server("1h", &["--admin-upload=true"]);
    let call = json!("call-77");
    assert_eq!((step(&server, &call, true), step(&server, &call, false)), (Ok(1.0), Ok(2.0)));
    let text = why(&server, "call-77", 0);
    let first = format!("{MODEL} call-77: live, idle in slot 0 of instance 0, version 1\n");
    assert!(text.starts_with(&first) && text.contains("its last step was 2;"), "{text}");
    assert!(text.contains(&format!("if no request comes ([sequence] idle in {MODEL}/sequor.toml)")), "{text}");
    let (second, first) = (row(&text, "2"), row(&text, "1"));
    assert_eq!((second.last().unwrap().as_str(), first.last().unwrap().as_str()), ("direct", "direct"), "{text}");
    assert!(!text.contains("REFUSED") && !text.contains("to prevent it"), "{text}");

    load(&server, "mine", &guest("single"));
    attach(&server, "mine", MODEL, json!({ "time": "10s" }));
    assert_eq!(step(&server, &call, false), Ok(3.0));
    let answer = why_as_json(&server, "call-77");
    assert_eq!((&answer["place"], &answer["scheduler"]), (&json!("live"), &json!("mine")), "{answer}");
    let last = &answer["steps"][0];
    assert_eq!((&last["step"], &last["chosen_by"], &last["batch"]), (&json!(3), &json!("plugin"), &json!(1)));
    assert_eq!(row(&why(&server, "call-77", 0), "3").last().unwrap(), "mine");
    assert!(why_as_json(&server, "call-77")["sequence"]["id"].is_null(), "the server does not print text ids");
}

#[test]
fn an_expired_sequence_is_explained_with_the_setting_that_keeps_it() {
    let server = server("100ms", &[]);
    let seven = json!(7);
    assert_eq!(step(&server, &seven, true), Ok(1.0));
    until("it expires", || why_as_json(&server, "7")["place"] == "ended");
    let text = why(&server, "7", 0);
    assert!(text.starts_with(&format!("{MODEL} 7: ended ")) && text.contains(" ago: expired\n"), "{text}");
    assert!(text.contains("no request came for 100 ms, its idle time\n  its last step was 1\n"), "{text}");
    assert_eq!(row(&text, "1").last().unwrap(), "direct", "its steps are kept: {text}");
    assert!(text.contains(&format!("  [sequence] idle   in {MODEL}/sequor.toml\n")), "{text}");
    assert!(text.ends_with("read docs/troubleshoot.md#expired\n"), "{text}");
    assert_eq!(step(&server, &seven, false), Err("expired".to_owned()));
    let refused = why_as_json(&server, "7")["refused"][0].clone();
    assert_eq!(refused["reason"], "expired");
    assert!(refused["text"].as_str().unwrap().contains("must specify the START flag"), "{refused}");
}

#[test]
fn sequences_that_a_plugin_ended_or_refused_name_it() {
    let server = server("1h", &["--admin-upload=true"]);
    assert_eq!(step(&server, &json!(1), true), Ok(1.0));
    load(&server, "rejecting", &guest("hostile-reject"));
    attach(&server, "rejecting", MODEL, json!({ "time": "10s" }));
    assert_eq!(step(&server, &json!(1), false), Err("plugin_rejected".to_owned()));
    assert_eq!(step(&server, &json!(2), true), Err("plugin_rejected".to_owned()));
    let ended = why(&server, "1", 0);
    assert!(ended.lines().next().unwrap().ends_with(" ago: plugin_rejected, by scheduler rejecting"), "{ended}");
    assert!(ended.ends_with("read docs/troubleshoot.md#plugin_rejected\n"), "{ended}");
    let refused = why_as_json(&server, "2");
    assert_eq!(
        (&refused["refused"][0]["reason"], &refused["remedy"]["reason"]),
        (&json!("plugin_rejected"), &json!("plugin_rejected"))
    );
}

#[test]
fn a_sequence_refused_for_memory_is_unknown_and_names_the_setting_to_raise() {
    let server = server("1h", &["--limits-state", "8B"]);
    assert_eq!(step(&server, &json!(1), true), Ok(1.0));
    assert_eq!(step(&server, &json!(2), true), Err("state_memory".to_owned()));
    let text = why(&server, "2", 1);
    assert!(text.starts_with(&format!("{MODEL} 2: unknown\n")) && text.contains("(limits.state) are in use"), "{text}");
    assert!(text.contains("  limits.state   in the server's sequor.toml\n  [durability] when   in "), "{text}");
    let nothing = why_as_json(&server, "3");
    assert_eq!((&nothing["place"], &nothing["remedy"]["reason"]), (&json!("unknown"), &json!("never_started")));
    assert!(command(&server, &["why", MODEL, "3"]).stderr.contains("the server knows no sequence 3 of model"));
    assert_eq!(why_as_json(&server, "1")["place"], "live");
    let text = command(&server, &["why", MODEL, "1", "--text"]);
    assert_eq!(text.code, Some(1), "the text \"1\" is another id");
    let unserved = command(&server, &["why", "nope", "1"]);
    assert!(unserved.code == Some(5) && unserved.stderr.contains("sequor model list"), "{unserved:?}");
}

#[test]
fn sequences_that_wait_say_what_they_wait_for() {
    let call = Call::serve("repository");
    accumulators(&call.folder.path().join("repository"), 1, 600_000_000);
    let server = call.start();
    let http = server.http;
    let start = move |id: u64| {
        let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] });
        let body = json!({ "parameters": { "sequence_id": id, "sequence_start": true }, "inputs": [input] });
        post(http, "/v2/models/oldest/infer", &body)["outputs"][0]["data"][0].as_i64()
    };
    let why = |id: &str| {
        let ended = command(&server, &["why", "oldest", id, "--output", "json"]);
        serde_json::from_str::<Value>(&ended.stdout).unwrap()
    };
    let drop = |id: &str| assert_eq!(command(&server, &["sequence", "drop", "oldest", id]).code, Some(0));
    assert_eq!(start(1), Some(1));
    // Not scoped: a failed check must not wait for STARTs that wait for a slot.
    let waiting = [2, 3].map(|id| {
        let started = std::thread::spawn(move || start(id));
        until("it waits", || why(&id.to_string())["place"] == "waiting");
        started
    });
    assert_eq!((&why("2")["ahead"], &why("3")["ahead"]), (&json!(0), &json!(1)));
    let text = command(&server, &["why", "oldest", "3"]).stdout;
    assert!(text.starts_with("oldest 3: has waited for a slot for "), "{text}");
    assert!(text.lines().next().unwrap().ends_with(", sequences ahead: 1"), "{text}");
    assert!(text.contains("  [backlog] timeout   in oldest/sequor.toml\n"), "{text}");
    ["1", "2"].into_iter().for_each(drop);
    let [second, third] = waiting.map(|started| started.join().unwrap());
    assert!(second.is_none_or(|sum| sum == 1) && third == Some(1), "the second may be dropped before it starts");
    assert_eq!(command(&server, &["sequence", "fork", "oldest", "3", "--as", "4"]).code, Some(0));
    let text = command(&server, &["why", "oldest", "4"]).stdout;
    let first = "oldest 4: has a state from an operator, of version 1, waits for its next step\n";
    assert!(text.starts_with(first) && text.contains("\n  its last step was 1; state "), "{text}");
}

#[test]
fn keys_tls_and_absent_servers_are_handled_as_by_the_other_commands() {
    let certificates = TestCertificates::new();
    let path = |file: &str| certificates.path(file).display().to_string();
    fs::write(certificates.path("keys"), "anna:first\n").unwrap();
    let (cert, key, ca, keys) = (path("server.pem"), path("server.key"), path("ca.pem"), path("keys"));
    let flags = ["--tls-cert", &cert, "--tls-key", &key, "--admin-keys-file", &keys];
    let server = server("1h", &flags);
    for asks in [&["why", MODEL, "7"][..], &["top", "--once", "--interval", "100ms"]] {
        let with = |more: &[&str]| command(&server, &[asks, more].concat());
        let code = if asks[0] == "why" { 1 } else { 0 };
        assert_eq!(with(&["--tls-ca", &ca, "--key-file", &keys]).code, Some(code), "{asks:?}");
        let keyless = with(&["--tls-ca", &ca]);
        assert!(keyless.code == Some(5) && keyless.stderr.contains("#unauthenticated"), "{keyless:?}");
        let plain = with(&["--key-file", &keys]);
        assert!(plain.code == Some(4) && plain.stderr.contains("--tls-ca"), "{plain:?}");
        let away = with(&["--server", "127.0.0.1:1"]);
        assert!(away.code == Some(4) && away.stderr.contains("`sequor serve` may not be running"), "{away:?}");
        let other = with(&["--tls-ca", &ca, "--server", &server.http.to_string()]);
        assert!(other.code == Some(4) && other.stderr.contains("or of another version"), "{other:?}");
    }
}

/// The store is smaller than any state, so each write fails as on a full disk.
#[test]
fn a_store_that_cannot_write_shows_at_the_client_in_the_status_and_in_why() {
    let call = Call::serve("repository");
    let model = call.folder.path().join("repository").join(MODEL);
    copy(&models().join(MODEL), &model);
    fs::write(model.join("sequor.toml"), "schema = 1\n[sequence]\nidle = \"1h\"\n[durability]\nwhen = \"step\"\n")
        .unwrap();
    let server = call.arguments(["--state-dir", "state", "--state-disk-limit", "1B"]).start();
    let good = command(&server, &["status"]);
    assert!(!good.stdout.contains("! state.dir"), "{}", good.stdout);

    assert_eq!(step(&server, &json!(7), true), Err("store_failed".to_owned()));
    assert_eq!(step(&server, &json!(7), false), Err("unsealed".to_owned()));
    let refused = why_as_json(&server, "7")["refused"][1]["text"].clone();
    let text = refused.as_str().unwrap_or_default();
    let begin = format!("sequence 7 of model '{MODEL}' did not start: its state could not be stored (");
    assert!(text.starts_with(&begin) && text.ends_with("; retry after 1 s"), "{text}");
    let explained = why(&server, "7", 0);
    assert!(explained.contains("to prevent it: the store is full: raise its limit\n  state.disk_limit"), "{explained}");

    let bad = command(&server, &["status"]);
    assert!(bad.stdout.contains("! state.dir: ") && bad.stdout.contains("when = \"step\" refuse"), "{}", bad.stdout);
    assert!(metric(&server, "sequor_store_free_bytes", &[]) > 0.0);
    assert!(metric(&server, "sequor_sequences_ended_total", &["reason=\"unsealed\""]) >= 1.0);

    for id in 8..40 {
        assert_eq!(step(&server, &json!(id), true), Err("store_failed".to_owned()));
    }
    let ended = server.stop();
    let lines = ended.stderr.lines().filter(|line| line.contains("states are not stored")).count();
    assert!((1..=6).contains(&lines), "{lines} lines about 33 sequences: {}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.contains(" stopped ") && last.contains("drained=Clean"), "{}", ended.stderr);
    assert!(ended.stderr.contains("connections closed; states are being stored"), "{}", ended.stderr);
}

#[test]
fn a_start_that_got_no_slot_in_time_is_explained_by_that() {
    let call = Call::serve("repository");
    accumulators(&call.folder.path().join("repository"), 1, 600_000_000);
    let server = call.start();
    let model = STRATEGIES[0];
    let start = |id: u64, timeout: Option<u64>| {
        let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] });
        let mut parameters = json!({ "sequence_id": id, "sequence_start": true });
        timeout.into_iter().for_each(|timeout| parameters["timeout"] = json!(timeout));
        post(server.http, &format!("/v2/models/{model}/infer"), &json!({ "parameters": parameters, "inputs": [input] }))
    };
    assert!(start(1, None)["reason"].is_null());
    assert_eq!(start(2, Some(50_000))["reason"], "backlog_timeout");
    let text = command(&server, &["why", model, "2"]).stdout;
    assert!(text.lines().next().unwrap().ends_with(" ago: backlog_timeout"), "{text}");
    assert!(text.contains("[sequence] idle_soft") && !text.contains("on_cancel"), "{text}");
    assert!(metric(&server, "sequor_sequences_ended_total", &["reason=\"backlog_timeout\""]) >= 1.0);
}

#[test]
fn a_reload_that_failed_is_a_warning_of_the_status() {
    let call = Call::serve("repository").arguments(["--model-control-mode=explicit", "--load-model=*"]);
    let model = call.folder.path().join("repository").join(MODEL);
    copy(&models().join(MODEL), &model);
    let (server, config) = (call.start(), model.join("config.pbtxt"));
    fs::write(&config, "nonsense").unwrap();
    assert_ne!(command(&server, &["model", "load", MODEL]).code, Some(0));
    let status = command(&server, &["status"]).stdout;
    assert!(status.contains(&format!("! {MODEL}: reload failed, version 1 of before serves: ")), "{status}");
}

#[test]
fn a_sequence_of_an_ensemble_is_explained_with_the_member_that_ended_it() {
    let call = Call::serve("repository");
    ensembles::of_two(&call.folder.path().join("repository"));
    let server = call.start();
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [5] });
    let body = json!({ "parameters": { "sequence_id": 7, "sequence_start": true }, "inputs": [input] });
    let answer = post(server.http, "/v2/models/both/infer", &body);
    assert_eq!(answer["outputs"][0]["data"], json!([5]), "{answer}");
    let both = |arguments: &[&str]| command(&server, &[&["why", "both", "7"], arguments].concat()).stdout;
    let text = both(&[]);
    for member in ["first", "second"] {
        assert_eq!(row(&text, member)[1..4], ["1", "live,", "idle"], "{text}");
    }
    let dropped = command(&server, &["sequence", "drop", "second", "7"]);
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    let text = both(&[]);
    assert!(text.lines().next().unwrap().ends_with(" ago: dropped, by member second"), "{text}");
    let answer: Value = serde_json::from_str(&both(&["--output", "json"])).unwrap();
    assert_eq!(answer["sequence"]["ended"]["member"], "second", "{answer:#}");
    let places: Vec<_> = answer["members"].as_array().unwrap().iter().map(|of| (&of["model"], &of["place"])).collect();
    assert_eq!(places, [(&json!("second"), &json!("ended")), (&json!("first"), &json!("ended"))], "{answer:#}");
}
