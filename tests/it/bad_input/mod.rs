//! What clients get wrong, over real sockets: each case of `tests/cases/bad_input.toml` is refused with its code and sentence, and the live
//! sequence whose id it bears goes on as if nothing had been.

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

/// Low limits of the server under test, so that too much is easily sent.
const LIMIT: &str = "1MiB";
/// What it may take at most while all of this goes on: far less than what some of the cases unpack to.
const MEMORY: u64 = 192 << 20;

/// The cases of a kind.
fn cases<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let text = fs::read_to_string(root().join("tests/cases/bad_input.toml")).unwrap();
    let mut all: BTreeMap<String, toml::Value> = toml::from_str(&text).unwrap();
    all.remove(kind).unwrap().try_into().unwrap_or_else(|e| panic!("{kind}: {e}"))
}

/// A server with a live sequence for every case, and the answers of its steps without a disturbance.
struct House {
    server: Server,
    client: GrpcInferenceServiceClient<Channel>,
    undisturbed: BTreeMap<&'static str, Bytes>,
    ids: AtomicI64,
}

/// The models with a state, and a good row of each.
const MODELS: [(&str, &str, &[i64], &[u8]); 4] = [
    ("sum", "INT32", &[1, 1], &[1, 0, 0, 0]),
    ("loose", "FP32", &[1, 1], &[0, 0, 128, 63]),
    ("gru", "FP32", &[1, 1, 8], &[63; 32]),
    ("texts", "BYTES", &[1, 1], &[1, 0, 0, 0, b'a']),
];

/// A model without a state, of three inputs.
const THREE: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] },
        { name: "COUNT" data_type: TYPE_INT64 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
"#;

/// The model of a case; of one there is not, the one whose sequence is watched.
fn known(model: &str) -> &'static str {
    MODELS.iter().map(|(name, ..)| *name).find(|name| *name == model).unwrap_or("sum")
}

/// A good step.
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

impl House {
    async fn new() -> House {
        House::with(&["--limits-request", LIMIT]).await
    }

    async fn with(arguments: &[&str]) -> House {
        let call = Call::serve("repository").arguments(arguments);
        let repository = call.folder.path().join("repository");
        for (name, from) in [("sum", "accumulator_int32"), ("loose", "accumulator_fp32"), ("gru", "gru")] {
            copy(&models().join(from), &repository.join(name));
            let config = repository.join(name).join("config.pbtxt");
            let text = fs::read_to_string(&config).unwrap().replace(&format!("\"{from}\""), &format!("\"{name}\""));
            // A busy machine must not end the sequence whose next step shows that it still lives.
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
        let mut house = House { server, client, undisturbed: BTreeMap::new(), ids: AtomicI64::new(1) };
        for (model, ..) in MODELS {
            let id = house.begin(model).await;
            let answer = house.end(model, id).await;
            house.undisturbed.insert(model, answer);
        }
        house
    }

    async fn step(&self, model: &str, id: i64, flag: &str) -> Result<Bytes, tonic::Status> {
        let mut request = good(known(model), id);
        request.parameters.insert(flag.to_owned(), parameter(ParameterChoice::BoolParam(true)));
        let answer = self.client.clone().model_infer(request).await?;
        Ok(answer.into_inner().raw_output_contents.swap_remove(0))
    }

    /// A sequence for a case.
    async fn begin(&self, model: &str) -> i64 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        self.step(model, id, "sequence_start").await.unwrap();
        id
    }

    /// Its last step.
    async fn end(&self, model: &str, id: i64) -> Bytes {
        self.step(model, id, "sequence_end").await.unwrap_or_else(|status| panic!("sequence {id} of {model}: {status}"))
    }

    /// Has a case sent with the id of a live sequence, and says what was wrong, with the answer or with the sequence.
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

    /// All is well, nothing was taken that was not given back.
    fn assert_well(self, wrong: &[String], count: usize) {
        self.assert_within(wrong, count, MEMORY);
    }

    /// Bytes of memory of the server's process, as the system counts them under this name.
    fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.process.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    /// As [`House::assert_well`], within so many bytes of memory.
    fn assert_within(self, wrong: &[String], count: usize, memory: u64) {
        assert!(wrong.is_empty(), "{} wrong of {count}:\n{}", wrong.len(), wrong.join("\n"));
        let most = self.memory("VmHWM:");
        println!("bad input: {count} cases, each refused as written down; {} MiB of memory at most", most >> 20);
        assert!(most < memory, "{most} bytes of memory, of {memory} that may be");
        drop(self.client);
        assert_eq!(self.server.stop().code, Some(0));
    }
}

/// Whether a message begins with a sentence, in which $ID stands for the sequence.
fn begins(message: &str, sentence: &str, id: i64) -> Result<(), String> {
    let sentence = sentence.replace("$ID", &id.to_string());
    if message.starts_with(&sentence) {
        return Ok(());
    }
    Err(format!("\n  got  {message}\n  want {sentence}"))
}

/// Whether two things are the same.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}")) }
}
