//! Tests plug-ins that call other models: what hostile ones leave behind, and what their calls inherit.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use sequor_proto::ModelInferRequest;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::Channel;

use crate::operator::ask;
use crate::python::prepared;
use crate::server::{Call, Server, copy, root, until};
use crate::states::infer;
use crate::steady::{Part, during};
use crate::steps::{accumulators, metric};
use sequor::processing::calling_wat::{CALLS, PRE, REFUSES};
use sequor::processing::wat_guest::{ALIKE, WatGuest};

/// `plugins.instances`.
const INSTANCES: usize = 8;
const GRANTS: [&str; 5] =
    ["caller=model:echo", "caller=model:slow", "caller=model:refuser", "caller=model:absent", "back=model:scorer"];

fn write_plugin(folder: &Path, name: &str, extra: &str, pre: &str) {
    fs::create_dir_all(folder.join("plugins")).unwrap();
    let guest = WatGuest { extra, configure: ALIKE, pre, post: "unreachable", manifest: "wants = [\"pre\"]\n" };
    fs::write(folder.join(format!("plugins/{name}.wasm")), guest.component()).unwrap();
}

/// Writes a model of this plug-in. `takes` are the dimensions of its input.
fn write_model(folder: &Path, name: &str, takes: &str, toml: &str) {
    let model = folder.join("repository").join(name);
    fs::create_dir_all(&model).unwrap();
    let config = format!(
        "backend: \"python\" input [ {{ name: \"INPUT\" data_type: TYPE_INT32 dims: {takes} }} ]
         output [ {{ name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ 1 ] }} ]"
    );
    fs::write(model.join("config.pbtxt"), config).unwrap();
    fs::write(model.join("sequor.toml"), toml).unwrap();
}

/// Writes a graph whose output is its input, with this many elements a row.
fn write_echo(folder: &Path, name: &str, elements: i64, batching: &str) {
    let model = folder.join("repository").join(name);
    fs::create_dir_all(model.join("1")).unwrap();
    let tensor = |name: &str, dims: i64| format!("{{ name: \"{name}\" data_type: TYPE_INT32 dims: [ {dims} ] }}");
    let config = format!(
        "backend: \"onnxruntime\" max_batch_size: 64 dynamic_batching {{ {batching} }} input [ {} ] output [ {} ]
         instance_group [ {{ kind: KIND_CPU count: 1 }} ]",
        tensor("INPUT", elements),
        tensor("OUTPUT", -1)
    );
    fs::write(model.join("config.pbtxt"), config).unwrap();
    fs::copy(root().join("tests/models/echo_int32.onnx"), model.join("1/model.onnx")).unwrap();
}

/// A server with the calling plug-in and the models that it calls. `slow` answers when a test releases it, or after 30 seconds.
fn serve() -> Server {
    let call = Call::serve("repository").arguments(["--plugins-dir=plugins", "--model-control-mode=explicit"]);
    let call = call.arguments([format!("--plugins-instances={INSTANCES}")]);
    let call = call.arguments(GRANTS.map(|grant| format!("--plugins-grants={grant}")));
    let models = ["oldest", "direct", "echo", "slow", "refuser", "scorer"];
    let call = call.arguments(models.map(|model| format!("--load-model={model}")));
    let folder = call.folder.path();
    accumulators(&folder.join("repository"), 64, 600_000_000);
    write_echo(folder, "echo", 1, "");
    write_echo(folder, "slow", 2, "max_queue_delay_microseconds: 30000000 preferred_batch_size: [ 64 ]");
    write_plugin(folder, "caller", CALLS, PRE);
    write_plugin(folder, "back", CALLS, PRE);
    write_plugin(folder, "refuser", "", REFUSES);
    write_model(folder, "scorer", "[ 1 ]", "[model]\nplugin = \"caller\"\ntime = \"60s\"\n");
    write_model(folder, "refuser", "[ 1, 1 ]", "[model]\nplugin = \"refuser\"\n");
    write_model(folder, "absent", "[ 1, 1 ]", "[model]\nplugin = \"back\"\n");
    call.start()
}

fn request(value: i32) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "scorer".to_owned(),
        inputs: vec![InferInputTensor {
            name: "INPUT".to_owned(),
            datatype: "INT32".to_owned(),
            shape: vec![1],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![value.to_le_bytes().to_vec().into()],
        ..ModelInferRequest::default()
    }
}

type Client = GrpcInferenceServiceClient<Channel>;

/// The answer of `scorer`'s plug-in.
async fn scored(client: &Client, value: i32) -> Result<i32, Status> {
    let answer = client.clone().model_infer(request(value)).await?.into_inner();
    Ok(i32::from_le_bytes(answer.raw_output_contents[0][..4].try_into().unwrap()))
}

/// Sends the same request in a task. Aborting the task cancels the request.
fn begin(client: &Client, value: i32) -> JoinHandle<Result<i32, Status>> {
    let client = client.clone();
    tokio::spawn(async move { scored(&client, value).await })
}

fn suspended(server: &Server) -> f64 {
    metric(server, "sequor_plugin_model_calls", &[])
}

fn instances(server: &Server, model: &str) -> f64 {
    metric(server, "sequor_plugin_instances", &[&format!("model=\"{model}\"")])
}

/// Makes `slow` answer, by filling its batch.
async fn release(client: &Client) {
    let mut request = request(2);
    request.model_name = "slow".to_owned();
    request.inputs[0].shape = vec![64, 2];
    request.raw_input_contents = vec![vec![0; 64 * 2 * 4].into()];
    client.clone().model_infer(request).await.unwrap();
}

/// Loads or unloads a model.
fn control(server: &Server, model: &str, what: &str) -> (u16, String) {
    ask(server.http, "POST", &format!("/v2/repository/models/{model}/{what}"), "application/json", b"{}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_calls_harm_no_other_model_and_leave_nothing_behind() {
    let server = serve();
    let client = server.client().await;
    let parts = [Part::of("oldest", 8), Part::of("direct", 4)];
    let (_, seen) = during(&server, &parts, async |progress| {
        assert_eq!(scored(&client, 40).await.unwrap(), 40);
        // Calls that fail: not granted, refused by the model, to itself, to an absent model.
        for (value, code) in [(1, -3), (3, -5), (4, -3), (6, -4)] {
            assert_eq!(scored(&client, value).await.unwrap(), code, "{value}");
        }
        assert_eq!(scored(&client, 5).await.unwrap(), 10_000, "ten thousand calls in one request");
        // Two models that may call each other.
        let (status, text) = control(&server, "absent", "load");
        assert!(status == 500 && text.contains("it may call models that may call 'absent' in turn"), "{status} {text}");

        // More requests than instances, so that some wait. Two are cancelled while they are suspended, and one while it waits.
        let mut slow: Vec<_> = (0..INSTANCES).map(|_| begin(&client, 2)).collect();
        progress.until("all instances are suspended", || suspended(&server) == INSTANCES as f64).await;
        assert_eq!(instances(&server, "scorer"), INSTANCES as f64);
        slow.extend((0..5).map(|_| begin(&client, 2)));
        progress.everybody(5).await;
        for gone in [0, 1, INSTANCES] {
            slow[gone].abort();
        }
        while slow.iter().any(|waits| !waits.is_finished()) {
            release(&client).await;
        }
        let mut answers = Vec::new();
        for waits in slow.drain(..) {
            if let Ok(answer) = waits.await {
                answers.push(answer.unwrap());
            }
        }
        assert!(answers.len() >= INSTANCES + 2 && answers.iter().all(|answer| *answer == 2), "{answers:?}");
        assert!(instances(&server, "scorer") <= INSTANCES as f64, "plugins.instances");

        // The called model is unloaded meanwhile.
        let slow: Vec<_> = (0..4).map(|_| begin(&client, 2)).collect();
        progress.until("four are suspended", || suspended(&server) == 4.0).await;
        assert_eq!(control(&server, "slow", "unload").0, 200);
        for waits in slow {
            let answer = waits.await.unwrap().unwrap();
            assert!([2, -2, -4].contains(&answer), "{answer}");
        }
        assert_eq!(scored(&client, 2).await.unwrap(), -4, "it is no longer there");
        assert_eq!(scored(&client, 41).await.unwrap(), 41);
        progress.everybody(5).await;
    })
    .await;
    for (part, seen) in parts.iter().zip(&seen) {
        assert!(seen.wrong.is_empty() && seen.sums() > 0, "{}: {:#?}", part.model, seen.wrong);
    }
    nothing_is_left(&server);
    assert_eq!(server.stop().code, Some(0));
}

/// Checks that no calls, slots and requests are left, and no instances of unloaded models.
fn nothing_is_left(server: &Server) {
    assert_eq!(metric(server, "sequor_plugin_traps_total", &[]), 0.0, "no call was a strike");
    let used = || metric(server, "sequor_slots", &["state=\"used\""]);
    until_zero("calls", || suspended(server));
    until_zero("slots", used);
    until_zero("requests", || metric(server, "sequor_requests_in_flight", &[]));
    until_zero("sequences", || metric(server, "sequor_sequences_live", &[]));
    // Warm instances stay, up to the maximum.
    assert!((1.0..=INSTANCES as f64).contains(&instances(server, "scorer")));
    for model in ["scorer", "refuser"] {
        assert_eq!(control(server, model, "unload").0, 200);
    }
    until_zero("instances", || metric(server, "sequor_plugin_instances", &[]));
}

fn until_zero(what: &str, count: impl Fn() -> f64) {
    until(&format!("{what} are at zero"), || count() == 0.0);
}

/// Answers with its first key; for an input of 101, with its first number.
const WITNESS: &str = "
    (if (i32.eq (i32.load (i32.load offset=20 (local.get 11))) (i32.const 101)) (then
        (return (call $reply (call $one (i32.trunc_f64_s (f64.load (local.get 3)))) (i32.const 1)))))
    (call $reply (call $one (i32.wrap_i64 (i64.load (local.get 5)))) (i32.const 1))";

/// Features of the trace headers of a request.
const FEATURES: &str = r#"
[[feature]]
name = "trace"
from = "header"
key = "traceparent"
type = "key"
[[feature]]
name = "request"
from = "header"
key = "x-request-id"
type = "number"
"#;

/// The model's answer to a request with these headers and parameters.
fn traced(http: SocketAddr, model: &str, shape: &Value, value: i32, headers: &str, parameters: &Value) -> i64 {
    let input = json!({ "name": "INPUT", "datatype": "INT32", "shape": shape, "data": [value] });
    let body = json!({ "inputs": [input], "parameters": parameters }).to_string();
    let mut stream = TcpStream::connect(http).unwrap();
    let head = format!("POST /v2/models/{model}/infer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let object: Value = serde_json::from_str(body).unwrap();
    object["outputs"][0]["data"][0].as_i64().unwrap()
}

#[test]
fn a_call_has_the_trace_of_its_request_and_its_priority_and_deadline() {
    let call = Call::serve("repository").arguments(["--plugins-dir=plugins", "--record=trace.jsonl"]);
    let call = call.arguments(["--plugins-grants=caller=model:echo"]);
    let folder = call.folder.path();
    write_plugin(folder, "caller", CALLS, PRE);
    write_plugin(folder, "witness", CALLS, WITNESS);
    write_model(folder, "scorer", "[ 1 ]", "[model]\nplugin = \"caller\"\n");
    write_model(folder, "echo", "[ 1, 1 ]", &format!("{FEATURES}[model]\nplugin = \"witness\"\n"));
    let server = call.arguments(["--plugins-grants=witness=model:none"]).start();
    let (whole, row) = (json!([1]), json!([1, 1]));
    let none = json!({});
    let trace = |n: u32| format!("traceparent: 00-0af7651916cd43dd8448eb211c80319{n}-b7ad6b7169203331-01\r\n");
    for n in 1..4 {
        let direct = traced(server.http, "echo", &row, 100, &trace(n), &none);
        assert_eq!(traced(server.http, "scorer", &whole, 100, &trace(n), &none), direct, "{n}");
        assert_ne!(traced(server.http, "scorer", &whole, 100, &trace(n + 1), &none), direct, "{n}");
    }
    assert_eq!(traced(server.http, "scorer", &whole, 101, "x-request-id: 4711\r\n", &none), 4711);
    // The recording has the request and its call.
    let parameters = json!({ "priority": 7, "timeout": 50_000_000 });
    traced(server.http, "scorer", &whole, 100, "", &parameters);
    let file = server.process.folder().join("trace.jsonl");
    // The recording is complete once the server has ended.
    let copied = tempfile::tempdir().unwrap();
    let kept = copied.path().join("trace.jsonl");
    fs::hard_link(&file, &kept).or_else(|_| fs::copy(&file, &kept).map(drop)).unwrap();
    assert_eq!(server.stop().code, Some(0));
    let lines = fs::read_to_string(&kept).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |model: &str| {
        let found = lines.iter().find(|line| line["model"] == model && line["priority"] == 7);
        found.unwrap_or_else(|| panic!("{model}: {lines:#?}")).clone()
    };
    let (request, called) = (of("scorer"), of("echo"));
    assert_eq!(request["timeout_us"], 50_000_000);
    let left = called["timeout_us"].as_u64().unwrap();
    assert!((1..=50_000_000).contains(&left), "{left}: what is left of it");
}

#[test]
fn a_plugin_built_from_the_wasi_nn_wit_returns_the_models_own_answer() {
    let call = Call::serve("repository").environment("SEQUOR_PLUGINS_DIR", prepared("SEQUOR_GUESTS"));
    let call = call.arguments(["--plugins-grants=nn-model=model:joiner"]);
    let repository = call.folder.path().join("repository");
    copy(&root().join("examples/transducer/repository/joiner"), &repository.join("joiner"));
    let config = fs::read_to_string(repository.join("joiner/config.pbtxt")).unwrap();
    let config = config.replace("name: \"joiner\"", "name: \"over_wasi_nn\"");
    let config = config.replace("backend: \"onnxruntime\"", "backend: \"python\"");
    fs::create_dir_all(repository.join("over_wasi_nn")).unwrap();
    fs::write(repository.join("over_wasi_nn/config.pbtxt"), config).unwrap();
    let toml = "[model]\nplugin = \"nn-model\"\ntime = \"10s\"\nconfig = { model = \"joiner\" }\n";
    fs::write(repository.join("over_wasi_nn/sequor.toml"), toml).unwrap();
    let server = call.environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE")).start();
    for n in 0..5u16 {
        let input = |name: &str, of: u16| {
            let data: Vec<f32> = (0..32).map(|i| f32::from((i * of + n) % 17) / 8.0 - 1.0).collect();
            json!({ "name": name, "datatype": "FP32", "shape": [1, 32], "data": data })
        };
        let body = json!({ "inputs": [input("encoder_out", 5), input("decoder_out", 7)] });
        let own = infer(&server, "joiner", &body).unwrap();
        assert_eq!(infer(&server, "over_wasi_nn", &body).unwrap(), own, "{n}");
    }
    assert_eq!(metric(&server, "nv_inference_request_success", &["model=\"joiner\""]), 10.0);
    assert_eq!(server.stop().code, Some(0));
}
