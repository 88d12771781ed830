//! A server in this process, with models that the test writes and ports that the system chooses.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sequor::api::ServerLimits;
use sequor::backend::mock::MockBackend;
use sequor::backend::{Backend, LoadOptions};
use sequor::config::model::draft;
use sequor::config::server::Drain;
use sequor::config::units::Span;
use sequor::model::{Clock, Repository, RepositoryOptions};
use sequor::server::{Addresses, Drained, Listeners, RunningServer, ServerOptions, Stop, local, start};
use sequor::telemetry::Metrics;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferParameter, ModelInferRequest, ModelInferResponse};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tonic::transport::Channel;

use crate::gate::Gate;

/// A running sum of INT32 with 4 candidates, whose sequences do not expire during a test, and a stateless identity of INT32.
pub(crate) const SUM: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
    sequence_batching { max_sequence_idle_microseconds: 600000000 oldest { max_candidate_sequences: 4 } state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"#;
pub(crate) const SAME: &str = r#"
    backend: "onnxruntime" max_batch_size: 8
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
"#;

pub(crate) struct Rig {
    pub(crate) repository: Repository,
    pub(crate) metrics: Metrics,
    pub(crate) addresses: Addresses,
    pub(crate) folder: TempDir,
    running: RunningServer,
    stop: mpsc::Sender<Stop>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.body)))
    }
}

/// Writes a model for the mock backend.
pub(crate) fn write(folder: &Path, name: &str, config: &str, version: u64, program: &str) {
    let model = folder.join(name);
    fs_err::create_dir_all(model.join(version.to_string())).unwrap();
    fs_err::write(model.join("config.pbtxt"), config).unwrap();
    fs_err::write(model.join(format!("{version}/model.onnx")), program).unwrap();
}

/// A model whose runs are too long for a connection's thread, which a gate would block.
const SLOW: (&str, &str, &str) = ("slow", SAME, "identity INT32 dims=-1 cost=2000");

impl Rig {
    /// A server with `sum`, `same` and the given models.
    pub(crate) fn with(limits: ServerLimits, more: &[(&str, &str, &str)]) -> Rig {
        Rig::of_models(MockBackend::new(), limits, more)
    }

    /// A server whose runs must pass the gate.
    pub(crate) fn gated(more: &[(&str, &str, &str)]) -> (Rig, Arc<Gate>) {
        let gate = Arc::<Gate>::default();
        let of_runs = Arc::clone(&gate);
        let backend = MockBackend::with_hook(Arc::new(move |_| of_runs.pass()));
        (Rig::of_models(backend, ServerLimits::default(), more), gate)
    }

    /// A server with the model `slow` behind a gate.
    pub(crate) async fn slow() -> (Rig, Arc<Gate>) {
        let (rig, gate) = Rig::gated(&[SLOW]);
        // After this run the model counts as slow, so its runs do not run on a connection's thread.
        rig.client().await.model_infer(request("slow", "", &[1])).await.unwrap();
        (rig, gate)
    }

    fn of_models(backend: MockBackend, limits: ServerLimits, more: &[(&str, &str, &str)]) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "sum", SUM, 1, "accumulate INT32 poison=-13");
        write(folder.path(), "same", SAME, 1, "identity INT32 dims=-1");
        for (name, config, program) in more {
            write(folder.path(), name, config, 1, program);
        }
        let rig = Rig::over(Arc::new(backend), limits, folder);
        rig.repository.load_all(rig.folder.path()).unwrap();
        assert!(rig.repository.ready(), "{:?}", rig.repository.statuses());
        rig
    }

    /// A server without loaded models.
    pub(crate) fn over(backend: Arc<dyn Backend>, limits: ServerLimits, folder: TempDir) -> Rig {
        Rig::timed(backend, limits, Clock::default(), folder)
    }

    /// A server without loaded models, whose idle times use this clock.
    pub(crate) fn timed(backend: Arc<dyn Backend>, limits: ServerLimits, clock: Clock, folder: TempDir) -> Rig {
        Rig::of(backend, ServerOptions { limits, ..ServerOptions::default() }, clock, folder)
    }

    /// A server with the models of [`Rig::new`] and these options.
    pub(crate) fn served(options: ServerOptions) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "sum", SUM, 1, "accumulate INT32 poison=-13");
        write(folder.path(), "same", SAME, 1, "identity INT32 dims=-1");
        let rig = Rig::of(Arc::new(MockBackend::new()), options, Clock::default(), folder);
        rig.repository.load_all(rig.folder.path()).unwrap();
        rig
    }

    fn of(backend: Arc<dyn Backend>, options: ServerOptions, clock: Clock, folder: TempDir) -> Rig {
        let of = options;
        let options = RepositoryOptions {
            config: draft::Options::default(),
            load: LoadOptions::default(),
            state_limit: u64::MAX,
            reply_pool: 1 << 20,
            clock,
            ..RepositoryOptions::default()
        };
        let metrics = Metrics::new(true);
        let repository = Repository::new(backend, options, metrics.clone()).unwrap();
        let port = Some(local(0));
        let wanted = Addresses { http: port, grpc: port, metrics: port, admin: port };
        let (stop, stopped) = mpsc::channel(2);
        let drain = Drain { announce: Span::default(), finish: Span::default(), ..Drain::default() };
        let options = ServerOptions { drain, ..of };
        let listeners = Listeners::bind(&wanted).unwrap();
        let running = start(listeners, options, repository.clone(), metrics.clone(), stopped);
        Rig { repository, metrics, addresses: running.addresses, folder, running, stop }
    }

    pub(crate) fn new() -> Rig {
        Rig::with(ServerLimits::default(), &[])
    }

    pub(crate) async fn client(&self) -> GrpcInferenceServiceClient<Channel> {
        let address = format!("http://{}", self.addresses.grpc.unwrap());
        GrpcInferenceServiceClient::new(Channel::from_shared(address).unwrap().connect().await.unwrap())
    }

    /// The addresses of HTTP, gRPC, metrics and the admin listener.
    pub(crate) fn all_addresses(&self) -> [SocketAddr; 4] {
        let Addresses { http, grpc, metrics, admin } = self.addresses;
        [http, grpc, metrics, admin].map(Option::unwrap)
    }

    /// The status, head and body of an answer over HTTP.
    pub(crate) async fn http(&self, verb_and_path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        exchange(self.addresses.http.unwrap(), verb_and_path, headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.http(&format!("GET {path}"), &[], b"").await.json()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.http(&format!("POST {path}"), &[], body.as_bytes()).await
    }

    /// Waits until this holds. The test runner ends a test that hangs.
    pub(crate) async fn until(&self, holds: impl Fn(&Rig) -> bool) {
        while !holds(self) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) async fn drain(self) -> Drained {
        self.drain_while(|| {}).await
    }

    /// Runs `what` after the server was asked to stop.
    pub(crate) async fn drain_while(self, what: impl FnOnce()) -> Drained {
        self.stop.send(Stop::Drain).await.unwrap();
        what();
        let drained = self.running.join().await;
        let repository = self.repository.clone();
        tokio::task::spawn_blocking(move || repository.stop()).await.unwrap();
        drained
    }
}

/// Sends an HTTP request on a new connection.
pub(crate) async fn exchange(
    address: SocketAddr,
    verb_and_path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    exchange_on(TcpStream::connect(address).await.unwrap(), verb_and_path, headers, body).await
}

/// Connects from this local address.
pub(crate) async fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Sends an HTTP request as the only one of a connection.
pub(crate) async fn exchange_on(
    mut stream: TcpStream,
    verb_and_path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut head = format!("{verb_and_path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    for (key, value) in headers {
        head += &format!("{key}: {value}\r\n");
    }
    head += &format!("content-length: {}\r\n\r\n", body.len());
    // A server that refuses a body may close the connection before it has read all of it.
    let sent = stream.write_all(&[head.as_bytes(), body].concat()).await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer).await;
    assert!(!answer.is_empty(), "{sent:?} {read:?}");
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: answer[end + 4..].to_vec() }
}

// === requests ===

pub(crate) fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(choice) }
}

/// A request with one row of these numbers.
pub(crate) fn request(model: &str, id: &str, values: &[i32]) -> ModelInferRequest {
    let input = InferInputTensor {
        name: "INPUT".to_owned(),
        datatype: "INT32".to_owned(),
        shape: vec![1, i64::try_from(values.len()).unwrap()],
        ..Default::default()
    };
    let data: Vec<u8> = values.iter().flat_map(|n| n.to_le_bytes()).collect();
    ModelInferRequest {
        model_name: model.to_owned(),
        id: id.to_owned(),
        inputs: vec![input],
        raw_input_contents: vec![data.into()],
        ..Default::default()
    }
}

/// A step of a sequence of `sum`.
pub(crate) fn step(sequence: i64, id: &str, value: i32, flags: &[&str]) -> ModelInferRequest {
    let mut request = request("sum", id, &[value]);
    request.parameters.insert("sequence_id".to_owned(), parameter(ParameterChoice::Int64Param(sequence)));
    for flag in flags {
        request.parameters.insert((*flag).to_owned(), parameter(ParameterChoice::BoolParam(true)));
    }
    request
}

pub(crate) const START: &str = "sequence_start";
pub(crate) const END: &str = "sequence_end";

/// The numbers of the first output.
pub(crate) fn values(answer: &ModelInferResponse) -> Vec<i32> {
    answer.raw_output_contents[0].as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
}
