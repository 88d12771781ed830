//! Tests changes of the repository by clients and in the file system.

use std::sync::Arc;

use sequor::api::ServerLimits;
use sequor::backend::mock::MockBackend;
use sequor::config::server::file::ControlMode;
use sequor::config::units::Size;
use sequor::model::RepositoryControl;
use sequor_proto::model_repository_parameter::ParameterChoice;
use sequor_proto::{
    ModelRepositoryParameter, RepositoryIndexRequest, RepositoryModelLoadRequest, RepositoryModelUnloadRequest,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::codec::CompressionEncoding;

use crate::http2::{Http2Client, OK};
use crate::rig::{END, Rig, SAME, START, SUM, request, step, values, write};

const ALL: &str = "version_policy { all { } }";

/// A server with an empty repository in this control mode.
pub(crate) fn rig(mode: ControlMode) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::over(Arc::new(MockBackend::new()), ServerLimits::default(), folder);
    rig.repository.govern(RepositoryControl { mode, directories: vec![rig.folder.path().to_owned()] });
    rig
}

impl Rig {
    pub(crate) fn write(&self, name: &str, config: &str, version: u64, program: &str) {
        write(self.folder.path(), name, config, version, program);
    }

    pub(crate) async fn load(&self, name: &str) -> Result<(), tonic::Status> {
        self.load_with(name, &[]).await
    }

    async fn load_with(&self, name: &str, parameters: &[(&str, ParameterChoice)]) -> Result<(), tonic::Status> {
        let parameter = |(key, choice): &(&str, ParameterChoice)| {
            ((*key).to_owned(), ModelRepositoryParameter { parameter_choice: Some(choice.clone()) })
        };
        let parameters = parameters.iter().map(parameter).collect();
        let request = RepositoryModelLoadRequest { model_name: name.to_owned(), parameters, ..Default::default() };
        self.client().await.repository_model_load(request).await.map(|_| ())
    }

    async fn unload(&self, name: &str) -> Result<(), tonic::Status> {
        let request = RepositoryModelUnloadRequest { model_name: name.to_owned(), ..Default::default() };
        self.client().await.repository_model_unload(request).await.map(|_| ())
    }

    /// The index as lines of `name/version state reason`.
    async fn index(&self, ready: bool) -> String {
        let request = RepositoryIndexRequest { ready, ..Default::default() };
        let models = self.client().await.repository_index(request).await.unwrap().into_inner().models;
        let line = |m: &sequor_proto::repository_index_response::ModelIndex| {
            format!("{}/{} {} {}", m.name, m.version, m.state, m.reason).trim().to_owned()
        };
        models.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    async fn index_until(&self, want: &str) {
        loop {
            let message = self.index(false).await;
            if message == want {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// The answer to a step of a sequence of `sum`.
    async fn sum(&self, sequence: i64, value: i32, flags: &[&str]) -> Result<i32, tonic::Status> {
        let answer = self.client().await.model_infer(step(sequence, "", value, flags)).await?;
        Ok(values(answer.get_ref())[0])
    }

    /// The version that answers a request.
    async fn version(&self, model: &str) -> String {
        let answer = self.client().await.model_infer(request(model, "", &[1])).await.unwrap();
        answer.into_inner().model_version
    }
}

#[tokio::test]
async fn a_model_is_loaded_and_unloaded_by_request() {
    let rig = rig(ControlMode::Explicit);
    rig.write("sum", SUM, 1, "accumulate INT32");
    assert_eq!(rig.index(false).await, "sum/");
    let unknown = rig.sum(1, 1, &[START]).await.unwrap_err();
    assert_eq!(unknown.message(), "Request for unknown model: 'sum' is not found");
    rig.load("sum").await.unwrap();
    assert_eq!(rig.index(false).await, "sum/1 READY");
    assert_eq!(rig.sum(7, 5, &[START]).await.unwrap(), 5);

    rig.unload("sum").await.unwrap();
    let gone = rig.sum(7, 5, &[]).await.unwrap_err();
    assert_eq!(
        (gone.code(), gone.message()),
        (Code::NotFound, "Request for unknown model: 'sum' has no available versions (it is not loaded)")
    );
    rig.index_until("sum/1 UNAVAILABLE unloaded").await;
    assert_eq!(rig.index(true).await, "");
    assert!(rig.repository.ready(), "what was unloaded is not missed");

    rig.load("sum").await.unwrap();
    let lost = rig.sum(7, 5, &[]).await.unwrap_err();
    assert_eq!(lost.metadata().get("sequor-reason").unwrap(), "retired");
    assert_eq!(rig.sum(7, 6, &[START]).await.unwrap(), 6);
    rig.unload("nope").await.unwrap();
    let absent = rig.load("nope").await.unwrap_err();
    let folder = rig.folder.path().display();
    let sentence = format!("failed to load 'nope', failed to poll from model repository (no folder nope in {folder})");
    assert_eq!((absent.code(), absent.message()), (Code::Internal, sentence.as_str()));
    assert_eq!(rig.load("../sum").await.unwrap_err().code(), Code::Internal);
}

#[tokio::test]
async fn live_sequences_stay_where_they_began_when_a_version_arrives() {
    let rig = rig(ControlMode::Explicit);
    rig.write("sum", SUM, 1, "accumulate INT32");
    rig.load("sum").await.unwrap();
    assert_eq!(rig.sum(7, 40, &[START]).await.unwrap(), 40);
    rig.write("sum", SUM, 2, "accumulate INT32 cost=1");
    rig.load("sum").await.unwrap();
    assert_eq!(rig.index(false).await, "sum/1 UNLOADING\nsum/2 READY");
    let on = |answer: &sequor_proto::ModelInferResponse| (answer.model_version.clone(), values(answer)[0]);
    let mut client = rig.client().await;
    let old = client.model_infer(step(7, "", 1, &[])).await.unwrap().into_inner();
    let new = client.model_infer(step(8, "", 1, &[START])).await.unwrap().into_inner();
    assert_eq!((on(&old), on(&new)), (("1".to_owned(), 41), ("2".to_owned(), 1)));
    assert_eq!(rig.sum(7, 1, &[END]).await.unwrap(), 42);
    rig.index_until("sum/1 UNAVAILABLE unloaded\nsum/2 READY").await;
}

#[tokio::test]
async fn only_changed_versions_are_reloaded() {
    let rig = rig(ControlMode::Explicit);
    let config = format!("{SUM}{ALL}");
    rig.write("sum", &config, 1, "accumulate INT32");
    rig.write("sum", &config, 2, "accumulate INT32");
    rig.load("sum").await.unwrap();
    let mut pinned = step(7, "", 1, &[START]);
    pinned.model_version = "1".to_owned();
    rig.client().await.model_infer(pinned.clone()).await.unwrap();
    // A load without changes does nothing.
    rig.load("sum").await.unwrap();
    assert_eq!(rig.index(false).await, "sum/1 READY\nsum/2 READY");
    // The second version goes, and the first is not reloaded: a reload would first have to end the old load.
    fs_err::remove_dir_all(rig.folder.path().join("sum/2")).unwrap();
    rig.load("sum").await.unwrap();
    rig.index_until("sum/1 READY\nsum/2 UNAVAILABLE unloaded").await;
    pinned.parameters.remove(START);
    assert_eq!(values(rig.client().await.model_infer(pinned).await.unwrap().get_ref()), [2]);
    // Now the first version is reloaded, and the sequence still ends on its old load.
    rig.write("sum", &config, 1, "accumulate INT32 cost=1");
    rig.load("sum").await.unwrap();
    assert_eq!(rig.sum(7, 1, &[]).await.unwrap(), 3);
    assert_eq!(rig.sum(7, 1, &[START]).await.unwrap(), 1, "a START goes to the new load");
}

#[tokio::test]
async fn the_graph_may_be_model_onnx_in_a_directory_of_that_name() {
    let rig = rig(ControlMode::Explicit);
    rig.write("same", SAME, 1, "identity INT32 dims=-1");
    let (file, inner) = {
        let version = rig.folder.path().join("same/1");
        (version.join("model.onnx"), version.join("model.onnx/model.onnx"))
    };
    fs_err::remove_file(&file).unwrap();
    fs_err::create_dir(&file).unwrap();
    fs_err::write(&inner, "identity INT32 dims=-1").unwrap();
    let first = async || {
        let answer = rig.client().await.model_infer(request("same", "", &[5])).await.unwrap();
        values(answer.get_ref())[0]
    };
    rig.load("same").await.unwrap();
    assert_eq!(first().await, 5);
    fs_err::write(&inner, "identity INT32 dims=-1 plus=10").unwrap();
    rig.load("same").await.unwrap();
    assert_eq!(first().await, 15, "a change of the inner file is a change of the model");
}

#[tokio::test]
async fn a_failed_load_keeps_the_serving_version() {
    let rig = rig(ControlMode::Explicit);
    rig.write("same", SAME, 1, "identity INT32 dims=-1");
    rig.load("same").await.unwrap();
    rig.write("same", SAME, 2, "nonsense");
    let failed = rig.load("same").await.unwrap_err();
    assert_eq!(failed.code(), Code::Internal);
    assert!(failed.message().starts_with("failed to load 'same', ") && failed.message().contains("same/2/model.onnx"));
    assert_eq!(rig.version("same").await, "1");
    let index = rig.index(false).await;
    assert!(index.starts_with("same/1 READY\nsame/2 UNAVAILABLE ") && index.contains("model.onnx"), "{index}");
    assert!(rig.repository.ready());

    rig.write("broken", "nonsense", 1, "identity INT32");
    assert!(rig.load("broken").await.unwrap_err().message().contains("broken/config.pbtxt:1:"));
    assert!(rig.index(false).await.starts_with("broken/ UNAVAILABLE "));
    fs_err::write(rig.folder.path().join("broken/config.pbtxt"), SAME).unwrap();
    fs_err::write(rig.folder.path().join("broken/1/model.onnx"), "identity INT32 dims=-1").unwrap();
    rig.load("broken").await.unwrap();
    assert_eq!(rig.version("broken").await, "1");
}

#[tokio::test]
async fn a_load_request_may_contain_a_configuration_but_no_files() {
    let rig = rig(ControlMode::Explicit);
    rig.write("same", SAME, 1, "identity INT32 dims=-1");
    let config = json!({
        "backend": "onnxruntime", "max_batch_size": 3,
        "input": [{ "name": "INPUT", "data_type": "TYPE_INT32", "dims": [-1] }],
        "output": [{ "name": "OUTPUT", "data_type": "TYPE_INT32", "dims": [-1] }],
    });
    let text = |value: &str| ParameterChoice::StringParam(value.to_owned());
    rig.load_with("same", &[("config", text(&config.to_string()))]).await.unwrap();
    let rows = async || rig.get("/v2/models/same/config").await["max_batch_size"].clone();
    assert_eq!(rows().await, 3);
    rig.load("same").await.unwrap();
    assert_eq!(rows().await, 8, "the file's own again");
    let refused = async |key: &str, value| rig.load_with("same", &[(key, value)]).await.unwrap_err();
    let file = refused("file:1/model.onnx", ParameterChoice::BytesParam(vec![1])).await;
    assert_eq!(file.code(), Code::Unimplemented);
    assert!(file.message().contains("put them into the model repository"), "{}", file.message());
    assert_eq!(refused("config", ParameterChoice::BoolParam(true)).await.code(), Code::InvalidArgument);
    assert_eq!(refused("bogus", text("")).await.message(), "unrecognized load parameter 'bogus'");
    let named = RepositoryIndexRequest { repository_name: "r".to_owned(), ..Default::default() };
    let named = rig.client().await.repository_index(named).await.unwrap_err();
    assert_eq!(
        (named.code(), named.message()),
        (Code::Unimplemented, "'repository_name' specification is not supported")
    );
}

#[tokio::test]
async fn a_load_request_may_contain_model_files_if_uploads_are_enabled() {
    let rig = rig(ControlMode::Explicit);
    rig.repository.take_uploads(64);
    let config = json!({
        "backend": "onnxruntime", "max_batch_size": 8,
        "input": [{ "name": "INPUT", "data_type": "TYPE_INT32", "dims": [-1] }],
        "output": [{ "name": "OUTPUT", "data_type": "TYPE_INT32", "dims": [-1] }],
    });
    let text = || ParameterChoice::StringParam(config.to_string());
    let bytes = |program: &str| ParameterChoice::BytesParam(program.as_bytes().to_vec());
    let program = "identity INT32 dims=-1";
    // No repository has this model.
    rig.load_with("sent", &[("config", text()), ("file:3/model.onnx", bytes(program))]).await.unwrap();
    assert_eq!(rig.index(true).await, "sent/3 READY");
    assert_eq!(rig.version("sent").await, "3");
    rig.load_with("sent", &[("config", text()), ("file:4/model.onnx", bytes(program))]).await.unwrap();
    assert_eq!(rig.version("sent").await, "4");

    let refused = async |more: &[(&str, ParameterChoice)]| {
        let status = rig.load_with("sent", more).await.unwrap_err();
        (status.code(), status.message().to_owned())
    };
    let without = refused(&[("file:5/model.onnx", bytes(program))]).await;
    assert_eq!(without, (Code::InvalidArgument, "files of a model need the parameter 'config' beside them".to_owned()));
    for path in [
        "file:model.onnx",
        "file:0/m",
        "file:01/m",
        "file:5/../m",
        "file:5//m",
        "file:/5/m",
        "file:5/",
        "file:",
        "file:x/m",
    ] {
        let sentence = format!("'{path}' is not the path of a file: expected file:<version>/<file>");
        assert_eq!(refused(&[("config", text()), (path, bytes(program))]).await, (Code::InvalidArgument, sentence));
    }
    let much = refused(&[("config", text()), ("file:5/model.onnx", bytes(&" ".repeat(65)))]).await;
    assert_eq!(much.1, "the files of the model are 65 bytes, above the limit of 64 (limits.request)");
    let broken = refused(&[("config", text()), ("file:5/model.onnx", bytes("nonsense"))]).await;
    assert_eq!(broken.0, Code::Internal);
    assert_eq!(rig.version("sent").await, "4", "what serves goes on");

    // HTTP sends base64. A sent model may replace one of the repository, which can be loaded again.
    rig.write("same", SAME, 1, program);
    rig.load("same").await.unwrap();
    let body = json!({ "parameters": { "config": config.to_string(), "file:7/model.onnx": "aWRlbnRpdHkgSU5UMzIgZGltcz0tMQ==" } });
    assert_eq!(rig.post("/v2/repository/models/same/load", body).await.status, 200);
    assert_eq!(rig.version("same").await, "7");
    // A reload of all models keeps the files that a client sent.
    let reload = async || rig.post("/v1/config/reload", Value::Null).await.status;
    assert_eq!((reload().await, rig.version("same").await.as_str()), (200, "7"));
    rig.load_with("same", &[("config", text())]).await.unwrap();
    let most = async || rig.http("GET /v2/models/same/config", &[], b"").await.json()["max_batch_size"].clone();
    assert_eq!((most().await, reload().await, most().await), (json!(8), 200, json!(8)));
    rig.write("same", SAME, 2, program);
    assert_eq!((reload().await, rig.version("same").await.as_str(), most().await), (201, "2", json!(8)));
    fs_err::remove_dir_all(rig.folder.path().join("same/2")).unwrap();
    rig.load("same").await.unwrap();
    assert_eq!(rig.version("same").await, "1");
    rig.unload("sent").await.unwrap();
    let gone = rig.client().await.model_infer(request("sent", "", &[1])).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
}

#[tokio::test]
async fn model_files_over_http_are_accepted_up_to_limits_request() {
    let limits = ServerLimits { request: Size(5 << 20), ..ServerLimits::default() };
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::over(Arc::new(MockBackend::new()), limits, folder);
    let directories = vec![rig.folder.path().to_owned()];
    rig.repository.govern(RepositoryControl { mode: ControlMode::Explicit, directories });
    rig.repository.take_uploads(5 << 20);
    let port = |name: &str| json!([{ "name": name, "data_type": "TYPE_INT32", "dims": [-1] }]);
    let config =
        json!({ "backend": "onnxruntime", "max_batch_size": 8, "input": port("INPUT"), "output": port("OUTPUT") });
    let body = |bytes: usize| {
        let weights = "AAAA".repeat(bytes / 3);
        let program = "aWRlbnRpdHkgSU5UMzIgZGltcz0tMQ==";
        json!({ "parameters": { "config": config.to_string(), "file:7/model.onnx": program, "file:7/weights": weights } })
    };
    assert_eq!(rig.post("/v2/repository/models/sent/load", body(3 << 20)).await.status, 200);
    assert_eq!((rig.version("sent").await.as_str(), rig.metrics.queued().get()), ("7", 0));
    let long = || json!({ "log_info": true, "more": " ".repeat(2 << 20) });
    for (path, body) in [("/v2/repository/models/sent/load", body(6 << 20)), ("/v2/logging", long())] {
        let answer = rig.post(path, body).await;
        assert_eq!((answer.status, &answer.json()["reason"]), (413, &"bad_input".into()), "{path} {}", answer.head);
    }
}

#[tokio::test]
async fn a_compressed_load_request_counts_with_its_uncompressed_size() {
    let limits = ServerLimits { queued: Size(1 << 20), ..ServerLimits::default() };
    let rig = Rig::over(Arc::new(MockBackend::new()), limits, tempfile::tempdir().unwrap());
    let directories = vec![rig.folder.path().to_owned()];
    rig.repository.govern(RepositoryControl { mode: ControlMode::Explicit, directories });
    rig.repository.take_uploads(8 << 20);
    let parameter = |choice| ModelRepositoryParameter { parameter_choice: Some(choice) };
    let parameters = [
        ("config".to_owned(), parameter(ParameterChoice::StringParam("{}".to_owned()))),
        ("file:1/model.onnx".to_owned(), parameter(ParameterChoice::BytesParam(vec![0; 4 << 20]))),
    ];
    let request = RepositoryModelLoadRequest {
        model_name: "sent".to_owned(),
        parameters: parameters.into(),
        ..Default::default()
    };
    let mut client = rig.client().await.send_compressed(CompressionEncoding::Gzip);
    let refused = client.repository_model_load(request).await.unwrap_err();
    assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "queue_full", "{refused}");
    assert_eq!(rig.metrics.queued().get(), 0);
}

#[tokio::test]
async fn a_load_request_is_not_decoded_without_explicit_control_or_with_many_parameters() {
    let parameter = || ModelRepositoryParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
    let parameters = (0..1001).map(|n| (n.to_string(), parameter())).collect();
    let many = RepositoryModelLoadRequest { model_name: "sum".to_owned(), parameters, ..Default::default() };
    let explicit = rig(ControlMode::Explicit);
    let refused = explicit.client().await.repository_model_load(many).await.unwrap_err();
    assert!(refused.message().contains("(limits.parameters)"), "{refused}");
    // The message is not even received whole.
    let none = rig(ControlMode::None);
    let mut http2 = Http2Client::connect(none.addresses.grpc.unwrap(), 1 << 20).await;
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let path = "/inference.GRPCInferenceService/RepositoryModelLoad";
    let call = http2.begin(path, &headers, &[0, 0, 0, 1, 0, 7]).await;
    let head = http2.next_of(call).await.expect("an answer");
    assert!(head.ends && head.payload[0] == OK);
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn a_model_that_asks_for_too_much_is_refused_before_it_takes_memory() {
    let rig = rig(ControlMode::Explicit);
    rig.write("sum", SUM, 1, "accumulate INT32");
    rig.load("sum").await.unwrap();
    assert_eq!(rig.sum(7, 5, &[START]).await.unwrap(), 5);
    let before = resident();
    let config = |strategy: &str, instances: u32| {
        let state = r#"[{ "input_name": "INPUT_STATE", "output_name": "OUTPUT_STATE", "data_type": "TYPE_INT32", "dims": [1] }]"#;
        let port = |name: &str| format!(r#"[{{ "name": "{name}", "data_type": "TYPE_INT32", "dims": [1] }}]"#);
        format!(
            r#"{{ "backend": "onnxruntime", {strategy}, "state": {state} }}, "input": {}, "output": {},
                "instance_group": [{{ "count": {instances}, "kind": "KIND_CPU" }}] }}"#,
            port("INPUT"),
            port("OUTPUT")
        )
    };
    let oldest = |slots: u32| {
        format!(r#""max_batch_size": 4, "sequence_batching": {{ "oldest": {{ "max_candidate_sequences": {slots} }}"#)
    };
    let direct = r#""max_batch_size": 2147483647, "sequence_batching": { "direct": {}"#.to_owned();
    let cases = [
        (oldest(2_147_483_647), 1, "max_candidate_sequences: 2147483647 slots on each of 1 instances"),
        (oldest(262_144), 2, "524288 slots, more than the limit of 262144 (limits.slots)"),
        (direct, 1, "max_batch_size: 2147483647 slots"),
        (oldest(4), 500, "instance_group: 500 instances of sum, more than the limit of 256 (limits.instances)"),
        (oldest(4), 2_147_483_647, "instance_group: 2147483647 instances of sum"),
    ];
    for (strategy, instances, why) in cases {
        let load = json!({ "parameters": { "config": config(&strategy, instances) } });
        let answer = rig.post("/v2/repository/models/sum/load", load).await;
        let message = answer.json()["error"].as_str().unwrap().to_owned();
        assert_eq!(answer.status, 500, "{message}");
        assert!(message.contains(why), "{message}");
        assert_eq!(rig.http("GET /v2/health/live", &[], b"").await.status, 200);
    }
    let more = resident().saturating_sub(before) >> 20;
    println!("five refused loads took {more} MiB");
    assert!(more < 32, "{more} MiB more");
    assert_eq!(rig.sum(7, 1, &[]).await.unwrap(), 6, "what serves goes on");
    let load = json!({ "parameters": { "config": config(&oldest(64), 2) } });
    assert_eq!(rig.post("/v2/repository/models/sum/load", load).await.status, 200);
}

/// A server with two repositories: its own folder and `other`.
fn rig_of_two(mode: ControlMode) -> (Rig, tempfile::TempDir) {
    let other = tempfile::tempdir().unwrap();
    let rig = Rig::over(Arc::new(MockBackend::new()), ServerLimits::default(), tempfile::tempdir().unwrap());
    let directories = vec![rig.folder.path().to_owned(), other.path().to_owned()];
    rig.repository.govern(RepositoryControl { mode, directories });
    (rig, other)
}

/// Whether an index row has Triton's reason for a name that is not unique.
fn is_repeated(index: &str) -> bool {
    index.starts_with("same/ UNAVAILABLE model appears in two or more repositories [")
}

#[tokio::test]
async fn a_name_in_two_repositories_is_not_served_by_request_until_it_is_unique() {
    let (rig, other) = rig_of_two(ControlMode::Explicit);
    rig.write("same", SAME, 1, "identity INT32 dims=-1");
    write(other.path(), "same", SAME, 2, "identity INT32 dims=-1");
    assert!(is_repeated(&rig.index(false).await), "{}", rig.index(false).await);
    let refused = rig.load("same").await.unwrap_err();
    let sentence = "failed to load 'same', failed to poll from model repository [not unique across all model repositories: found as ";
    assert!(refused.message().starts_with(sentence), "{refused}");
    assert_eq!(refused.code(), Code::Internal);
    assert!(is_repeated(&rig.index(false).await), "{}", rig.index(false).await);

    fs_err::remove_dir_all(rig.folder.path().join("same")).unwrap();
    rig.load("same").await.unwrap();
    assert_eq!(rig.version("same").await, "2");
}

#[tokio::test]
async fn a_name_in_two_repositories_is_not_served_from_the_start_nor_after_a_poll() {
    for wanted in ["*", "same"] {
        let (rig, other) = rig_of_two(ControlMode::Poll);
        rig.write("same", SAME, 1, "identity INT32 dims=-1");
        write(other.path(), "same", SAME, 2, "identity INT32 dims=-1");
        let blocking = async |work: fn(&sequor::model::Repository, &str)| {
            let repository = rig.repository.clone();
            tokio::task::spawn_blocking(move || work(&repository, wanted)).await.unwrap();
        };
        blocking(|repository, wanted| repository.load_wanted(&[wanted.to_owned()]).unwrap()).await;
        assert!(is_repeated(&rig.index(false).await), "{}", rig.index(false).await);
        assert!(!rig.repository.ready());
        blocking(|repository, _| repository.poll()).await;
        assert!(is_repeated(&rig.index(false).await), "{}", rig.index(false).await);

        // The name becomes unique, and then not unique again.
        let away = other.path().join("same");
        let kept = tempfile::tempdir().unwrap();
        fs_err::rename(&away, kept.path().join("same")).unwrap();
        blocking(|repository, _| repository.poll()).await;
        assert_eq!(rig.index(false).await, "same/1 READY");
        fs_err::rename(kept.path().join("same"), &away).unwrap();
        blocking(|repository, _| repository.poll()).await;
        let reason = "same/1 READY reload failed: model appears in two or more repositories [";
        assert!(rig.index(false).await.starts_with(reason), "{}", rig.index(false).await);
        assert_eq!(rig.version("same").await, "1", "what serves goes on");
        fs_err::remove_dir_all(&away).unwrap();
        blocking(|repository, _| repository.poll()).await;
        assert_eq!(rig.index(false).await, "same/1 READY");
    }
}

#[tokio::test]
async fn a_repository_that_is_named_twice_is_one() {
    let rig = Rig::over(Arc::new(MockBackend::new()), ServerLimits::default(), tempfile::tempdir().unwrap());
    rig.write("same", SAME, 1, "identity INT32 dims=-1");
    let directories = vec![rig.folder.path().to_owned(), rig.folder.path().join(".")];
    rig.repository.govern(RepositoryControl { mode: ControlMode::Explicit, directories });
    assert_eq!(rig.index(false).await, "same/");
    rig.load("same").await.unwrap();
    assert_eq!(rig.version("same").await, "1");
}

#[tokio::test]
async fn load_and_unload_requests_are_refused_without_explicit_control() {
    for mode in [ControlMode::None, ControlMode::Poll] {
        let rig = rig(mode);
        let text = "explicit model load / unload is not allowed if polling is enabled";
        for refused in [rig.load("sum").await.unwrap_err(), rig.unload("sum").await.unwrap_err()] {
            assert_eq!(refused.code(), Code::Unavailable);
            assert!(refused.message().starts_with(text), "{}", refused.message());
        }
    }
}

#[tokio::test]
async fn a_poll_follows_the_files() {
    let rig = rig(ControlMode::Poll);
    let poll = async || {
        let repository = rig.repository.clone();
        tokio::task::spawn_blocking(move || repository.poll()).await.unwrap();
    };
    poll().await;
    assert_eq!(rig.index(false).await, "");
    rig.write("same", SAME, 1, "identity INT32 dims=-1");
    poll().await;
    assert_eq!((rig.version("same").await.as_str(), rig.repository.ready()), ("1", true));
    rig.write("same", SAME, 2, "identity INT32 dims=-1");
    rig.write("bad", SAME, 1, "nonsense");
    poll().await;
    assert_eq!((rig.version("same").await.as_str(), rig.repository.ready()), ("2", false));
    fs_err::remove_dir_all(rig.folder.path().join("bad")).unwrap();
    fs_err::remove_dir_all(rig.folder.path().join("same")).unwrap();
    poll().await;
    let gone = rig.client().await.model_infer(request("same", "", &[1])).await.unwrap_err();
    assert_eq!(gone.message(), "Request for unknown model: 'same' has no available versions (it is not loaded)");
    assert!(rig.repository.ready());
}

#[tokio::test]
async fn http_controls_the_same_repository() {
    let rig = rig(ControlMode::Explicit);
    rig.write("same", SAME, 1, "identity INT32 dims=-1");
    let index = async |body: Value| rig.post("/v2/repository/index", body).await.json();
    assert_eq!(index(Value::Null).await, json!([{ "name": "same" }]));
    let answer = rig.post("/v2/repository/models/same/load", json!({ "parameters": {} })).await;
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    let ready = json!([{ "name": "same", "version": "1", "state": "READY", "reason": "" }]);
    assert_eq!(index(json!({ "ready": true })).await, ready);
    let unload = json!({ "parameters": { "unload_dependents": false } });
    assert_eq!(rig.post("/v2/repository/models/same/unload", unload).await.status, 200);
    assert_eq!(index(json!({ "ready": true })).await, json!([]));
    let failed = rig.post("/v2/repository/models/nope/load", Value::Null).await;
    assert_eq!((failed.status, &failed.json()["reason"]), (500, &json!("not_served")));
    assert!(failed.head.contains("sequor-reason: not_served"), "{}", failed.head);
    assert_eq!(rig.post("/v2/repository/mine/index", Value::Null).await.status, 501);
    assert_eq!(rig.post("/v2/repository/mine/models/same/load", Value::Null).await.status, 501);
    for body in [b"{".as_slice(), b"[true]"] {
        assert_eq!(rig.http("POST /v2/repository/index", &[], body).await.status, 400);
    }
}

#[tokio::test]
async fn the_server_stops_with_live_retired_and_unloaded_models() {
    let rig = rig(ControlMode::Explicit);
    let config = SUM.replace("count: 1", "count: 3");
    rig.write("sum", &config, 1, "accumulate INT32");
    rig.load("sum").await.unwrap();
    assert_eq!(rig.sum(7, 40, &[START]).await.unwrap(), 40);
    for version in 2..5 {
        rig.write("sum", &config, version, "accumulate INT32");
        rig.load("sum").await.unwrap();
    }
    rig.write("same", SAME, 1, "identity INT32 dims=-1");
    rig.load("same").await.unwrap();
    rig.unload("same").await.unwrap();
    // This returns only if all threads of all loads end.
    rig.drain().await;
}

/// The recorded changes with their targets, newest first.
async fn changes(rig: &Rig) -> Vec<String> {
    // The admin listener accepts only its own name as the host.
    let mut stream = TcpStream::connect(rig.addresses.admin.unwrap()).await.unwrap();
    let request = "GET /admin/status.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let report: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let line = |change: &Value| format!("{} {}", change["what"], change["on"]).replace('"', "");
    report["changes"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test]
async fn load_requests_of_clients_are_recorded_in_explicit_mode() {
    let rig = rig(ControlMode::Explicit);
    rig.write("same", SAME, 1, "identity INT32 dims=-1");
    rig.load("same").await.unwrap();
    assert!(rig.load("nope").await.is_err());
    assert_eq!(rig.post("/v2/repository/models/same/unload", Value::Null).await.status, 200);
    assert_eq!(rig.post("/v2/repository/models/same/load", Value::Null).await.status, 200);
    rig.write("same", SAME, 2, "identity INT32 dims=-1");
    assert_eq!(rig.post("/v1/config/reload", Value::Null).await.status, 201);
    assert_eq!(rig.post("/v1/config/reload", Value::Null).await.status, 200);
    let want =
        ["model reload repository", "model load same", "model unload same", "model load nope", "model load same"];
    assert_eq!(changes(&rig).await, want);

    let rig = self::rig(ControlMode::None);
    assert!(rig.load("same").await.is_err());
    assert!(changes(&rig).await.is_empty(), "clients change nothing here");
}
