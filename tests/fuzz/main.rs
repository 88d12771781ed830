//! Mutations of a kept corpus (`fuzz/corpus`), given to what decodes the words of strangers: bodies of requests, raw tensors, protobuf,
//! configurations, and whole conversations (`conversations`) within a ceiling of memory (`memory`). Mutation without coverage: see
//! `fuzz/README.md`. No input may cause a panic or a fault of the server's own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod conversations;
mod memory;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt as _;
use prost::Message as _;
use sequor::api::kserve::Kserve;
use sequor::api::kserve::infer::InferService;
use sequor::api::tfs::predict::PredictService;
use sequor::api::tfs::{PREDICT, Tfs};
use sequor::api::{Api, Caller, ConnectionOrder, RequestContext, ServerLimits};
use sequor::backend::mock::MockBackend;
use sequor::config::model::draft::{ConfigSource, Draft, Sources};
use sequor::config::model::{Port, Signature, json};
use sequor::config::server::settings::SharedMemory;
use sequor::config::units::Size;
use sequor::model::{Repository, RepositoryOptions};
use sequor::telemetry::Metrics;
use sequor_core::{DataType, Dims};
use sequor_proto::ModelInferRequest;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::tensorflow::serving::{ModelSpec, PredictRequest};
use sequor_proto::tensorflow::tensor_shape_proto::Dim;
use sequor_proto::tensorflow::{self, TensorProto, TensorShapeProto};
use tower::ServiceExt as _;

/// Inputs a target in an ordinary run.
const INPUTS: u64 = 3000;

/// An answer that takes longer never comes.
const HANGS: Duration = Duration::from_secs(180);

// === mutations ===

/// SplitMix64: small, and the same everywhere.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % (n.max(1) as u64)).unwrap()
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

/// What decoders stumble over.
const WORDS: [&str; 44] = [
    "0",
    "-1",
    "1",
    "2147483648",
    "-9223372036854775808",
    "18446744073709551615",
    "99999999999999999999",
    "1e999",
    "-0.0",
    "0.1",
    "NaN",
    "null",
    "true",
    "false",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "]",
    "}",
    "{",
    "[",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "\u{feff}",
    "é",
    "INT32",
    "FP16",
    "BYTES",
    "BOOL",
    "INPUT",
    "OUTPUT",
    "shape",
    "data",
    "parameters",
    "binary_data_size",
    "sequence_id",
    "classification",
    "'",
    "#",
];

fn mutate(chance: &mut Chance, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[chance.below(seeds.len())].clone();
    for _ in 0..=chance.below(4) {
        let (at, to) = (chance.below(bytes.len() + 1), chance.below(bytes.len() + 1));
        let (from, to) = (at.min(to), at.max(to).min(at.min(to) + 40));
        match chance.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            1 => drop(bytes.splice(at..at, chance.one(&WORDS).bytes())),
            2 => drop(bytes.drain(from..to)),
            3 => {
                let twice = bytes[from..to].to_vec();
                bytes.splice(at..at, twice);
            }
            4 => {
                // A number or a word becomes another one.
                let is_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
                let begin = (at..bytes.len()).find(|i| is_word(&bytes[*i])).unwrap_or(at);
                let end = (begin..bytes.len()).find(|i| !is_word(&bytes[*i])).unwrap_or(bytes.len());
                bytes.splice(begin..end, chance.one(&WORDS).bytes());
            }
            5 => {
                let other = &seeds[chance.below(seeds.len())];
                let piece = chance.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[piece..]);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Gives mutations to `judge`, as many as an ordinary run has or as long as `FUZZ_SECONDS` says.
fn run(seeds: &[Vec<u8>], mut judge: impl FnMut(&mut Chance, Vec<u8>)) {
    assert!(!seeds.is_empty());
    let until = number("FUZZ_SECONDS").map(|s| Instant::now() + Duration::from_secs(s));
    let mut chance = Chance(number("FUZZ_SEED").unwrap_or(1));
    let mut count = 0;
    while until.map_or(count < INPUTS, |until| Instant::now() < until) {
        let input = mutate(&mut chance, seeds);
        judge(&mut chance, input);
        count += 1;
    }
    println!("{count} inputs");
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| fs::read(file).unwrap()).collect()
}

// === requests ===

struct Rig {
    runtime: tokio::runtime::Runtime,
    repository: Repository,
    metrics: Metrics,
    app: axum::Router,
    infer: InferService,
    predict: PredictService,
    _folder: tempfile::TempDir,
}

const MODELS: [&str; 4] = ["sum", "same", "floats", "texts"];

impl Rig {
    fn new() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let identity = |dtype: &str| {
            format!(
                "backend: \"onnxruntime\" max_batch_size: 8 instance_group [ {{ kind: KIND_CPU }} ]
                 input [ {{ name: \"INPUT\" data_type: TYPE_{dtype} dims: [ -1 ] }} ]
                 output [ {{ name: \"OUTPUT\" data_type: TYPE_{dtype} dims: [ -1 ] }} ]"
            )
        };
        // Sequences without END expire soon, so that none waits for a slot for long.
        let sum = "backend: \"onnxruntime\" max_batch_size: 4 instance_group [ { kind: KIND_CPU } ]
            input [ { name: \"INPUT\" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ 1 ] } ]
            sequence_batching { max_sequence_idle_microseconds: 1000 oldest { max_candidate_sequences: 64 } state [
            { input_name: \"INPUT_STATE\" output_name: \"OUTPUT_STATE\" data_type: TYPE_INT32 dims: [ 1 ] } ] }";
        let configs = [sum.to_owned(), identity("INT32"), identity("FP32"), identity("STRING")];
        let programs =
            ["accumulate INT32", "identity INT32 dims=-1", "identity FP32 dims=-1", "identity BYTES dims=-1"];
        for ((name, config), program) in MODELS.iter().zip(configs).zip(programs) {
            fs::create_dir_all(folder.path().join(name).join("1")).unwrap();
            fs::write(folder.path().join(name).join("config.pbtxt"), config).unwrap();
            fs::write(folder.path().join(name).join("1/model.onnx"), program).unwrap();
        }
        let metrics = Metrics::new(true);
        let repository =
            Repository::new(Arc::new(MockBackend::new()), RepositoryOptions::default(), metrics.clone()).unwrap();
        repository.load_all(folder.path()).unwrap();
        assert!(repository.ready(), "{:?}", repository.statuses());
        let api = Api::new(
            repository.clone(),
            metrics.clone(),
            ServerLimits { request: Size(1 << 20), ..ServerLimits::default() },
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kserve = Kserve::new(&api, SharedMemory::On);
        let tfs = Tfs::new(&api);
        let (app, infer) = (sequor::server::app(&api, &kserve, &tfs), InferService::new(&kserve));
        let predict = PredictService::new(&tfs);
        Rig { runtime, repository, metrics, app, infer, predict, _folder: folder }
    }

    /// What the dispatcher says of a request.
    fn context(request: &Request<Body>) -> RequestContext {
        let caller = Caller { name: Caller::LOCAL.to_owned(), address: ([127, 0, 0, 1], 1).into() };
        RequestContext::new(&Arc::new(caller), &ConnectionOrder::default(), request.headers())
    }

    fn ask(&self, mut request: Request<Body>) -> (StatusCode, Bytes) {
        let context = Rig::context(&request);
        request.extensions_mut().insert(context);
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(HANGS, self.app.clone().oneshot(request)).await;
            let (parts, body) = answer.expect("an answer").unwrap().into_parts();
            (parts.status, body.collect().await.unwrap().to_bytes())
        })
    }

    /// The status of a `ModelInfer` call, from its headers or trailers.
    fn call(&self, request: Request<Body>) -> axum::http::HeaderMap {
        let context = Rig::context(&request);
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(HANGS, self.infer.clone().call(context, request)).await;
            let (parts, body) = answer.expect("an answer").into_parts();
            assert_eq!(parts.status, StatusCode::OK);
            body.collect().await.unwrap().trailers().cloned().unwrap_or(parts.headers)
        })
    }

    /// The status of a `Predict` call, from its headers or trailers.
    fn predict(&self, message: &[u8]) -> axum::http::HeaderMap {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let framed = [&[0][..], &length, message].concat();
        let request = Request::post(PREDICT).header("content-type", "application/grpc").header("te", "trailers");
        let request = request.body(Body::from(framed)).unwrap();
        let context = Rig::context(&request);
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(HANGS, self.predict.clone().call(context, request)).await;
            let (parts, body) = answer.expect("an answer").into_parts();
            body.collect().await.unwrap().trailers().cloned().unwrap_or(parts.headers)
        })
    }

    /// Over HTTP: answered, or refused as the client's fault with a sentence.
    fn judge(&self, model: &str, json_length: Option<usize>, input: Vec<u8>) {
        let message = String::from_utf8_lossy(&input).into_owned();
        let mut request = Request::post(format!("/v2/models/{model}/infer"));
        if let Some(length) = json_length {
            request = request.header("inference-header-content-length", length);
        }
        let (status, body) = self.ask(request.body(Body::from(input)).unwrap());
        if status == StatusCode::OK {
            return;
        }
        assert!(status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE, "{status} {body:?}\n{message}");
        let json: serde_json::Value =
            serde_json::from_slice(&body).unwrap_or_else(|e| panic!("{e}: {body:?}\n{message}"));
        assert!(json["error"].as_str().is_some_and(|error| !error.is_empty()), "{json}\n{message}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.repository.stop();
    }
}

#[test]
fn bodies_in_json() {
    let rig = Rig::new();
    for (name, model) in [("same", "same"), ("sum", "sum"), ("floats", "floats"), ("texts", "texts")] {
        let seed = fs::read(format!("{}/fuzz/corpus/json/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let (status, body) =
            rig.ask(Request::post(format!("/v2/models/{model}/infer")).body(Body::from(seed)).unwrap());
        assert_eq!(status, StatusCode::OK, "{name}: the corpus must be good: {body:?}");
    }
    run(&corpus("json"), |chance, input| rig.judge(chance.one(&MODELS), None, input));
}

#[test]
fn bodies_with_binary_tensors() {
    let rig = Rig::new();
    let json_length = |input: &[u8]| input.iter().position(|b| *b == b'\n').unwrap_or(input.len());
    for seed in corpus("raw") {
        let at = json_length(&seed);
        MODELS.iter().for_each(|model| rig.judge(model, Some(at), [&seed[..at], &seed[at + 1..]].concat()));
    }
    run(&corpus("raw"), |chance, input| {
        let json = json_length(&input);
        let length = match chance.below(8) {
            0 => chance.below(input.len() + 9),
            _ => json,
        };
        let input = [&input[..json], &input[(json + 1).min(input.len())..]].concat();
        rig.judge(chance.one(&MODELS), Some(length), input);
    });
}

fn gzip(message: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(message).unwrap();
    packer.finish().unwrap()
}

#[test]
fn requests_in_protobuf() {
    let rig = Rig::new();
    let request = |model: &str, datatype: &str, shape: Vec<i64>, raw: &[u8]| {
        let input = InferInputTensor { name: "INPUT".into(), datatype: datatype.into(), shape, ..Default::default() };
        let raw_input_contents = vec![Bytes::copy_from_slice(raw)];
        ModelInferRequest { model_name: model.into(), inputs: vec![input], raw_input_contents, ..Default::default() }
    };
    let seeds = [
        request("same", "INT32", vec![1, 2], &[1, 0, 0, 0, 2, 0, 0, 0]),
        request("floats", "FP32", vec![2, 1], &[0; 8]),
        request("texts", "BYTES", vec![1, 1], &[2, 0, 0, 0, b'a', b'b']),
    ]
    .map(|request| request.encode_to_vec());
    run(&seeds, |chance, message| {
        // As it is, packed, or packed and then spoiled.
        let way = chance.below(3);
        let packed = match way {
            0 => message.clone(),
            1 => gzip(&message),
            _ => mutate(chance, &[gzip(&message)]),
        };
        let length = u32::try_from(packed.len()).unwrap().to_be_bytes();
        let framed = [&[u8::from(way > 0)][..], &length, &packed].concat();
        let mut request = Request::post("/inference.GRPCInferenceService/ModelInfer")
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if way > 0 {
            request = request.header("grpc-encoding", "gzip");
        }
        let headers = rig.call(request.body(Body::from(framed)).unwrap());
        let code = headers.get("grpc-status").and_then(|code| code.to_str().ok());
        // tonic itself says INTERNAL (13) of a message that is none.
        let is_message = ModelInferRequest::decode(message.as_slice()).is_ok();
        let fine = ["0", "3", "5", "8", "11", "12", "14"];
        assert!(code.is_some_and(|code| fine.contains(&code) || !is_message || way == 2), "{headers:?}\n{message:?}");
    });
}

#[test]
fn predictions_in_json() {
    let rig = Rig::new();
    run(&corpus("predict"), |chance, input| {
        let (model, message) = (chance.one(&MODELS), String::from_utf8_lossy(&input).into_owned());
        let request = Request::post(format!("/v1/models/{model}:predict")).body(Body::from(input)).unwrap();
        let (status, body) = rig.ask(request);
        let is_refused = status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE;
        assert!(status == StatusCode::OK || is_refused, "{status} {body:?}\n{message}");
        let json: serde_json::Value =
            serde_json::from_slice(&body).unwrap_or_else(|e| panic!("{e}: {body:?}\n{message}"));
        let is_said = json["error"].as_str().is_some_and(|error| !error.is_empty());
        assert_eq!(is_said, is_refused, "{json}\n{message}");
    });
}

#[test]
fn predictions_in_protobuf() {
    let rig = Rig::new();
    let tensor = |dtype: tensorflow::DataType, dims: &[i64], content: &[u8]| {
        let dim = dims.iter().map(|size| Dim { size: *size, name: String::new() }).collect();
        TensorProto {
            dtype: dtype.into(),
            tensor_shape: Some(TensorShapeProto { dim, unknown_rank: false }),
            tensor_content: Bytes::copy_from_slice(content),
            ..TensorProto::default()
        }
    };
    let int = tensor(tensorflow::DataType::DtInt32, &[1, 1], &[1, 0, 0, 0]);
    let list = TensorProto { int_val: vec![1], tensor_content: Bytes::new(), ..int.clone() };
    let id = TensorProto { uint64_val: vec![7], ..tensor(tensorflow::DataType::DtUint64, &[1], &[]) };
    let control = TensorProto { uint32_val: vec![1], ..tensor(tensorflow::DataType::DtUint32, &[1], &[]) };
    let texts = TensorProto { string_val: vec!["ab".into()], ..tensor(tensorflow::DataType::DtString, &[1, 1], &[]) };
    let request = |model: &str, inputs: Vec<(&str, &TensorProto)>| {
        let inputs = inputs.into_iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
        let model_spec = Some(ModelSpec { name: model.to_owned(), ..ModelSpec::default() });
        PredictRequest { model_spec, inputs, output_filter: vec!["OUTPUT".to_owned()] }
    };
    let seeds = [
        request("sum", vec![("INPUT", &int), ("sequence_id", &id), ("sequence_control_input", &control)]),
        request("same", vec![("INPUT", &list)]),
        request("texts", vec![("INPUT", &texts)]),
    ]
    .map(|request| request.encode_to_vec());
    run(&seeds, |_, message| {
        let headers = rig.predict(&message);
        let code = headers.get("grpc-status").and_then(|code| code.to_str().ok());
        let is_message = PredictRequest::decode(message.as_slice()).is_ok();
        let fine = ["0", "3", "5", "6", "8", "9", "11", "14"];
        assert!(code.is_some_and(|code| fine.contains(&code) || !is_message), "{headers:?}\n{message:?}");
    });
}

// === configurations ===

/// Reads, completes, checks and settles; what comes out is the same through JSON.
fn configure(config: ConfigSource, toml: Option<String>) {
    let port =
        |name: &str, dims: &[i64]| Port { name: name.to_owned(), dtype: DataType::Fp32, dims: Dims::from_wire(dims) };
    let graph = Signature {
        inputs: ["INPUT", "INPUT_STATE", "START", "ID"].map(|name| port(name, &[-1, 1])).into(),
        outputs: ["OUTPUT", "OUTPUT_STATE"].map(|name| port(name, &[-1, 1])).into(),
        ..Signature::default()
    };
    let files = vec!["model.onnx".to_owned()];
    let sources = Sources { directory: "/nowhere/m".into(), config, sequor_toml: toml, files, ..Sources::default() };
    let faults = match Draft::parse(sources, &Default::default()) {
        Err(faults) => faults,
        Ok(draft) => match draft.resolve(&graph) {
            Err(faults) => faults,
            Ok(settings) => {
                let text = json::to_json(&settings.proto).to_string();
                let back = json::from_json(Path::new("config"), &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(back.encode_to_vec(), settings.proto.encode_to_vec(), "{text}");
                return;
            }
        },
    };
    assert!(!faults.is_empty(), "refused without a reason");
    for fault in faults {
        assert!(!fault.what.is_empty() && fault.code.starts_with("E-"), "{fault:?}");
    }
}

#[test]
fn configurations_as_text() {
    let tomls: Vec<Vec<u8>> = corpus("toml");
    run(&corpus("config"), |chance, input| {
        let toml = match chance.below(3) {
            0 => None,
            1 => Some(tomls[chance.below(tomls.len())].clone()),
            _ => Some(mutate(chance, &tomls)),
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        configure(ConfigSource::Text(text(input)), toml.map(text));
    });
}

#[test]
fn configurations_as_json() {
    let read = |text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).unwrap();
        let config = sequor::config::model::text::parse(Path::new("config.pbtxt"), &text).unwrap();
        json::to_json(&config).to_string().into_bytes()
    };
    let seeds: Vec<Vec<u8>> = corpus("config").iter().map(|text| read(text)).collect();
    run(&seeds, |_, input| configure(ConfigSource::Json(String::from_utf8_lossy(&input).into_owned()), None));
}
