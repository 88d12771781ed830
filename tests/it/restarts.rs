//! Tests sequences over restarts of the real program: planned restarts lose no step, and after a kill a sequence continues from its last
//! answer.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{ModelInferRequest, ModelInferResponse, RepositoryModelLoadRequest};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::server::{Call, Server, copy, models};
use crate::steps::{STRATEGIES, accumulators, metric, parameter, step, sum};

type Client = GrpcInferenceServiceClient<Channel>;

/// Sequences that continue while the server restarts, by default.
const STREAMS: u64 = 200;
/// Number of kills, unless SEQUOR_KILLS sets another one.
const KILLS: u64 = 10;

fn kills() -> u64 {
    std::env::var("SEQUOR_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS)
}

/// Number of sequences that continue, unless SEQUOR_STREAMS sets another one.
fn streams() -> u64 {
    std::env::var("SEQUOR_STREAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(STREAMS)
}

/// A folder with a repository of models with durable sequences, and the store's directory.
fn kept(when: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("models");
    // A slot for each stream of both models.
    let slots = u32::try_from(streams().div_ceil(2)).unwrap().max(256);
    accumulators(&repository, slots, 600_000_000);
    copy(&models().join("vad"), &repository.join("vad"));
    for model in STRATEGIES.iter().chain(&["vad"]) {
        let path = repository.join(model).join("sequor.toml");
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        write!(file, "\n[durability]\nwhen = \"{when}\"\n").unwrap();
    }
    folder
}

fn serve(folder: &Path) -> Server {
    let call = Call::serve(folder.join("models")).arguments(["--state-dir".as_ref(), folder.join("state").as_os_str()]);
    call.start()
}

/// Like `serve`, in control mode explicit.
fn serve_explicit(folder: &Path) -> Server {
    let call = Call::serve(folder.join("models")).arguments(["--state-dir".as_ref(), folder.join("state").as_os_str()]);
    call.arguments(["--model-control-mode=explicit", "--load-model=*"]).start()
}

fn numbered(mut request: ModelInferRequest, number: u64) -> ModelInferRequest {
    let number = ParameterChoice::Int64Param(i64::try_from(number).unwrap());
    request.parameters.insert("sequence_step".to_owned(), parameter(number));
    request
}

async fn client(address: SocketAddr) -> Result<Client, Status> {
    let connected = GrpcInferenceServiceClient::connect(format!("http://{address}")).await;
    connected.map_err(|e| Status::unavailable(e.to_string()))
}

/// The answer of a numbered step is stored with the state, so it finds no room. Without its number the step takes no more bytes than the one before.
#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_goes_on_after_a_step_that_a_full_store_refused() {
    let (folder, model) = (kept("step"), STRATEGIES[0]);
    let server = serve(folder.path());
    let mut at = client(server.grpc).await.unwrap();
    let next = |start| step(model, 7, String::new(), 5, start, false);
    at.model_infer(next(true)).await.unwrap();
    let limit = metric(&server, "sequor_store_bytes", &[]);
    assert!((150.0..200.0).contains(&limit), "docs/restarts.md has another figure: {limit}");
    server.stop();
    let call = Call::serve(folder.path().join("models"));
    let call = call.arguments(["--state-dir".as_ref(), folder.path().join("state").as_os_str()]);
    let server = call.arguments(["--state-disk-limit", &format!("{limit}B")]).start();
    let mut at = client(server.grpc).await.unwrap();
    for _ in 0..2 {
        let refused = at.model_infer(numbered(next(false), 2)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
        assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "store_failed", "{refused:?}");
        assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000", "{refused:?}");
    }
    let list = listed(&server, model);
    assert!(list.split_whitespace().any(|word| word == "7"), "it waits in the store: {list}");
    let answer = at.model_infer(next(false)).await.unwrap().into_inner();
    assert_eq!(sum(&answer), Some(10));
    assert_eq!(metric(&server, "sequor_sequences_rolled_back_total", &[model]), 2.0);
    server.stop();
    let server = serve(folder.path());
    let mut at = client(server.grpc).await.unwrap();
    let answer = at.model_infer(numbered(next(false), 3)).await.unwrap().into_inner();
    assert_eq!(sum(&answer), Some(15), "there is room again");
}

/// Sends one step repeatedly until the current or the next server answers it.
async fn answered(
    client: &mut Option<Client>,
    server: &mut watch::Receiver<Option<SocketAddr>>,
    request: &ModelInferRequest,
) -> ModelInferResponse {
    loop {
        let at = *server.borrow_and_update();
        let Some(at) = at else {
            *client = None;
            server.changed().await.unwrap();
            continue;
        };
        let outcome = match client {
            Some(client) => client.model_infer(request.clone()).await,
            None => match self::client(at).await {
                Ok(connected) => client.insert(connected).model_infer(request.clone()).await,
                Err(status) => Err(status),
            },
        };
        match outcome {
            Ok(answer) => return answer.into_inner(),
            Err(status) => {
                // The connection is lost, but no applied step is: otherwise the server would refuse the step's number.
                let gone =
                    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal);
                assert!(gone, "{status:?}");
                *client = None;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_at_pace_lose_no_step_over_a_planned_restart() {
    for when in ["drain", "step"] {
        let (folder, all) = (kept(when), streams());
        let first = serve(folder.path());
        let (sender, addresses) = watch::channel(Some(first.grpc));
        let enough = Arc::new(AtomicBool::new(false));
        let (steps, gap) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stream = |id: u64| {
            let (mut addresses, enough, steps, gap) = (addresses.clone(), enough.clone(), steps.clone(), gap.clone());
            async move {
                let model = STRATEGIES[id as usize % 2];
                let (mut client, mut total, mut n) = (None, 0, 0_u64);
                while !enough.load(Ordering::Relaxed) || n < 3 {
                    n += 1;
                    let value = i32::try_from(id * 7 + n).unwrap();
                    let request = step(model, i64::try_from(id).unwrap(), String::new(), value, n == 1, false);
                    let began = Instant::now();
                    let answer = answered(&mut client, &mut addresses, &numbered(request, n)).await;
                    gap.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
                    total += value;
                    assert_eq!(sum(&answer), Some(total), "sequence {id}, step {n}");
                    steps.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        let streams: Vec<_> = (1..=all).map(|id| tokio::spawn(stream(id))).collect();
        let reached = |count: u64| {
            let steps = steps.clone();
            async move {
                while steps.load(Ordering::Relaxed) < count {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        reached(all * 3).await;
        first.process.terminate();
        let ended = tokio::task::spawn_blocking(move || first.process.ended()).await.unwrap();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(!ended.stderr.contains("lost"), "{}", ended.stderr);
        sender.send(None).unwrap();
        let second = {
            let folder = folder.path().to_owned();
            tokio::task::spawn_blocking(move || serve(&folder)).await.unwrap()
        };
        sender.send(Some(second.grpc)).unwrap();
        let before = steps.load(Ordering::Relaxed);
        reached(before + all * 3).await;
        enough.store(true, Ordering::Relaxed);
        for stream in streams {
            stream.await.unwrap();
        }
        let ended = second.stop();
        let resumed = format!("{all} sequences to resume");
        assert!(ended.stdout.contains(&resumed), "{}", ended.stdout);
        let (steps, gap) = (steps.load(Ordering::Relaxed), gap.load(Ordering::Relaxed));
        println!("{when}: {all} streams, {steps} steps, none lost; the longest step over the restart took {gap} ms");
    }
}

/// The operators' list of sequences that wait for their next step.
fn listed(server: &Server, model: &str) -> String {
    let at = server.admin.unwrap().to_string();
    let call = Call::sequor().arguments(["sequence", "list", "--model", model, "--resumable", "--server", &at]);
    let ended = call.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

/// A chunk of speech-like sound.
pub(crate) fn chunk(id: i64, n: usize) -> ModelInferRequest {
    let samples = (0..576).map(|at| {
        let t = (n * 512 + at) as f32 / 16_000.0;
        0.3 * (t * 900.0).sin() * (t * 25.0).sin() + 0.1 * (t * 5_100.0).sin()
    });
    let mut request = step("vad", id, String::new(), 0, n == 0, false);
    request.inputs = vec![InferInputTensor {
        name: "input".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![1, 576],
        ..InferInputTensor::default()
    }];
    request.raw_input_contents = vec![samples.flat_map(f32::to_le_bytes).collect::<Vec<u8>>().into()];
    request
}

#[tokio::test]
async fn speech_outputs_over_restarts_equal_uninterrupted_ones_bit_for_bit() {
    let outputs = async |client: &mut Client, id: i64, chunks: std::ops::Range<usize>| {
        let mut outputs = Vec::new();
        for n in chunks {
            let answer = client.model_infer(chunk(id, n)).await.unwrap().into_inner();
            outputs.push(answer.raw_output_contents[0].clone());
        }
        outputs
    };
    for when in ["drain", "step"] {
        let folder = kept(when);
        let first = serve(folder.path());
        let mut client = first.client().await;
        let whole = outputs(&mut client, 1, 0..24).await;
        let mut parts = outputs(&mut client, 2, 0..8).await;
        drop(client);
        assert_eq!(first.stop().code, Some(0));
        for part in [8..16, 16..24] {
            let server = serve(folder.path());
            let listed = listed(&server, "vad");
            let mut rows = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let row = rows.find(|row| row[0] == "2").unwrap_or_else(|| panic!("{listed}"));
            assert_eq!(row[1..3], [part.start.to_string().as_str(), "1"], "{listed}");
            let mut client = server.client().await;
            parts.extend(outputs(&mut client, 2, part).await);
            drop(client);
            assert_eq!(server.stop().code, Some(0));
        }
        assert!(whole.windows(2).any(|pair| pair[0] != pair[1]), "it answers something");
        assert_eq!(parts, whole, "{when}");
    }
}

/// Sends numbered steps until the server is gone. `sent` is the number of the last answered step, and `durable` the last reported durable
/// step. Counts the answers.
async fn until_gone(
    server: SocketAddr,
    n: usize,
    mut sent: u64,
    mut durable: Option<u64>,
    answers: Arc<AtomicU64>,
) -> (u64, Option<u64>) {
    let (model, id) = (STRATEGIES[n % 2], 1 + n as i64);
    let Ok(mut client) = client(server).await else { return (sent, durable) };
    loop {
        // The last step may have been applied without an answer. It then gets its original answer.
        let at = sent + 1;
        let request = numbered(step(model, id, String::new(), at as i32, at == 1, false), at);
        match client.model_infer(request).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                let message = answer.parameters.get("sequor_durable_step").and_then(|p| p.parameter_choice.clone());
                if let Some(ParameterChoice::Int64Param(step)) = message {
                    durable = Some(step as u64);
                }
                let sum = sum(&answer).unwrap();
                assert_eq!(i64::from(sum), (at * (at + 1) / 2) as i64, "sequence {id}, step {at}");
                sent = at;
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(status) => {
                let refused = matches!(status.code(), Code::InvalidArgument | Code::FailedPrecondition);
                assert!(!refused, "{status:?}");
                return (sent, durable);
            }
        }
    }
}

/// The step that a sequence expects after a crash. A step far ahead is refused, and the refusal names the expected one. 1 if the server
/// does not know the sequence.
async fn expected(server: &Server, n: usize) -> u64 {
    let (model, id) = (STRATEGIES[n % 2], 1 + n as i64);
    let request = numbered(step(model, id, String::new(), 0, false, false), 1 << 40);
    let status = server.client().await.model_infer(request).await.unwrap_err();
    match status.code() {
        Code::InvalidArgument => 1,
        Code::FailedPrecondition => {
            let (_, rest) = status.message().split_once("expects step ").unwrap_or_else(|| panic!("{status:?}"));
            rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
        }
        _ => panic!("{status:?}"),
    }
}

/// Adds a version with the same graph to each model and loads it. The model's sequences continue on it.
async fn put_version(folder: &Path, server: &Server, version: u64) {
    for model in STRATEGIES {
        let at = folder.join("models").join(model);
        copy(&models().join("accumulator_int32/1"), &at.join(version.to_string()));
        let request =
            RepositoryModelLoadRequest { model_name: model.to_owned(), ..RepositoryModelLoadRequest::default() };
        server.client().await.repository_model_load(request).await.unwrap();
    }
}

/// Kills the process repeatedly, and continues eight sequences from the steps that the server expects. With `reloads`, each process first
/// loads a new version.
async fn killed(when: &str, reloads: bool, checks: impl Fn(usize, u64, Option<u64>, u64)) {
    let folder = kept(when);
    if reloads {
        for model in STRATEGIES {
            let path = folder.path().join("models").join(model).join("sequor.toml");
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            write!(file, "\n[reload]\ndrain = \"5ms\"\nthen = \"carry\"\n").unwrap();
        }
    }
    let mut answered = [(0_u64, None); 8];
    for round in 0..kills() {
        let server = if reloads { serve_explicit(folder.path()) } else { serve(folder.path()) };
        if round > 0 && when == "step" {
            let stored = ["sequor_store_sequences", "sequor_store_bytes"].map(|name| metric(&server, name, &[]));
            assert!(stored[0] == 8.0 && stored[1] > 8.0 * 4.0, "{stored:?}");
        }
        let (at, mut streams) = (server.grpc, Vec::new());
        let answers: [Arc<AtomicU64>; 8] = Default::default();
        for (n, (last, durable)) in answered.iter().copied().enumerate() {
            let expected = if last == 0 { 1 } else { expected(&server, n).await };
            checks(n, last, durable, expected);
            // The server may expect a step again that was already answered. The client then sends it again.
            let from = (expected - 1).min(last);
            let answers = Arc::clone(&answers[n]);
            streams.push(tokio::spawn(async move { until_gone(at, n, from, durable, answers).await }));
        }
        if reloads {
            put_version(folder.path(), &server, 2 + round).await;
        }
        // Each sequence continues in each process.
        let enough = 4 + 5 * (round * round % 7);
        let goes_on = |(stream, answers): (&JoinHandle<_>, &Arc<AtomicU64>)| {
            answers.load(Ordering::Relaxed) < enough && !stream.is_finished()
        };
        while streams.iter().zip(&answers).any(goes_on) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Kills the process.
        drop(server);
        for (last, stream) in answered.iter_mut().zip(streams) {
            *last = stream.await.unwrap();
        }
    }
    assert!(answered.iter().all(|(last, _)| *last > 3), "{answered:?}");
    let (kills, steps) = (kills(), answered.iter().map(|(last, _)| last).sum::<u64>());
    println!(
        "{when}: {kills} kills, 8 sequences, {steps} steps; no answered step lost beyond what was said, none applied twice"
    );
}

#[test]
fn a_sequence_of_the_stateful_backend_goes_on_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("models/accumulate");
    copy(&models().join("accumulate"), &model);
    fs::write(model.join("sequor.toml"), "[durability]\nwhen = \"step\"\n").unwrap();
    let next = |server: &Server, id: u64, start: bool| {
        let input = json!({ "name": "Input", "shape": [1, 4, 1, 5], "datatype": "FP32", "data": vec![1.0; 20] });
        let sequence = json!({ "sequence_id": id, "sequence_start": start });
        let body = json!({ "inputs": [input], "parameters": sequence });
        crate::plugins::post(server.http, "/v2/models/accumulate/infer", &body)["outputs"].clone()
    };
    let server = serve(folder.path());
    let [_, second, third] = [true, false, false].map(|start| next(&server, 8, start));
    assert!(second != third && third.is_array(), "each step changes the state: {third}");
    assert_eq!([true, false].map(|start| next(&server, 7, start))[1], second);
    // This kills the process.
    drop(server);
    assert_eq!(next(&serve(folder.path()), 7, false), third);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_loses_no_step_that_was_answered_and_applies_none_twice() {
    killed("step", false, |n, last, _, expected| {
        // The next step may have been applied without an answer.
        assert!(expected == last + 1 || expected == last + 2, "sequence {n}: {last} was answered, {expected} expected");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_after_a_reload_loses_no_step_that_was_answered() {
    killed("step", true, |n, last, _, expected| {
        assert!(expected == last + 1 || expected == last + 2, "sequence {n}: {last} was answered, {expected} expected");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_with_durability_every_loses_at_most_its_interval() {
    killed("every", false, |n, last, durable, expected| {
        let durable = durable.unwrap_or(0);
        assert!(expected > durable, "sequence {n}: step {durable} was durable, and {expected} is expected");
        assert!(last < expected + 10, "sequence {n}: {last} was answered, and {expected} is expected");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_of_the_service_manager_stay_open_over_a_restart() {
    for overlaps in [false, true] {
        let folder = kept("drain");
        let open = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (http, grpc) = (open(), open());
        let [http_at, grpc_at] = [&http, &grpc].map(|socket| socket.local_addr().unwrap());
        let path = folder.path().to_owned();
        let serve = move || {
            let ports = ["--http-port", &http_at.port().to_string(), "--grpc-port", &grpc_at.port().to_string()]
                .map(str::to_owned);
            let call = Call::sequor().arguments(["serve", "--metrics-port", "0", "--admin-port", "0"]).arguments(ports);
            let call = call.arguments(["--http-address", "127.0.0.1", "--grpc-address", "127.0.0.1"]);
            let call = call.environment("SEQUOR_DRAIN_ANNOUNCE", "0s");
            let call = call.arguments(["--model-repository".as_ref(), path.join("models").as_os_str()]);
            let call = call.arguments(["--state-dir".as_ref(), path.join("state").as_os_str()]);
            call.activated(&[&grpc, &http])
        };
        let first = serve().start();
        let (_sender, addresses) = watch::channel(Some(grpc_at));
        let enough = Arc::new(AtomicBool::new(false));
        let steps = Arc::new(AtomicU64::new(0));
        let stream = |id: u64| {
            let (mut addresses, enough, steps) = (addresses.clone(), enough.clone(), steps.clone());
            async move {
                let (mut client, mut total, mut n) = (None, 0, 0_u64);
                while !enough.load(Ordering::Relaxed) {
                    n += 1;
                    let request = step(STRATEGIES[id as usize % 2], id as i64, String::new(), 1, n == 1, false);
                    let answer = answered(&mut client, &mut addresses, &numbered(request, n)).await;
                    total += 1;
                    assert_eq!(sum(&answer), Some(total), "sequence {id}, step {n}");
                    steps.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        let running: Vec<_> = (1..=16).map(|id| tokio::spawn(stream(id))).collect();
        // No connection is ever refused.
        let (connects, over) = (Arc::new(AtomicU64::new(0)), enough.clone());
        let counted = connects.clone();
        let knocking = tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                tokio::net::TcpStream::connect(http_at).await.expect("the socket is open");
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let reached = |count: u64| {
            let steps = steps.clone();
            async move {
                while steps.load(Ordering::Relaxed) < count {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        reached(100).await;
        let next = tokio::task::spawn_blocking(move || {
            // The new process may start before the old one has ended; it then waits for the store.
            let begun = overlaps.then(|| serve().begin());
            first.process.terminate();
            let ended = first.process.ended();
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            match begun {
                Some(process) => process.serving(),
                None => serve().start(),
            }
        });
        let second = next.await.unwrap();
        let before = steps.load(Ordering::Relaxed);
        reached(before + 100).await;
        enough.store(true, Ordering::Relaxed);
        for stream in running {
            stream.await.unwrap();
        }
        knocking.await.unwrap();
        assert!(connects.load(Ordering::Relaxed) > 10);
        let ended = second.stop();
        assert!(ended.stdout.contains("16 sequences to resume"), "{}", ended.stdout);
    }
}
