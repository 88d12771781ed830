//! Measures the time of `/v2/health/live` next to a model with short steps and an occasional slow one. A slow step may run on a
//! connection's thread only rarely, because other connections wait there.
//!
//! ```text
//! cargo bench --bench hostile -- --health                    with and without slow steps, 20 s each
//! cargo bench --bench hostile -- --health --before FILE      the same of another build of the server
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sequor::bench::Child;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferParameter, ModelInferRequest, infer_parameter::ParameterChoice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use crate::table::quantile;

/// Number of connections that send steps, one at a time each.
const CLIENTS: i64 = 4;
/// One of this many steps of each connection is slow.
const SLOW_EVERY: i64 = 2000;
/// Rounds of the loop in a short step, and in a slow one, which takes some 300 ms.
const SHORT: i64 = 1;
const SLOW: i64 = 300_000;
/// Time between two health requests.
const LOOK: Duration = Duration::from_millis(2);

const CONFIG: &str = r#"
    max_batch_size: 8
    instance_group { kind: KIND_CPU count: 1 }
    input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "COUNT" data_type: TYPE_INT64 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
    sequence_batching {
      oldest { max_candidate_sequences: 8 }
      state { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ 1 ] }
    }
"#;

/// Prints p50, p99 and the maximum of each server, without and with slow steps.
pub(crate) async fn measure(before: Option<&Path>, long: Duration) {
    let repository = repository();
    println!("GET /v2/health/live beside a model, in ms");
    println!(
        "{:<8} {:<12} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "server", "slow steps", "p50", "p99", "max", "looks", "steps"
    );
    let builds = [before.map(|file| ("before", file)), Some(("now", Path::new(env!("CARGO_BIN_EXE_sequor"))))];
    for (name, file) in builds.into_iter().flatten() {
        let server = Child::serve(file, repository.path()).expect("the server");
        for slow in [false, true] {
            let enough = Arc::<AtomicBool>::default();
            let mut clients = JoinSet::new();
            for id in 1..=CLIENTS {
                clients.spawn(steps(server.grpc.clone(), id, slow, Arc::clone(&enough)));
            }
            let looks = look(server.http.as_deref().expect("HTTP"), long).await;
            enough.store(true, Ordering::SeqCst);
            let steps: i64 = clients.join_all().await.into_iter().sum();
            let [half, most, all] = [0.5, 0.99, 1.0].map(|share| quantile(share, looks.iter()));
            let kind = if slow { "some" } else { "none" };
            println!("{name:<8} {kind:<12} {half:>8.2} {most:>8.2} {all:>8.2} {:>8} {steps:>8}", looks.len());
        }
    }
}

/// Sends health requests for this long. Returns the time of each answer in milliseconds.
async fn look(http: &str, long: Duration) -> Vec<f64> {
    let mut stream = TcpStream::connect(http).await.expect("a connection");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let (began, mut took) = (Instant::now(), Vec::new());
    let mut answer = Vec::new();
    while began.elapsed() < long {
        let asked = Instant::now();
        stream.write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("a request");
        answer.clear();
        while !answer.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut answer).await.expect("an answer"), 0, "the server hung up");
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        took.push(asked.elapsed().as_secs_f64() * 1e3);
        tokio::time::sleep(LOOK).await;
    }
    took
}

/// Sends steps of one sequence until `enough` is set. Returns their number.
async fn steps(grpc: String, id: i64, slow: bool, enough: Arc<AtomicBool>) -> i64 {
    let endpoint = Endpoint::from_shared(format!("http://{grpc}")).expect("an address").tcp_nodelay(true);
    let mut client: GrpcInferenceServiceClient<Channel> =
        GrpcInferenceServiceClient::new(endpoint.connect().await.expect("a connection"));
    let mut sent = 0;
    while !enough.load(Ordering::SeqCst) {
        sent += 1;
        // The connections take turns in sending slow steps.
        let is_slow = slow && (sent + id * SLOW_EVERY / CLIENTS) % SLOW_EVERY == 0;
        let step = step(id, sent == 1, if is_slow { SLOW } else { SHORT });
        client.model_infer(step).await.expect("an answer");
    }
    sent
}

fn step(id: i64, start: bool, count: i64) -> ModelInferRequest {
    let parameter = |choice| InferParameter { parameter_choice: Some(choice) };
    let input = |name: &str, datatype: &str| InferInputTensor {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: vec![1, 1],
        ..InferInputTensor::default()
    };
    ModelInferRequest {
        model_name: "rounds".to_owned(),
        parameters: [
            ("sequence_id".to_owned(), parameter(ParameterChoice::Int64Param(id))),
            ("sequence_start".to_owned(), parameter(ParameterChoice::BoolParam(start))),
        ]
        .into(),
        inputs: vec![input("INPUT", "FP32"), input("COUNT", "INT64")],
        raw_input_contents: vec![1.0f32.to_le_bytes().to_vec().into(), count.to_le_bytes().to_vec().into()],
        ..ModelInferRequest::default()
    }
}

fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = folder.path().join("rounds");
    std::fs::create_dir_all(model.join("1")).expect("a folder");
    std::fs::write(model.join("config.pbtxt"), CONFIG).expect("a file");
    std::fs::copy(super::root("tests/models/rounds.onnx"), model.join("1/model.onnx")).expect("a graph");
    folder
}
