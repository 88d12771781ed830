//! Tests parts of answers other than tensors: versions, readiness, outputs requested twice, and ids that the server assigns.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use sequor::api::ServerLimits;
use sequor::backend::mock::MockBackend;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferRequestedOutputTensor;
use sequor_proto::{ModelInferRequest, ModelInferResponse};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tonic::Code;

use crate::rig::{Rig, START, parameter, request, step, values, write};

/// A server whose model `made` uses the dialect `ovms`: a START without an id gets one.
fn ovms_rig() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "made", crate::rig::SUM, 1, "accumulate INT32");
    fs_err::write(folder.path().join("made/sequor.toml"), "schema = 1\n[sequence]\nrules = \"ovms\"\n").unwrap();
    let rig = Rig::over(Arc::new(MockBackend::new()), ServerLimits::default(), folder);
    rig.repository.load_all(rig.folder.path()).unwrap();
    assert!(rig.repository.ready(), "{:?}", rig.repository.statuses());
    rig
}

/// The id in a gRPC answer.
fn made_id(answer: &ModelInferResponse) -> Option<i64> {
    match answer.parameters.get("sequence_id")?.parameter_choice.as_ref()? {
        ParameterChoice::Int64Param(id) => Some(*id),
        other => panic!("{other:?}"),
    }
}

/// A step of the model `made`; 0 means no id.
fn made(id: i64, value: i32, flags: &[&str]) -> ModelInferRequest {
    let mut request = ModelInferRequest { model_name: "made".to_owned(), ..step(id, "", value, flags) };
    if id == 0 {
        request.parameters.remove("sequence_id");
    }
    request
}

fn body(value: i32, parameters: &Value) -> Value {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [value] });
    json!({ "parameters": parameters, "inputs": [input] })
}

#[tokio::test]
async fn an_id_that_the_server_made_is_in_the_answer_over_grpc_and_only_there() {
    let rig = ovms_rig();
    let mut client = rig.client().await;
    let started = client.model_infer(made(0, 40, &[START])).await.unwrap().into_inner();
    let id = made_id(&started).expect("an id");
    let next = client.model_infer(made(id, 2, &[])).await.unwrap().into_inner();
    assert_eq!((values(&next), made_id(&next)), (vec![42], None));
    let own = client.model_infer(made(7, 1, &[START])).await.unwrap().into_inner();
    assert_eq!(made_id(&own), None);

    let requests = tokio_stream::iter([made(0, 5, &[START]), made(8, 1, &[START])]);
    let mut replies = client.model_stream_infer(requests).await.unwrap().into_inner();
    let mut reply = async || replies.next().await.unwrap().unwrap().infer_response.unwrap();
    let streamed = made_id(&reply().await).expect("an id on the stream");
    assert_ne!(streamed, id);
    assert_eq!(made_id(&reply().await), None);
    let next = client.model_infer(made(streamed, 2, &[])).await.unwrap().into_inner();
    assert_eq!(values(&next), [7]);
}

#[tokio::test]
async fn an_id_that_the_server_made_is_in_the_answer_over_http_and_websocket() {
    let rig = ovms_rig();
    let infer = async |value, parameters: Value| {
        let answer = rig.post("/v2/models/made/infer", body(value, &parameters)).await;
        assert_eq!(answer.status, 200, "{}", answer.json());
        answer.json()
    };
    let started = infer(40, json!({ "sequence_start": true })).await;
    let id = started["parameters"]["sequence_id"].as_u64().expect("an id");
    let next = infer(2, json!({ "sequence_id": id })).await;
    assert_eq!((&next["outputs"][0]["data"], &next["parameters"]), (&json!([42]), &Value::Null));
    assert_eq!(infer(1, json!({ "sequence_id": 7, "sequence_start": true })).await["parameters"], Value::Null);

    let address = rig.addresses.http.unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let url = format!("ws://{address}/v2/models/made/stream");
    let mut socket = tokio_tungstenite::client_async(url, stream).await.unwrap().0;
    let mut ask = async |value, parameters: Value| {
        socket.send(Message::text(body(value, &parameters).to_string())).await.unwrap();
        let message = socket.next().await.unwrap().unwrap();
        serde_json::from_str::<Value>(message.to_text().unwrap()).unwrap()
    };
    let started = ask(5, json!({ "sequence_start": true })).await;
    let id = started["parameters"]["sequence_id"].as_u64().expect("an id on the socket");
    let next = ask(2, json!({ "sequence_id": id })).await;
    assert_eq!((&next["outputs"][0]["data"], &next["parameters"]), (&json!([7]), &Value::Null));
}

#[tokio::test]
async fn an_output_that_is_requested_twice_is_answered_once() {
    let rig = Rig::new();
    let mut twice = request("same", "", &[3]);
    twice.outputs = vec![InferRequestedOutputTensor { name: "OUTPUT".to_owned(), ..Default::default() }; 2];
    let answer = rig.client().await.model_infer(twice).await.unwrap().into_inner();
    assert_eq!((answer.outputs.len(), values(&answer)), (1, vec![3]));
    let mut twice = body(3, &json!({}));
    twice["outputs"] = json!([{ "name": "OUTPUT" }, { "name": "OUTPUT" }]);
    let answer = rig.post("/v2/models/same/infer", twice).await.json();
    assert_eq!(answer["outputs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_version_is_read_as_triton_reads_it() {
    let rig = Rig::new();
    let ask = async |version: &str| {
        let versioned = ModelInferRequest { model_version: version.to_owned(), ..request("same", "", &[3]) };
        rig.client().await.model_infer(versioned).await.map(|answer| answer.into_inner().model_version)
    };
    for version in ["1", "1.0", " 1", "+1", "1abc", "001"] {
        assert_eq!(ask(version).await.expect(version), "1", "{version}");
    }
    for version in ["-1", "abc", "", "9223372036854775808"] {
        let refused = ask(version).await.map_err(|status| status.code());
        let want = if version.is_empty() { Ok("1".to_owned()) } else { Err(Code::InvalidArgument) };
        assert_eq!(refused, want, "{version}");
    }
    assert_eq!(ask("2.0").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(
        rig.http("POST /v2/models/same/versions/1.0/infer", &[], body(3, &json!({})).to_string().as_bytes())
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_model_that_is_not_there_is_not_ready() {
    let rig = Rig::new();
    for path in ["/v2/models/nope/ready", "/v2/models/sum/versions/7/ready"] {
        let answer = rig.http(&format!("GET {path}"), &[], b"").await;
        assert_eq!((answer.status, &answer.json()["error"]), (400, &json!("Model version not ready")), "{path}");
        assert_eq!(answer.json()["reason"], "not_served");
    }
    assert_eq!(rig.http("GET /v2/models/sum/ready", &[], b"").await.status, 200);
}

/// Triton refuses this.
#[tokio::test]
async fn a_sequence_id_may_be_an_unsigned_parameter() {
    let rig = Rig::new();
    let mut client = rig.client().await;
    let unsigned = |value, flags: &[&str]| {
        let mut step = step(0, "", value, flags);
        step.parameters.insert("sequence_id".to_owned(), parameter(ParameterChoice::Uint64Param(9)));
        step
    };
    client.model_infer(unsigned(40, &[START])).await.unwrap();
    assert_eq!(values(client.model_infer(unsigned(2, &[])).await.unwrap().get_ref()), [42]);
}
