//! Tests client errors over real sockets. Each case of `tests/cases/bad_input.toml` is refused with its code and text, and the live
//! sequence with the case's id continues unaffected.

mod amplified;
mod grpc;
mod http;
mod pieces;
mod request;
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use sequor_proto::ModelInferRequest;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use serde::de::DeserializeOwned;
use tonic::transport::Channel;

use crate::server::{Call, Server, copy, models, root};
use crate::steps::parameter;

/// Low limits of the server under test, so that small messages exceed them.
const LIMIT: &str = "1MiB";
/// Maximum memory during all cases; far less than the unpacked size of some of them.
const MEMORY: u64 = 192 << 20;

/// The cases of a kind.
fn cases<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let text = fs::read_to_string(root().join("tests/cases/bad_input.toml")).unwrap();
    let mut all: BTreeMap<String, toml::Value> = toml::from_str(&text).unwrap();
    all.remove(kind).unwrap().try_into().unwrap_or_else(|e| panic!("{kind}: {e}"))
}

/// A server with a live sequence for every case.
struct Rig {
    server: Server,
    client: GrpcInferenceServiceClient<Channel>,
    undisturbed: BTreeMap<&'static str, Bytes>,
    ids: AtomicI64,
}

/// The stateful models, and a valid row of each.
const MODELS: [(&str, &str, &[i64], &[u8]); 4] = [
    ("sum", "INT32", &[1, 1], &[1, 0, 0, 0]),
    ("loose", "FP32", &[1, 1], &[0, 0, 128, 63]),
    ("gru", "FP32", &[1, 1, 8], &[63; 32]),
    ("texts", "BYTES", &[1, 1], &[1, 0, 0, 0, b'a']),
];

/// A stateless model with three inputs.
const THREE: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] },
        { name: "COUNT" data_type: TYPE_INT64 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
"#;

/// The model of a case; if it does not exist, the model with the watched sequence.
fn known(model: &str) -> &'static str {
    MODELS.iter().map(|(name, ..)| *name).find(|name| *name == model).unwrap_or("sum")
}

/// A valid step.
fn good(model: &str, id: i64) -> ModelInferRequest {
    let (_, datatype, shape, data) = MODELS.iter().find(|(name, ..)| *name == known(model)).unwrap();
    let (name, datatype) = ("INPUT".to_owned(), (*datatype).to_owned());
    ModelInferRequest {
        model_name: model.to_owned(),
        parameters: BTreeMap::from([("sequence_id".to_owned(), parameter(ParameterChoice::Int64Param(id)))]),
        inputs: vec![InferInputTensor { name, datatype, shape: shape.to_vec(), ..Default::default() }],
        raw_input_contents: vec![Bytes::from_static(data)],
        ..Default::default()
    }
}

impl Rig {
    async fn new() -> Rig {
        Rig::with(&["--limits-request", LIMIT]).await
    }

    async fn with(arguments: &[&str]) -> Rig {
        let call = Call::serve("repository").arguments(arguments);
        let repository = call.folder.path().join("repository");
        for (name, from) in [("sum", "accumulator_int32"), ("loose", "accumulator_fp32"), ("gru", "gru")] {
            copy(&models().join(from), &repository.join(name));
            let config = repository.join(name).join("config.pbtxt");
            let text = fs::read_to_string(&config).unwrap().replace(&format!("\"{from}\""), &format!("\"{name}\""));
            // A long idle time, because on a busy machine the sequence must not expire before its next step.
            let text = text.replace("idle_microseconds: 5000000", "idle_microseconds: 600000000");
            fs::write(config, text).unwrap();
        }
        fs::write(repository.join("loose/sequor.toml"), "[sequence]\nclient_state = true\n").unwrap();
        fs::create_dir_all(repository.join("three/1")).unwrap();
        fs::write(repository.join("three/config.pbtxt"), THREE).unwrap();
        fs::copy(root().join("tests/models/mean.onnx"), repository.join("three/1/model.onnx")).unwrap();
        copy(&root().join("tests/cases/states/text"), &repository.join("texts"));
        fs::create_dir(repository.join("texts/1")).unwrap();
        fs::copy(root().join("tests/models/string_state.onnx"), repository.join("texts/1/model.onnx")).unwrap();
        let server = call.start();
        let client = server.client().await;
        let mut rig = Rig { server, client, undisturbed: BTreeMap::new(), ids: AtomicI64::new(1) };
        for (model, ..) in MODELS {
            let id = rig.begin(model).await;
            let answer = rig.end(model, id).await;
            rig.undisturbed.insert(model, answer);
        }
        rig
    }

    async fn step(&self, model: &str, id: i64, flag: &str) -> Result<Bytes, tonic::Status> {
        let mut request = good(known(model), id);
        request.parameters.insert(flag.to_owned(), parameter(ParameterChoice::BoolParam(true)));
        let answer = self.client.clone().model_infer(request).await?;
        Ok(answer.into_inner().raw_output_contents.swap_remove(0))
    }

    /// Starts a sequence for a case.
    async fn begin(&self, model: &str) -> i64 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        self.step(model, id, "sequence_start").await.unwrap();
        id
    }

    /// Ends the sequence of a case.
    async fn end(&self, model: &str, id: i64) -> Bytes {
        self.step(model, id, "sequence_end").await.unwrap_or_else(|status| panic!("sequence {id} of {model}: {status}"))
    }

    /// Sends a case with the id of a live sequence, and returns what is wrong with the answer or with the sequence.
    async fn check(
        &self,
        what: &str,
        model: &str,
        send: impl AsyncFnOnce(i64) -> Result<(), String>,
    ) -> Option<String> {
        let id = self.begin(model).await;
        let sent = send(id).await;
        let after = self.step(model, id, "sequence_end").await;
        let untouched = match after {
            Ok(answer) if answer == self.undisturbed[known(model)] => Ok(()),
            Ok(answer) => Err(format!("the sequence went on with {answer:?}")),
            Err(status) => Err(format!("the sequence did not go on: {status}")),
        };
        sent.and(untouched).err().map(|why| format!("{what}: {why}"))
    }

    /// Checks that all cases passed and that nothing is left behind.
    fn assert_well(self, wrong: &[String], count: usize) {
        self.assert_within(wrong, count, MEMORY);
    }

    /// Bytes of the server process's memory, by the system's name for the counter.
    fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.process.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    /// Like [`Rig::assert_well`], with this maximum of memory.
    fn assert_within(self, wrong: &[String], count: usize, memory: u64) {
        assert!(wrong.is_empty(), "{} wrong of {count}:\n{}", wrong.len(), wrong.join("\n"));
        let most = self.memory("VmHWM:");
        println!("bad input: {count} cases, each refused as written down; {} MiB of memory at most", most >> 20);
        assert!(most < memory, "{most} bytes of memory, of {memory} that may be");
        drop(self.client);
        assert_eq!(self.server.stop().code, Some(0));
    }
}

/// Whether a message begins with a text, in which $ID is replaced by the sequence's id.
fn begins(message: &str, sentence: &str, id: i64) -> Result<(), String> {
    let sentence = sentence.replace("$ID", &id.to_string());
    if message.starts_with(&sentence) {
        return Ok(());
    }
    Err(format!("\n  got  {message}\n  want {sentence}"))
}

/// Compares two values.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}")) }
}
