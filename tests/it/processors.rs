//! Tests a processor in front of a model on a real server, over every surface and with every possible answer. Requests are cancelled in
//! every stage. The processor is parked, and replaced while sequences continue.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use sequor_proto::ModelInferRequest;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tonic::transport::Channel;

use crate::operator::{ask, attached, logs, replace};
use crate::puppet::{PuppetOrder, PuppetProcessor};
use crate::server::{Call, Server, until};
use crate::steady::{Part, during};
use crate::steps::{accumulators, metric, step, sum};

/// A server with the running sum behind the puppet processor. Calls have more time than they need.
fn server(puppet: PuppetProcessor, slots: u32) -> Server {
    let call = Call::serve("repository").arguments(["--admin-upload=true", "--plugins-dir=plugins"]);
    let call = call.environment("SEQUOR_DRAIN_FINISH", "0s");
    let repository = call.folder.path().join("repository");
    accumulators(&repository, slots, 600_000_000);
    puppet.install(&call.folder.path().join("plugins"), &repository.join("oldest"), "time = \"60s\"\n");
    call.start()
}

/// The body of a step over HTTP.
fn body(input: &str, id: u64, value: Option<i32>, (start, end): (bool, bool)) -> Value {
    let tensor = |value: i32| json!({ "name": input, "shape": [1, 1], "datatype": "INT32", "data": [value] });
    let inputs: Vec<Value> = value.into_iter().map(tensor).collect();
    let parameters = json!({ "sequence_id": id, "sequence_start": start, "sequence_end": end });
    json!({ "parameters": parameters, "inputs": inputs, "outputs": [{ "name": "OUTPUT" }] })
}

fn send(http: SocketAddr, body: &Value) -> (u16, Value) {
    let path = "/v2/models/oldest/infer";
    let (status, text) = ask(http, "POST", path, "application/json", body.to_string().as_bytes());
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

fn output(answer: &Value) -> i64 {
    answer["outputs"][0]["data"][0].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

/// The sum of the answer to a step.
fn value(http: SocketAddr, id: u64, value: i32, start: bool) -> i64 {
    let (status, answer) = send(http, &body("INPUT", id, Some(value), (start, false)));
    assert_eq!(status, 200, "{answer}");
    output(&answer)
}

/// The status and the text of a refused step.
fn refused(http: SocketAddr, id: u64, order: PuppetOrder) -> (u16, String) {
    let (status, answer) = send(http, &body("INPUT", id, Some(order.value()), (false, false)));
    (status, answer["error"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned())
}

fn of_grpc(id: i64, value: i32, start: bool) -> ModelInferRequest {
    let mut request = step("oldest", id, String::new(), value, start, false);
    request.inputs[0].name = "VALUE".to_owned();
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_serves_over_every_protocol_and_hides_the_graphs_inputs() {
    let server = server(PuppetProcessor { renames: true, ..PuppetProcessor::default() }, 8);
    for at in ["", "/config"] {
        let (status, text) = server.get(&format!("/v2/models/oldest{at}"));
        let inputs = if at.is_empty() { "inputs" } else { "input" };
        let shown: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &shown[inputs][0]["name"]), (200, &json!("VALUE")), "{shown}");
        assert!(!text.contains("\"INPUT\""), "the graph's own is hidden: {text}");
    }
    let (status, answer) = send(server.http, &body("INPUT", 1, Some(5), (true, false)));
    assert_eq!(status, 400, "{answer}");
    // HTTP.
    let (status, answer) = send(server.http, &body("VALUE", 1, Some(5), (true, false)));
    assert_eq!((status, output(&answer)), (200, 5), "{answer}");
    // gRPC, in the same sequence.
    let mut client = server.client().await;
    let answer = client.model_infer(of_grpc(1, 10, false)).await.unwrap().into_inner();
    assert_eq!(sum(&answer), Some(15));
    // A stream.
    let requests = tokio_stream::iter([of_grpc(1, 100, false), of_grpc(1, PuppetOrder::Reply.value(), false)]);
    let mut replies = client.model_stream_infer(requests).await.unwrap().into_inner();
    let mut sums = Vec::new();
    while let Some(reply) = replies.next().await {
        let reply = reply.unwrap();
        assert_eq!(reply.error_message, "");
        sums.push(sum(&reply.infer_response.unwrap()));
    }
    assert_eq!(sums, [Some(115), Some(3)], "three steps so far");
    // A WebSocket.
    let stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
    let address = format!("ws://{}/v2/models/oldest/stream", server.http);
    let (mut socket, _) = tokio_tungstenite::client_async(address, stream).await.unwrap();
    for (value, want) in [(1000, 1115), (PuppetOrder::Reply.value(), 4)] {
        let body = body("VALUE", 1, Some(value), (false, false));
        socket.send(Message::text(body.to_string())).await.unwrap();
        let answer = socket.next().await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
        assert_eq!(output(&answer), want, "{answer}");
    }
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn every_answer_of_pre_reaches_the_client() {
    let server = server(PuppetProcessor::default(), 8);
    let http = server.http;
    assert_eq!([value(http, 7, 5, true), value(http, 7, 1, false)], [5, 6]);
    assert_eq!(value(http, 7, PuppetOrder::ThreeRuns.value(), false), 9, "three runs of 1, one answer");
    assert_eq!(value(http, 7, PuppetOrder::Reply.value(), false), 3, "no run: the count of steps");
    let (status, text) = refused(http, 7, PuppetOrder::Refuse);
    assert_eq!((status, text.as_str()), (429, "quota (processor 'puppet' of model 'oldest', code 5)"));
    assert_eq!(value(http, 7, 1, false), 10, "the sequence lives on");
    // An END without inputs runs once more, with the value that the processor kept.
    let (status, answer) = send(http, &body("INPUT", 7, None, (false, true)));
    assert_eq!((status, output(&answer)), (200, 14), "{answer}");
    assert_eq!(value(http, 8, 5, true), 5);
    assert_eq!(refused(http, 8, PuppetOrder::RefuseAndEnd).0, 429);
    let (status, text) = refused(http, 8, PuppetOrder::Reply);
    assert!(status == 400 && text.contains("sequence"), "{status} {text}");
    // A refusal after the run does not undo the run.
    assert_eq!(value(http, 9, 5, true), 5);
    assert_eq!(refused(http, 9, PuppetOrder::RefuseInPost).0, 429);
    assert_eq!(value(http, 9, 1, false), 7, "1 was added by the refused step");
    assert_eq!(server.stop().code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_is_prepared_while_it_waits_for_a_slot() {
    let server = server(PuppetProcessor::default(), 1);
    let http = server.http;
    assert_eq!(value(http, 1, 5, true), 5);
    let calls = || metric(&server, "sequor_plugin_call_seconds_count", &["hook=\"pre\""]);
    let before = calls();
    let waits = tokio::task::spawn_blocking(move || value(http, 2, 7, true));
    let backlogged = || metric(&server, "sequor_sequences_backlogged", &[]) >= 1.0;
    until("the START is prepared and waits", || calls() > before && backlogged());
    assert!(!waits.is_finished());
    let (status, _) = send(http, &body("INPUT", 1, Some(1), (false, true)));
    assert_eq!((status, waits.await.unwrap()), (200, 7));
    assert_eq!(server.stop().code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_step_ends_its_sequence_before_the_run_and_is_committed_after_it() {
    let server = server(PuppetProcessor::default(), 8);
    let http = server.http;
    let order = |id: i64, order: PuppetOrder| step("oldest", id, String::new(), order.value(), false, false);
    // Drops a step while its `pre` or `post` runs.
    let cancels = async |client: &mut GrpcInferenceServiceClient<Channel>, id: u64, slow: PuppetOrder| {
        assert_eq!(value(http, id, 5, true), 5);
        let hook = if slow == PuppetOrder::SlowPre { "hook=\"pre\"" } else { "hook=\"post\"" };
        let calls = || metric(&server, "sequor_plugin_call_seconds_count", &[hook]);
        let prepared = || metric(&server, "sequor_plugin_call_seconds_count", &["hook=\"pre\""]);
        let (before, steps) = (calls(), prepared());
        // The step is dropped while the call runs. For the slow post, `pre` has ended by then.
        let arrived = || match slow {
            PuppetOrder::SlowPre => metric(&server, "sequor_requests_in_flight", &[]) > 0.0,
            _ => prepared() > steps,
        };
        let mut pending = Box::pin(client.model_infer(order(id as i64, slow)));
        let since = Instant::now();
        while tokio::time::timeout(Duration::from_millis(1), &mut pending).await.is_err() && !arrived() {
            assert!(since.elapsed() < Duration::from_secs(180), "the step does not arrive");
        }
        drop(pending);
        until("the call ends", || calls() > before);
    };
    let mut client = server.client().await;
    // On a slow machine, a step may be answered before it is dropped.
    for attempt in 0.. {
        cancels(&mut client, 1, PuppetOrder::SlowPre).await;
        let (status, answer) = send(http, &body("INPUT", 1, Some(PuppetOrder::Reply.value()), (false, false)));
        if status == 400 {
            assert!(answer["error"].as_str().unwrap().contains("sequence"), "{answer}");
            break;
        }
        assert!(status == 200 && attempt < 20, "{status} {answer}");
    }
    cancels(&mut client, 2, PuppetOrder::SlowPost).await;
    assert_eq!(value(http, 2, 1, false), 7, "the cancelled step had run");
    assert_eq!(metric(&server, "sequor_requests_in_flight", &[]), 0.0);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_stateless_model_has_no_scratch() {
    let call = Call::serve("repository").arguments(["--plugins-dir=plugins"]);
    let model = call.folder.path().join("repository/sum");
    fs::create_dir_all(model.join("1")).unwrap();
    let tensor = |name: &str| format!(r#"{{ name: "{name}" data_type: TYPE_INT32 dims: [ -1 ] }}"#);
    let config = format!(
        "backend: \"onnxruntime\" max_batch_size: 8 input [ {}, {} ] output [ {}, {} ]",
        tensor("INPUT"),
        tensor("INPUT_STATE"),
        tensor("OUTPUT"),
        tensor("OUTPUT_STATE")
    );
    fs::write(model.join("config.pbtxt"), config).unwrap();
    fs::copy(crate::server::root().join("tests/models/sum_int32.onnx"), model.join("1/model.onnx")).unwrap();
    let folder = call.folder.path().join("plugins");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("puppet.wasm"), PuppetProcessor::default().component()).unwrap();
    fs::write(model.join("sequor.toml"), "[[plugins.processor]]\nuse = \"puppet\"\ntime = \"60s\"\n").unwrap();
    let server = call.start();
    let tensor =
        |name: &str, value: i32| json!({ "name": name, "shape": [1, 1], "datatype": "INT32", "data": [value] });
    for value in [1, PuppetOrder::Reply.value(), PuppetOrder::Reply.value()] {
        let body = json!({ "inputs": [tensor("INPUT", value), tensor("INPUT_STATE", 0)] });
        let path = "/v2/models/sum/infer";
        let (status, text) = ask(server.http, "POST", path, "application/json", body.to_string().as_bytes());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, output(&answer)), (200, i64::from(value == 1)), "{answer}");
    }
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_parked_processor_is_shown_everywhere_until_another_version_takes_its_place() {
    let server = server(PuppetProcessor::default(), 8);
    let http = server.http;
    assert_eq!(value(http, 7, 5, true), 5);
    for _ in 0..3 {
        let (status, text) = refused(http, 7, PuppetOrder::Trap);
        assert!(status == 500 && text.ends_with("sequence 7 lives on, and its state is as before"), "{status} {text}");
    }
    let (status, text) = refused(http, 7, PuppetOrder::Reply);
    assert!(status == 503 && text.contains("puppet is parked on oldest after 3 strikes"), "{status} {text}");
    let (status, text) = server.get("/v2/models/oldest/ready");
    assert!(status == 400 && text.contains("Model version not ready [puppet is parked on oldest"), "{status} {text}");
    assert_eq!(server.get("/v2/models/direct/ready").0, 200);
    let (_, index) = ask(http, "POST", "/v2/repository/index", "application/json", b"{}");
    let index: Value = serde_json::from_str(&index).unwrap();
    let row = index.as_array().unwrap().iter().find(|row| row["name"] == "oldest").unwrap();
    assert_eq!(row["state"], "UNAVAILABLE", "{row}");
    assert!(row["reason"].as_str().unwrap().starts_with("puppet is parked"), "{row}");
    let (_, page) = ask(server.admin.unwrap(), "GET", "/admin/status.json", "application/json", b"");
    assert!(page.contains("puppet is parked on oldest"), "{page}");
    let at = attached(&server, "puppet");
    assert_eq!(
        (&at["state"], &at["strikes"], &at["last_fault"]["kind"]),
        (&json!("parked"), &json!(3), &json!("trap"))
    );
    assert!(logs(&server, "puppet").last().unwrap().contains("The model is not ready"));
    assert_eq!(metric(&server, "sequor_plugin_traps_total", &["plugin=\"puppet\"", "reason=\"trap\""]), 3.0);
    let parked = || metric(&server, "sequor_plugin_parked", &["plugin=\"puppet\"", "model=\"oldest\""]);
    assert_eq!(parked(), 1.0);
    replace(&server, "puppet", &PuppetProcessor { step: 2, ..PuppetProcessor::default() }.component());
    assert_eq!((server.get("/v2/models/oldest/ready").0, parked()), (200, 0.0));
    assert_eq!(value(http, 7, 1, false), 6, "state and scratch are as they were");
    assert_eq!(
        value(http, 7, PuppetOrder::Reply.value(), false),
        3,
        "one step counted by the first version, and two by this"
    );
    let log = server.stop().stderr;
    for part in ["what=\"replace\"", "plugin=\"puppet\"", "sequor::audit"] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[test]
fn commands_show_replace_roll_back_and_park_the_plugin() {
    let server = server(PuppetProcessor::default(), 8);
    let http = server.http;
    assert_eq!(value(http, 7, 5, true), 5);
    let next = server.process.folder().join("next.wasm");
    fs::write(&next, PuppetProcessor { step: 2, ..PuppetProcessor::default() }.component()).unwrap();
    let next = next.display().to_string();
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
    assert!(output_of(&["list"]).contains("puppet"));
    let shown: Value = serde_json::from_str(&output_of(&["show", "puppet", "--output", "json"])).unwrap();
    let first = shown["sha256"].clone();
    assert_eq!((&shown["world"], &shown["attached"][0]["model"]), (&json!("processor"), &json!("oldest")), "{shown}");
    output_of(&["replace", "puppet", "--from", &next]);
    assert_eq!(value(http, 7, 1, false), 6);
    assert_eq!(value(http, 7, PuppetOrder::Reply.value(), false), 3, "one by the first version, two by the second");
    output_of(&["rollback", "puppet"]);
    let shown: Value = serde_json::from_str(&output_of(&["show", "puppet", "--output", "json"])).unwrap();
    assert_eq!(shown["sha256"], first);
    output_of(&["park", "puppet"]);
    assert_eq!(refused(http, 7, PuppetOrder::Reply).0, 503);
    output_of(&["unpark", "puppet"]);
    assert_eq!(value(http, 7, PuppetOrder::Reply.value(), false), 3, "the scratch is as it was");
    output_of(&["logs", "puppet"]);
    for refused in [&["unload", "puppet"][..], &["attach", "puppet", "--model", "direct"]] {
        assert_eq!(command(refused).0, Some(5), "{refused:?}");
    }
    let log = server.stop().stderr;
    for what in ["replace", "rollback", "park", "unpark"] {
        assert!(log.contains(&format!("what=\"{what}\" plugin=\"puppet\"")), "{what}: {log}");
    }
}

#[test]
fn a_changed_file_takes_the_place_of_the_version_that_serves() {
    let server = server(PuppetProcessor::default(), 8);
    let http = server.http;
    assert_eq!(value(http, 7, 5, true), 5);
    let file = server.process.folder().join("plugins/puppet.wasm");
    let other = PuppetProcessor { step: 2, ..PuppetProcessor::default() };
    fs::write(file, other.component()).unwrap();
    let generations = || metric(&server, "sequor_plugin_reload_total", &["plugin=\"puppet\"", "result=\"ok\""]);
    until("the new version serves", || generations() >= 1.0);
    assert_eq!(value(http, 7, 1, false), 6);
    assert_eq!(value(http, 7, PuppetOrder::Reply.value(), false), 3, "one by the first version, two by the second");
    assert_eq!(server.stop().code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_a_processor_under_load_fails_no_step() {
    let server = server(PuppetProcessor::default(), 64);
    let http = server.http;
    let versions = [1, 2].map(|step| PuppetProcessor { step, ..PuppetProcessor::default() }.component());
    assert_eq!(value(http, 1_000_000, 5, true), 5);
    let parts = [Part::of("oldest", 32)];
    let (swaps, seen) = during(&server, &parts, async |progress| {
        progress.everybody(5).await;
        let mut swaps = 0;
        for n in 1..=10 {
            replace(&server, "puppet", &versions[n % 2]);
            swaps += 1;
            progress.everybody(2).await;
        }
        swaps
    })
    .await;
    assert!(seen[0].wrong.is_empty() && swaps == 10, "{:#?}", seen[0].wrong);
    // Another size of scratch: live sequences finish on the old version.
    replace(&server, "puppet", &PuppetProcessor { step: 3, scratch: 16, ..PuppetProcessor::default() }.component());
    assert_eq!(value(http, 1_000_000, PuppetOrder::Reply.value(), false), 1, "the scratch is what it was");
    assert_eq!(value(http, 1_000_000, 1, false), 6);
    assert_eq!(value(http, 1_000_000, PuppetOrder::Reply.value(), false), 2, "the version before counts by 1");
    assert_eq!(value(http, 1_000_001, 5, true), 5);
    assert_eq!(value(http, 1_000_001, PuppetOrder::Reply.value(), false), 3, "a new sequence has the new version");
    assert_eq!(attached(&server, "puppet")["strikes"], 0);
    assert_eq!(server.stop().code, Some(0));
}

// === hostile processors ===

/// The expected result of an order: the status, a part of the text, and whether the sequence stays live.
const HOSTILE: [(PuppetOrder, u16, &str, bool); 12] = [
    (PuppetOrder::Trap, 500, "it gave up (unreachable), in pre", true),
    (PuppetOrder::Loop, 500, "time limit 1000020us in pre (1 KiB)", true),
    (PuppetOrder::Gigabyte, 500, "asked for 1.0 GiB", true),
    (PuppetOrder::WrongShape, 500, "must have 12 bytes", true),
    (PuppetOrder::WrongPort, 500, "answered for port 7 of 1", true),
    (PuppetOrder::WrongType, 500, "has the type FP32; INT32 is expected", true),
    (PuppetOrder::PortTwice, 500, "answered twice for \"INPUT\"", true),
    (PuppetOrder::TenThousandRuns, 400, "the request needs 10000 runs; the maximum is 4096", true),
    (PuppetOrder::ScratchOfGigabyte, 500, "in pre", true),
    (PuppetOrder::ScratchBeyond, 500, "left 9 bytes of scratch; plugin.toml says 8", true),
    (PuppetOrder::TrapInPost, 500, "it gave up (unreachable), in post", false),
    (PuppetOrder::LoopInPost, 500, "time limit 1000020us in post (1 KiB)", false),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_processor_harms_the_request_that_it_failed_and_no_other() {
    let call = Call::serve("repository").arguments(["--plugins-dir=plugins", "--plugins-strikes=1000000"]);
    let call = call.environment("SEQUOR_DRAIN_FINISH", "0s");
    let repository = call.folder.path().join("repository");
    accumulators(&repository, 64, 600_000_000);
    PuppetProcessor::default().install(
        &call.folder.path().join("plugins"),
        &repository.join("oldest"),
        "time = \"1s\"\n",
    );
    let server = call.start();
    let http = server.http;
    let parts = [Part::of("oldest", 16), Part::of("direct", 4)];
    let (_, alone) = during(&server, &parts, async |progress| progress.everybody(20).await).await;
    for (n, (order, status, text, lives)) in HOSTILE.into_iter().enumerate() {
        let id = 2_000_000 + n as u64;
        let (_, seen) = during(&server, &parts, async |progress| {
            assert_eq!(value(http, id, 5, true), 5);
            progress.everybody(5).await;
            let (is, what) = tokio::task::spawn_blocking(move || refused(http, id, order)).await.unwrap();
            assert!(is == status && what.contains(text), "{order:?}: {is} {what}");
            if lives {
                assert_eq!(
                    value(http, id, PuppetOrder::Reply.value(), false),
                    1,
                    "{order:?}: the scratch is as before"
                );
                assert_eq!(value(http, id, 1, false), 6, "{order:?}: the state is as before");
            } else {
                let (is, what) = refused(http, id, PuppetOrder::Reply);
                assert!(is == 400, "{order:?}: {is} {what}");
            }
            progress.everybody(5).await;
        })
        .await;
        for (part, seen) in parts.iter().zip(&seen) {
            assert!(seen.wrong.is_empty() && seen.sums() > 0, "{order:?}: {}: {:#?}", part.model, seen.wrong);
        }
        println!(
            "hostile processor: {order:?}: beside it p99 {:.1} ms, {:.1} ms without",
            seen[1].ms(0.99),
            alone[1].ms(0.99)
        );
    }
    // A refused END, and an instance that is lost between `pre` and `post`.
    assert_eq!(value(http, 1, 5, true), 5);
    let (status, _) = send(http, &body("INPUT", 1, Some(PuppetOrder::RefuseAndEnd.value()), (false, true)));
    assert_eq!(status, 429);
    assert_eq!(value(http, 1, 5, true), 5, "its id is free again");
    let slow = tokio::task::spawn_blocking(move || value(http, 1, PuppetOrder::SlowPost.value(), false));
    for _ in 0..8 {
        value(http, 2, 5, true);
        assert_eq!(refused(http, 2, PuppetOrder::Trap).0, 500);
    }
    assert_eq!(slow.await.unwrap(), 6);
    assert_eq!(server.stop().code, Some(0));
}
