//! Tests `generate` and `generate_stream` in a real server, and models that are declared as decoupled.

use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::{InferTensorContents, ModelInferRequest};
use serde_json::{Value, json};

use crate::cache::{send, write};
use crate::server::{Call, Server, copy, models};

/// A model whose OUTPUT is twice INPUT, and which is declared as decoupled.
const MANY: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: 1 }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: 1 }
    instance_group { count: 1 kind: KIND_CPU }
    model_transaction_policy { decoupled: true }
"#;

fn served() -> Server {
    let call = Call::serve("repository");
    let repository = call.folder.path().join("repository");
    write(&repository, "many", "optional", MANY);
    write(&repository, "twice", "optional", &MANY.replace("decoupled: true", ""));
    copy(&models().join("accumulator_int32"), &repository.join("accumulator_int32"));
    copy(&models().join("gru"), &repository.join("gru"));
    call.start()
}

fn generate(server: &Server, path: &str, body: &Value) -> Value {
    let (status, head, text) = send(server.http, &format!("/v2/models/{path}/generate"), body);
    assert!(status == 200 && head.contains("content-type: application/json"), "{head}\n{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn keys_become_tensors_and_outputs_become_keys() {
    let server = served();
    let answer = generate(&server, "twice", &json!({ "id": "r-1", "INPUT": 1.5, "temperature": 0.5 }));
    assert_eq!(answer, json!({ "id": "r-1", "model_name": "twice", "model_version": "1", "OUTPUT": 3.0 }));
    let answer = generate(&server, "twice/versions/1", &json!({ "INPUT": [[1], [2]] }));
    assert_eq!(answer["OUTPUT"], json!([2.0, 4.0]));
    // A sequence, with its parameters at the top level or in `parameters`.
    let step = |body: Value| generate(&server, "accumulator_int32", &body)["OUTPUT"].as_i64().unwrap();
    assert_eq!(step(json!({ "INPUT": 5, "sequence_id": 7, "sequence_start": true })), 5);
    assert_eq!(step(json!({ "INPUT": 3, "parameters": { "sequence_id": 7, "sequence_end": true } })), 8);

    let refused = |path: &str, body: Value| {
        let (status, head, text) = send(server.http, &format!("/v2/models/{path}/generate"), &body);
        assert!(head.contains("sequor-reason"), "{head}");
        (status, serde_json::from_str::<Value>(&text).unwrap()["error"].as_str().unwrap().to_owned())
    };
    let (status, text) = refused("twice", json!({ "INPUT": "x" }));
    assert!(status == 400 && text.contains("'INPUT' as FP32"), "{text}");
    let (status, text) = refused("twice", json!({}));
    assert!(status == 400 && text.contains("expected 1 inputs but got 0 inputs"), "{text}");
    let (status, text) = refused("twice", json!({ "INPTU": 1 }));
    let named = " [no input of model 'twice' is named 'INPTU'; its inputs: INPUT]";
    assert!(status == 400 && text.contains("expected 1 inputs") && text.ends_with(named), "{text}");
    assert_eq!(refused("nope", json!({ "INPUT": 1 })).0, 404);
    assert_eq!(refused("accumulator_int32", json!({ "INPUT": 1 })).0, 400, "no sequence id");
}

#[test]
fn a_generated_stream_has_one_event() {
    let server = served();
    let (status, head, body) = send(server.http, "/v2/models/twice/generate_stream", &json!({ "INPUT": 2 }));
    assert!(status == 200 && head.contains("content-type: text/event-stream; charset=utf-8"), "{head}");
    let event = body.strip_prefix("data: ").and_then(|event| event.strip_suffix("\n\n")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(event).unwrap()["OUTPUT"], 4.0);
    let (status, head, body) = send(server.http, "/v2/models/twice/generate_stream", &json!({ "INPUT": [1, 2, 3] }));
    assert!(status == 400 && head.contains("application/json") && body.contains("\"error\""), "{head}\n{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoupled_model_answers_on_streams_and_to_generate_alone() {
    let server = served();
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "FP32", "data": [4] });
    let (status, _, body) = send(server.http, "/v2/models/many/infer", &json!({ "inputs": [input] }));
    assert!(
        status == 501 && body.contains("HTTP end point doesn't support models with decoupled transaction policy"),
        "{body}"
    );
    assert_eq!(generate(&server, "many", &json!({ "INPUT": 4 }))["OUTPUT"], 8.0);

    let contents = InferTensorContents { fp32_contents: vec![4.0], ..InferTensorContents::default() };
    let input = InferInputTensor {
        name: "INPUT".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![1, 1],
        contents: Some(contents),
        ..InferInputTensor::default()
    };
    let request =
        ModelInferRequest { model_name: "many".to_owned(), inputs: vec![input], ..ModelInferRequest::default() };
    let mut client = server.client().await;
    let refused = client.model_infer(request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
    assert!(refused.message().starts_with("ModelInfer RPC doesn't support models with decoupled transaction policy"));
    let mut answers = client.model_stream_infer(tokio_stream::once(request)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    assert_eq!((answer.error_message.as_str(), answer.infer_response.is_some()), ("", true));
}
