//! Tests other forms of answers: classes, lists of numbers, compressed bodies, raw bodies, and their headers.

use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use sequor::api::ServerLimits;
use sequor::backend::mock::MockBackend;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferRequestedOutputTensor;
use sequor_proto::{InferTensorContents, ModelInferRequest};
use serde_json::json;
use tonic::{Code, Request};

use crate::rig::{Rig, SAME, parameter, request, write};

const SCORES: &str = r#"
    backend: "onnxruntime" max_batch_size: 8
    input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 3 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
"#;

fn scores_rig() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "scores", SCORES, 1, "identity FP32 dims=3");
    fs_err::write(folder.path().join("scores/labels.txt"), "cat\ndog\nbird\n").unwrap();
    let rig = Rig::over(Arc::new(MockBackend::new()), ServerLimits::default(), folder);
    rig.repository.load_all(rig.folder.path()).unwrap();
    assert!(rig.repository.ready(), "{:?}", rig.repository.statuses());
    rig
}

#[tokio::test]
async fn a_classification_names_the_highest_classes() {
    let rig = scores_rig();
    let mut asked = request("scores", "", &[0, 0, 0]);
    asked.inputs[0].datatype = "FP32".to_owned();
    asked.raw_input_contents =
        vec![[0.25f32, 0.5, 0.125].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>().into()];
    let count = parameter(ParameterChoice::Int64Param(2));
    let parameters = [("classification".to_owned(), count)].into();
    asked.outputs = vec![InferRequestedOutputTensor { name: "OUTPUT".to_owned(), parameters }];
    let answer = rig.client().await.model_infer(asked).await.unwrap().into_inner();
    let output = &answer.outputs[0];
    assert_eq!((output.datatype.as_str(), output.shape.as_slice()), ("BYTES", [1, 2].as_slice()));
    let want = ["0.500000:1:dog", "0.250000:0:cat"];
    let texts: Vec<u8> =
        want.iter().flat_map(|t| [&(t.len() as u32).to_le_bytes()[..], t.as_bytes()].concat()).collect();
    assert_eq!(answer.raw_output_contents[0], texts);

    let body = json!({
        "inputs": [{ "name": "INPUT", "shape": [2, 3], "datatype": "FP32", "data": [0.25, 0.5, 0.125, 3, 1, 2] }],
        "outputs": [{ "name": "OUTPUT", "parameters": { "classification": 1 } }],
    });
    let answer = rig.post("/v2/models/scores/infer", body.clone()).await.json();
    let output = &answer["outputs"][0];
    assert_eq!((&output["datatype"], &output["shape"]), (&json!("BYTES"), &json!([2, 1])));
    assert_eq!(output["data"], json!(["0.500000:1:dog", "3.000000:0:cat"]));
    let mut wrong = body;
    wrong["outputs"][0]["parameters"]["classification"] = json!(0);
    assert_eq!(rig.post("/v2/models/scores/infer", wrong).await.status, 400);
}

/// The classes of an output whose size is not known before the run.
#[tokio::test]
async fn a_classification_of_too_many_classes_is_refused_before_it_runs() {
    let rig = Rig::new();
    let answer = async |count: u64| {
        let output = json!({ "name": "OUTPUT", "parameters": { "classification": count } });
        let input = json!({ "name": "INPUT", "shape": [1, 3], "datatype": "INT32", "data": [5, 7, 6] });
        rig.post("/v2/models/same/infer", json!({ "inputs": [input], "outputs": [output] })).await
    };
    let all = answer(1 << 20).await;
    assert_eq!(all.json()["outputs"][0]["data"], json!(["7:1", "6:2", "5:0"]));
    let refused = answer((1 << 20) + 1).await;
    let text = "output 'OUTPUT' would have 1048577 classes, the maximum is 1048576; ask for fewer";
    assert_eq!((refused.status, &refused.json()["error"]), (400, &json!(text)));
}

fn typed() -> ModelInferRequest {
    let mut request = request("same", "", &[0, 0]);
    request.raw_input_contents.clear();
    request.inputs[0].contents = Some(InferTensorContents { int_contents: vec![5, -6], ..Default::default() });
    request
}

#[tokio::test]
async fn a_client_that_sends_typed_contents_may_request_typed_contents() {
    let rig = Rig::new();
    let mut client = rig.client().await;
    let raw = client.model_infer(typed()).await.unwrap().into_inner();
    assert_eq!((raw.outputs[0].contents.clone(), raw.raw_output_contents.len()), (None, 1));
    let mut by_parameter = typed();
    by_parameter.parameters.insert("sequor_typed".to_owned(), parameter(ParameterChoice::BoolParam(true)));
    let mut by_metadata = Request::new(typed());
    by_metadata.metadata_mut().insert("x-typed-contents", "true".parse().unwrap());
    for request in [Request::new(by_parameter), by_metadata] {
        let answer = client.model_infer(request).await.unwrap().into_inner();
        assert_eq!(answer.outputs[0].contents.clone().unwrap().int_contents, [5, -6]);
        assert!(answer.raw_output_contents.is_empty());
    }
    let mut bytes = Request::new(request("same", "", &[5]));
    bytes.metadata_mut().insert("x-typed-contents", "true".parse().unwrap());
    let answer = client.model_infer(bytes).await.unwrap().into_inner();
    assert_eq!((answer.outputs[0].contents.clone(), answer.raw_output_contents.len()), (None, 1));
}

#[tokio::test]
async fn bodies_are_packed_both_ways() {
    let rig = Rig::new();
    let numbers: Vec<i32> = (0..2000).collect();
    let input = json!({ "name": "INPUT", "shape": [1, 2000], "datatype": "INT32", "data": numbers });
    let body = json!({ "inputs": [input] }).to_string();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body.as_bytes()).unwrap();
    let mut deflate = ZlibEncoder::new(Vec::new(), Compression::fast());
    deflate.write_all(body.as_bytes()).unwrap();
    let plain = rig.http("POST /v2/models/same/infer", &[], body.as_bytes()).await;
    for (name, packed) in [("gzip", gzip.finish().unwrap()), ("deflate", deflate.finish().unwrap())] {
        let headers = [("content-encoding", name), ("accept-encoding", name)];
        let answer = rig.http("POST /v2/models/same/infer", &headers, &packed).await;
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains(&format!("content-encoding: {name}")), "{}", answer.head);
        let mut unpacked = Vec::new();
        match name {
            "gzip" => GzDecoder::new(&*answer.body).read_to_end(&mut unpacked).unwrap(),
            _ => ZlibDecoder::new(&*answer.body).read_to_end(&mut unpacked).unwrap(),
        };
        assert_eq!(unpacked, plain.body);
        assert!(answer.body.len() < plain.body.len());
    }
    let odd = rig.http("POST /v2/models/same/infer", &[("content-encoding", "br")], b"x").await;
    assert_eq!(odd.status, 501);
}

#[tokio::test]
async fn a_binary_body_without_a_json_header_is_the_only_input() {
    let rig = Rig::new();
    let answer = rig
        .http("POST /v2/models/same/infer", &[("inference-header-content-length", "0")], &[1, 0, 0, 0, 2, 0, 0, 0])
        .await;
    let length: usize =
        answer.head.lines().find_map(|l| l.strip_prefix("inference-header-content-length: ")).unwrap().parse().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&answer.body[..length]).unwrap();
    assert_eq!((answer.status, &value["outputs"][0]["shape"]), (200, &json!([1, 2])));
    assert_eq!(answer.body[length..], [1, 0, 0, 0, 2, 0, 0, 0]);
    let odd = rig.http("POST /v2/models/same/infer", &[("inference-header-content-length", "0")], &[1]).await;
    assert_eq!(odd.status, 400);
}

#[tokio::test]
async fn health_probes_answer_and_request_ids_are_returned() {
    let rig = Rig::with(ServerLimits::default(), &[]);
    for path in ["/livez", "/healthz", "/readyz"] {
        assert_eq!(rig.http(&format!("GET {path}"), &[], b"").await.status, 200, "{path}");
    }
    write(rig.folder.path(), "bad", SAME, 1, "nonsense");
    rig.repository.load(&rig.folder.path().join("bad"));
    assert_eq!(rig.http("GET /readyz", &[], b"").await.status, 503);
    let marks = [("x-request-id", "r-77"), ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")];
    for request in ["GET /v2", "POST /v2/models/nope/infer"] {
        let head = rig.http(request, &marks, b"").await.head;
        assert!(marks.iter().all(|(key, value)| head.contains(&format!("{key}: {value}"))), "{head}");
    }
    let mut asked = Request::new(crate::rig::request("same", "", &[1]));
    asked.metadata_mut().insert("x-request-id", "r-78".parse().unwrap());
    let answer = rig.client().await.model_infer(asked).await.unwrap();
    assert_eq!(answer.metadata().get("x-request-id").unwrap(), "r-78");
    let extensions = rig.get("/v2").await["extensions"].clone();
    assert!(!extensions.as_array().unwrap().contains(&json!("trace")), "{extensions}");
    let unknown = rig.client().await.model_infer(request("nope", "", &[1])).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}
