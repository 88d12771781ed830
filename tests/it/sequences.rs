//! Tests the operators' commands on a real server's sequences: list, end and carry.

use std::net::SocketAddr;

use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::{ModelInferRequest, ModelInferResponse};
use serde_json::{Value, json};

use crate::operator::ask;
use crate::plugins::post;
use crate::restarts::chunk;
use crate::server::{Call, Ended, Server, copy, models};
use crate::steps::parameter;

fn command(server: &Server, arguments: &[&str]) -> Ended {
    Call::sequor().environment("SEQUOR_SERVER", server.admin.unwrap().to_string()).arguments(arguments).end()
}

fn output_of(server: &Server, arguments: &[&str]) -> String {
    let ended = command(server, arguments);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    ended.stdout
}

/// Sends a step of a sequence of the running sum. Returns the sum, or the error.
fn step(http: SocketAddr, id: &Value, value: f64, start: bool) -> Result<f64, String> {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [value] });
    let body = json!({ "parameters": { "sequence_id": id, "sequence_start": start }, "inputs": [input] });
    let answer = post(http, "/v2/models/accumulator_fp32/infer", &body);
    answer["outputs"][0]["data"][0].as_f64().ok_or_else(|| answer["reason"].as_str().unwrap_or_default().to_owned())
}

/// A server whose sequences do not expire during the test.
fn server(flags: &[&str]) -> Server {
    let call = Call::serve("repository").arguments(flags);
    let model = call.folder.path().join("repository/accumulator_fp32");
    copy(&models().join("accumulator_fp32"), &model);
    std::fs::write(model.join("sequor.toml"), "schema = 1\n[sequence]\nidle = \"1h\"\n").unwrap();
    call.start()
}

const LIST: [&str; 4] = ["sequence", "list", "--model", "accumulator_fp32"];

#[test]
fn live_sequences_are_listed_and_text_ids_are_hidden() {
    let server = server(&[]);
    let (seven, call) = (json!(7), json!("call-77"));
    assert_eq!(step(server.http, &seven, 1.0, true), Ok(1.0));
    assert_eq!(step(server.http, &seven, 1.0, false), Ok(2.0));
    assert_eq!(step(server.http, &call, 5.0, true), Ok(5.0));
    let list = output_of(&server, &[&LIST[..], &["--sort", "step"]].concat());
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    let (head, tail) = (&lines[1][..4], &lines[1][lines[1].len() - 3..]);
    assert_eq!((head, tail), (&["7", "2", "idle", "1"][..], &["0", "8", "B"][..]), "{list}");
    assert!(lines[2][0].starts_with('#') && lines[2][0].len() == 17 && !list.contains("call-77"), "{list}");
    let (note, hash) = (list.lines().last().unwrap(), &lines[2][0]);
    assert!(list.contains("2 of 2 (2 in slots, 0 in backlog)\n#... is the hash of a text id"), "{list}");
    assert!(note.contains("sequor sequence show MODEL ID"), "{note}");
    assert!(!output_of(&server, &[&LIST[..], &["--limit", "0"]].concat()).contains('#'), "no hash needs no note");

    let all = output_of(&server, &["sequence", "list", "--sort", "step"]);
    assert_eq!(
        all.split_once('\n').map(|(model, rows)| (model, rows.lines().count())),
        Some(("accumulator_fp32", 5)),
        "{all}"
    );
    let none = output_of(&server, &["sequence", "list", "--resumable"]);
    assert_eq!(none, "no model has such sequences\n");

    let show = |id: &str| output_of(&server, &["sequence", "show", "accumulator_fp32", id]);
    assert!(show("7").lines().nth(1).unwrap().starts_with("7   2     idle"), "{}", show("7"));
    let shown = show("call-77");
    assert_eq!(shown.lines().nth(1).unwrap().split_whitespace().next(), Some(*hash), "the hash of this id");
    assert_eq!(command(&server, &["sequence", "show", "accumulator_fp32", "8"]).code, Some(5));
    assert_eq!(command(&server, &["sequence", "show", "accumulator_fp32", "7", "--text"]).code, Some(5));
    assert_eq!(command(&server, &["sequence", "list", "--model", "nope"]).code, Some(5));
    assert_eq!(command(&server, &["sequence", "list", "nope"]).code, Some(5));

    let drop = ["sequence", "drop", "accumulator_fp32", "7", "--reason", "stuck client"];
    assert_eq!(output_of(&server, &drop), "7 is dropped\n");
    assert_eq!(step(server.http, &seven, 1.0, false), Err("dropped".to_owned()));
    assert!(show("7").starts_with("7 ended ") && show("7").ends_with(" ago: dropped; its last step was 2\n"));
    assert_eq!(command(&server, &drop).code, Some(5), "it does not live any more");
    output_of(&server, &["sequence", "drop", "accumulator_fp32", "call-77"]);
    let ended = output_of(&server, &[&LIST[..], &["--ended", "--reason", "dropped", "--since", "10m"]].concat());
    assert!(ended.contains("\n2 of 2\n#... is ") && !ended.contains("call-77"), "{ended}");
    assert!(output_of(&server, &[&LIST[..], &["--ended", "--reason", "expired"]].concat()).ends_with("0 of 0\n"));
    let page = ask(server.admin.unwrap(), "GET", "/", "text/html", b"").1;
    assert!(page.contains("is the hash of a text id") && !page.contains("call-77"), "{page}");
    assert!(output_of(&server, &["status"]).contains("#... is the hash of a text id"));
    let log = server.stop().stderr;
    assert!(log.contains("what=\"sequence drop\" on=\"accumulator_fp32 7 (stuck client)\""), "{log}");
    assert!(!log.contains("call-77"), "{log}");
}

#[test]
fn states_can_be_exported_and_imported_only_if_allowed() {
    let closed = server(&[]);
    let state = closed.process.folder().join("7.safetensors").display().to_string();
    let export = ["sequence", "export", "accumulator_fp32", "7", "--to", &state];
    step(closed.http, &json!(7), 3.0, true).unwrap();
    let refused = command(&closed, &export);
    assert!(refused.code == Some(5) && refused.stderr.contains("[admin] peek = true"), "{}", refused.stderr);

    let open = server(&["--admin-peek=true", "--admin-upload=true"]);
    let call = json!("call-77");
    step(open.http, &call, 40.0, true).unwrap();
    assert!(output_of(&open, &LIST).contains("\"call-77\""));
    let message = output_of(&open, &["sequence", "export", "accumulator_fp32", "call-77", "--to", &state]);
    assert!(message.starts_with(&state), "{message}");
    let import = ["sequence", "import", "accumulator_fp32", "9", "--from", &state];
    output_of(&open, &import);
    assert_eq!(step(open.http, &json!(9), 2.0, false), Ok(42.0), "it goes on from there");
    assert_eq!(command(&open, &import).code, Some(5), "it lives there now");
    let fork = ["sequence", "fork", "accumulator_fp32", "9", "--as", "10"];
    assert_eq!(output_of(&open, &fork), "10 goes on from a copy of 9\n");
    assert_eq!(step(open.http, &json!(10), 100.0, false), Ok(142.0));
    assert_eq!(step(open.http, &json!(9), 1.0, false), Ok(43.0), "the two go on apart");
    assert_eq!(command(&open, &fork).code, Some(5), "10 lives now");
    let refused = command(&closed, &["sequence", "import", "accumulator_fp32", "9", "--from", &state]);
    assert!(refused.stderr.contains("[admin] upload = true"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captured_sequence_replays_bit_for_bit_with_its_own_model_alone() {
    let call = Call::serve("repository").arguments(["--admin-capture", "8MiB"]);
    let folder = call.folder.path().to_owned();
    copy(&models().join("vad"), &folder.join("repository/vad"));
    let server = call.start();
    let mut client = server.client().await;
    for n in 0..4 {
        client.model_infer(chunk(7, n)).await.unwrap();
    }
    let at = server.admin.unwrap().to_string();
    let file = folder.join("7.safetensors").display().to_string();
    let capture = ["sequence", "capture", "vad/7", "--steps", "12", "--to", &file].map(str::to_owned);
    let capture = Call::sequor().environment("SEQUOR_SERVER", at).arguments(capture);
    let capture = tokio::task::spawn_blocking(move || capture.end());
    let mut n = 4;
    while !capture.is_finished() {
        client.model_infer(chunk(7, n)).await.unwrap();
        n += 1;
    }
    let ended = capture.await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.ends_with("12 steps; the capture ended by: steps\n"), "{}", ended.stdout);

    let replay = |model: &std::path::Path| {
        Call::sequor().arguments(["replay".as_ref(), file.as_ref(), "--model".as_ref(), model.as_os_str()]).end()
    };
    let repository =
        Call::sequor().arguments(["replay".as_ref(), file.as_ref(), folder.join("repository").as_os_str()]).end();
    assert_eq!(repository.code, Some(0), "{repository:?}");
    let same = replay(&folder.join("repository/vad"));
    assert_eq!((same.code, same.stderr.as_str()), (Some(0), ""), "{same:?}");
    assert!(same.stdout.ends_with("12 of 12 steps are equal, bit for bit\n"), "{}", same.stdout);
    let other = folder.join("other/vad");
    copy(&models().join("vad"), &other);
    std::fs::write(other.join("1/notes.txt"), "of another day").unwrap();
    let refused = replay(&other);
    assert!(refused.code == Some(3) && refused.stderr.contains("are not those of the capture"), "{refused:?}");

    drop(client);
    let log = server.stop().stderr;
    assert!(log.contains("what=\"sequence capture\" on=\"vad 7 (at most 12 steps)\""), "{log}");
}

#[test]
fn sequences_are_captured_only_where_that_is_allowed() {
    let server = server(&[]);
    step(server.http, &json!(7), 1.0, true).unwrap();
    let file = server.process.folder().join("7.safetensors").display().to_string();
    let capture = ["sequence", "capture", "accumulator_fp32", "7", "--to", &file];
    let refused = command(&server, &capture);
    assert!(refused.code == Some(5) && refused.stderr.contains("[admin] capture"), "{}", refused.stderr);
    let log = server.stop().stderr;
    assert!(log.contains("what=\"sequence capture\"") && log.contains("refused"), "{log}");
}

/// Over JSON and over gRPC. `docs/copy-a-state.md` has the same with Triton's client.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_gives_a_sequence_its_first_state_and_branches_it() {
    let call = Call::serve("repository");
    let model = call.folder.path().join("repository/accumulator_fp32");
    copy(&models().join("accumulator_fp32"), &model);
    std::fs::write(model.join("sequor.toml"), "[sequence]\nidle = \"1h\"\nclient_state = true\n").unwrap();
    let server = call.start();
    let infer = |parameters: Value, value: f64, state: Option<f64>| {
        let tensor = |name: &str, x: f64| json!({ "name": name, "shape": [1, 1], "datatype": "FP32", "data": [x] });
        let inputs: Vec<Value> = [Some(tensor("INPUT", value)), state.map(|state| tensor("INPUT_STATE", state))]
            .into_iter()
            .flatten()
            .collect();
        let body = json!({ "parameters": parameters, "inputs": inputs });
        post(server.http, "/v2/models/accumulator_fp32/infer", &body)["outputs"][0]["data"][0].as_f64()
    };
    assert_eq!(infer(json!({ "sequence_id": 7, "sequence_start": true }), 5.0, Some(100.0)), Some(105.0));
    assert_eq!(infer(json!({ "sequence_id": 7 }), 1.0, None), Some(106.0));
    let copied = json!({ "sequence_id": "call-77", "sequence_start": true, "sequence_from": 7 });
    assert_eq!(infer(copied, 2.0, None), Some(108.0));
    assert_eq!(infer(json!({ "sequence_id": 7 }), 1.0, None), Some(107.0));
    let from_text = json!({ "sequence_id": 8, "sequence_start": true, "sequence_from": "call-77" });
    assert_eq!(infer(from_text, 1.0, None), Some(109.0));

    let parameters = [
        ("sequence_id", ParameterChoice::Int64Param(9)),
        ("sequence_start", ParameterChoice::BoolParam(true)),
        ("sequence_from", ParameterChoice::StringParam("call-77".to_owned())),
    ];
    let input = |name: &str| InferInputTensor {
        name: name.to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![1, 1],
        ..InferInputTensor::default()
    };
    let raw = |x: f32| bytes::Bytes::from(x.to_le_bytes().to_vec());
    let request = ModelInferRequest {
        model_name: "accumulator_fp32".to_owned(),
        parameters: parameters.into_iter().map(|(name, value)| (name.to_owned(), parameter(value))).collect(),
        inputs: vec![input("INPUT")],
        raw_input_contents: vec![raw(1.0)],
        ..ModelInferRequest::default()
    };
    let first =
        |answer: &ModelInferResponse| f32::from_le_bytes(answer.raw_output_contents[0][..4].try_into().unwrap());
    let answer = server.client().await.model_infer(request.clone()).await.unwrap().into_inner();
    assert_eq!(first(&answer), 109.0);
    // A state in the request overrides the copy.
    let with_state = ModelInferRequest {
        inputs: vec![input("INPUT_STATE"), input("INPUT")],
        raw_input_contents: vec![raw(1000.0), raw(1.0)],
        ..request
    };
    let answer = server.client().await.model_infer(with_state).await.unwrap().into_inner();
    assert_eq!(first(&answer), 1001.0);
}
