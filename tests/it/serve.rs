//! Tests a server's life: its output when it serves, and its shutdown.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferParameter, ModelInferRequest};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::server::{Call, Server, copy, get, models, runtime, sequor};

type Client = GrpcInferenceServiceClient<Channel>;

/// The interval of polls in tests that must wait.
const LOOK: Duration = Duration::from_millis(5);

// === what it says ===

/// A model's line without the parts that differ between machines and runs: the memory limit and the time.
fn steady(line: &str) -> &str {
    line.split(" (limit ").next().unwrap_or(line)
}

#[test]
fn the_server_prints_its_models_and_listeners_at_the_start() {
    let server = Server::of_models();
    assert_eq!(server.get("/v2/health/live"), (200, String::new()));
    assert_eq!(server.get("/v2/health/ready"), (200, String::new()));
    for model in ["accumulate", "accumulator_fp32", "accumulator_int32", "gru", "vad"] {
        assert_eq!(server.get(&format!("/v2/models/{model}/ready")).0, 200, "{model}");
    }
    let (status, metrics) = get(server.metrics, "/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("sequor_slots{model=\"vad\",version=\"1\",state=\"free\"} 512\n"), "{metrics}");

    let (http, grpc, at, admin) = (server.http, server.grpc, server.metrics, server.admin.unwrap());
    let ended = server.stop();
    assert_eq!(ended.code, Some(0));
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [head, models @ .., listens, ready] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(
        head.starts_with(concat!("sequor ", env!("CARGO_PKG_VERSION"), "   node "))
            && head.contains("   config none   onnxruntime 1."),
        "{head}"
    );
    assert_snapshot!(models.iter().map(|line| steady(line)).collect::<Vec<_>>().join("\n"));
    let message = format!("http  {http}   grpc  {grpc}   metrics  {at}   admin and status page  http://{admin}");
    assert_eq!(*listens, message);
    assert!(ready.starts_with("ready in ") && ready.contains(" with 5 of 5 models.   try: "), "{ready}");
    assert!(ready.ends_with(&format!("curl localhost:{}/v2", http.port())), "{ready}");
}

/// A model with a warm-up of hours.
#[test]
fn a_server_that_is_still_loading_stops_when_it_is_asked_to() {
    let repository = tempfile::tempdir().unwrap();
    let model = repository.path().join("accumulator_fp32");
    fs_err::create_dir_all(model.join("1")).unwrap();
    let from = models().join("accumulator_fp32");
    fs_err::copy(from.join("1/model.onnx"), model.join("1/model.onnx")).unwrap();
    let config = fs_err::read_to_string(from.join("config.pbtxt")).unwrap();
    let input = "inputs { key: \"INPUT\" value { data_type: TYPE_FP32 dims: 1 zero_data: true } }";
    let warm_up = format!("{config}\nmodel_warmup {{ name: \"long\" batch_size: 1 count: 4000000000 {input} }}\n");
    fs_err::write(model.join("config.pbtxt"), warm_up).unwrap();
    let ended = Call::serve(repository.path()).begin().stop_after("sequor ");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped") && !ended.stdout.contains("ready in"), "{}{}", ended.stdout, ended.stderr);
}

#[test]
fn a_log_that_is_not_a_terminal_has_no_colours() {
    let ended = Server::of_models().stop();
    assert!(ended.stderr.contains(" stopping "), "{:?}", ended.stderr);
    assert!(!ended.stderr.contains('\x1b'), "{:?}", ended.stderr);
}

#[test]
fn log_levels_and_environment_variable_names_are_validated() {
    let ended = Call::serve(models()).arguments(["--log-level", "loud"]).end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.starts_with("sequor: log.level: \"loud\" is not a log level. Levels: error, "), "{ended:?}");
    let call = Call::serve(models()).arguments(["--log-level", "warning", "--http-thread-count=4"]);
    let ended = call.environment("SEQUOR_HTTP_PROT", "9").start().stop();
    let message = |what: &str| assert!(ended.stderr.contains(what), "{what}: {}", ended.stderr);
    message("--http-thread-count has no effect");
    message("SEQUOR_HTTP_PROT is not a setting; did you mean \"SEQUOR_HTTP_PORT\"?");
}

#[test]
fn the_log_can_be_json() {
    let ended = Call::serve(models()).arguments(["--log-format", "json"]).start().stop();
    let lines: Vec<serde_json::Value> = ended.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"] == "stopping"), "{}", ended.stderr);
}

#[test]
fn file_environment_and_flags_are_read() {
    let call = Call::serve(models());
    let file = call.folder.path().join("sequor.toml");
    std::fs::write(&file, "schema = 1\n[metrics]\nport = 1\ntriton_names = false\n[http]\nport = 2\n").unwrap();
    let server = call.environment("SEQUOR_CONFIG", &file).environment("SEQUOR_HTTP_PORT", "3").start();
    // Both ports are still those of the flags; otherwise the bind would have failed.
    let (_, metrics) = get(server.metrics, "/metrics");
    assert!(metrics.contains("sequor_requests_in_flight 0") && !metrics.contains("nv_inference_"), "{metrics}");
    let ended = server.stop();
    assert!(ended.stdout.contains(&format!("   config {}   ", file.display())), "{}", ended.stdout);
}

#[test]
fn explicit_mode_loads_only_the_models_named_by_load_model() {
    let explicit = |names: &[&str]| {
        let call = Call::serve(models()).arguments(["--model-control-mode=explicit"]);
        call.arguments(names.iter().map(|name| format!("--load-model={name}"))).start()
    };
    let server = explicit(&["gru", "nope"]);
    assert_eq!((server.get("/v2/models/gru/ready").0, server.get("/v2/models/vad/ready").0), (200, 400));
    assert_eq!(server.get("/v2/health/ready").0, 400, "nope is wanted and is not there");
    let message = server.stop().stdout;
    assert!(
        message.contains("  nope               -  REFUSED  ") && message.contains("serving 1 of 2 models after "),
        "{message}"
    );
    assert!(message.contains(", NOT READY: nope is refused (above). Repair or remove it"), "{message}");
    assert!(explicit(&["*"]).stop().stdout.contains(" with 5 of 5 models."));
}

/// The program that started the server may have ended, or may never read the output.
#[test]
fn the_server_serves_even_if_its_output_is_closed() {
    // An address that no other program uses, so that the port can be chosen before the server starts.
    let [.., a, b, c] = std::process::id().to_be_bytes();
    let port = TcpListener::bind((Ipv4Addr::new(127, a.max(1), b, c), 0)).unwrap().local_addr().unwrap();
    let (address, number) = (port.ip().to_string(), port.port().to_string());
    for is_closed in [false, true] {
        let mut call = Call::new(if is_closed { Path::new("sh") } else { sequor() });
        if is_closed {
            call = call.arguments(["-c", "exec \"$0\" \"$@\" >&-"]).arguments([sequor()]);
        } else {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            call.command.stdout(writer);
        }
        let call = call.environment("ORT_DYLIB_PATH", runtime()).environment("SEQUOR_DRAIN_ANNOUNCE", "0s");
        let call = call.arguments(["serve", "--http-address", &address, "--http-port", &number]);
        let call = call.arguments(["--allow-grpc=false", "--allow-metrics=false", "--admin-port", "0"]);
        let process = call.arguments([Path::new("--model-repository"), &models()]).begin();
        let hangs = Instant::now() + Duration::from_secs(180);
        while TcpStream::connect(port).is_err() || get(port, "/v2/health/ready").0 != 200 {
            assert!(Instant::now() < hangs);
            std::thread::sleep(LOOK);
        }
        // After it is ready it prints nothing more, and ends as usual.
        process.terminate();
        let ended = process.ended();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("drained=Clean"), "{}", ended.stderr);
    }
}

/// The environment of a `Type=notify` service: systemd passes a socket, and waits for messages on it.
#[test]
fn systemd_is_notified_when_it_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let next = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    };
    let server = Call::serve(models()).environment("NOTIFY_SOCKET", &path).start();
    assert_eq!(next(), "READY=1");
    assert_eq!(server.get("/v2/health/ready").0, 200);
    server.process.terminate();
    assert_eq!(next(), "STOPPING=1");
    assert_eq!(server.stop().code, Some(0));
}

// === the shutdown ===

fn step(id: i64, value: f32, start: bool, end: bool) -> ModelInferRequest {
    let parameter = |name: &str, choice| (name.to_owned(), InferParameter { parameter_choice: Some(choice) });
    ModelInferRequest {
        model_name: "accumulator_fp32".to_owned(),
        parameters: BTreeMap::from([
            parameter("sequence_id", ParameterChoice::Int64Param(id)),
            parameter("sequence_start", ParameterChoice::BoolParam(start)),
            parameter("sequence_end", ParameterChoice::BoolParam(end)),
        ]),
        inputs: vec![InferInputTensor {
            name: "INPUT".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, 1],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![value.to_le_bytes().to_vec().into()],
        ..ModelInferRequest::default()
    }
}

/// The running sum after a step.
async fn sum(client: &mut Client, request: ModelInferRequest) -> Result<f32, Status> {
    let answer = client.model_infer(request).await?.into_inner();
    Ok(f32::from_le_bytes(answer.raw_output_contents[0].as_ref().try_into().unwrap()))
}

fn draining(announce: &str, finish: &str) -> Server {
    let flags = ["--drain-announce", announce, "--drain-finish", finish, "--drain-exit-timeout", "50s"];
    let call = Call::serve("repository").arguments(flags);
    let model = call.folder.path().join("repository/accumulator_fp32");
    copy(&models().join("accumulator_fp32"), &model);
    std::fs::write(model.join("sequor.toml"), "schema = 1\n[sequence]\nidle = \"1h\"\n").unwrap();
    call.start()
}

/// Polls until the answer is `wanted`.
async fn until_ready_is(server: &Server, wanted: u16) {
    let hangs = Instant::now() + Duration::from_secs(180);
    while server.get("/v2/health/ready").0 != wanted {
        assert!(Instant::now() < hangs);
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_terminated_server_finishes_live_sequences_and_refuses_new_ones() {
    let server = draining("0s", "40s");
    let mut client = server.client().await;
    assert_eq!(sum(&mut client, step(1, 1.0, true, false)).await.unwrap(), 1.0);

    server.process.terminate();
    let mut others = 2..;
    let refused = loop {
        // Each is a whole sequence, so an accepted one is over before the next is tried.
        let one = step(others.next().unwrap(), 1.0, true, true);
        match sum(&mut client, one).await {
            Ok(total) => assert_eq!(total, 1.0),
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "draining");
    assert!(refused.message().contains("model 'accumulator_fp32' takes no new sequences"), "{refused:?}");
    assert_eq!(server.get("/v2/health/ready").0, 400);
    assert_eq!(server.get("/v2/health/live").0, 200);

    assert_eq!(sum(&mut client, step(1, 2.0, false, false)).await.unwrap(), 3.0);
    assert_eq!(sum(&mut client, step(1, 4.0, false, true)).await.unwrap(), 7.0);
    let ended = server.process.ended();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("drained=Clean"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_in_its_drain_announcement_still_accepts_new_sequences() {
    let server = draining("50s", "0s");
    let mut client = server.client().await;
    server.process.terminate();
    until_ready_is(&server, 400).await;
    assert_eq!(sum(&mut client, step(1, 1.0, true, true)).await.unwrap(), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_sequence_that_never_ends_does_not_block_the_shutdown() {
    let server = draining("0s", "1ms");
    let mut client = server.client().await;
    assert_eq!(sum(&mut client, step(1, 1.0, true, false)).await.unwrap(), 1.0);
    assert_eq!(server.stop().code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_second_signal_ends_it_at_once() {
    // Each wait alone is longer than the test's limit for a program to end.
    let flags = ["--drain-announce", "1h", "--drain-finish", "1h", "--drain-exit-timeout", "3h"];
    let server = Call::serve(models()).arguments(flags).start();
    let mut client = server.client().await;
    assert_eq!(sum(&mut client, step(1, 1.0, true, false)).await.unwrap(), 1.0);
    server.process.terminate();
    until_ready_is(&server, 400).await;
    assert_eq!(server.stop().code, Some(0));
}
