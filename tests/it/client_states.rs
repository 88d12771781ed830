//! Tests a START that brings the state of its sequence, in each form in which a request can arrive.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use futures_util::{SinkExt as _, StreamExt as _};
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::{InferTensorContents, ModelInferRequest, ModelInferResponse};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::server::{Call, Server, copy, models};
use crate::steps::parameter;

const MODEL: &str = "accumulator_fp32";

fn server() -> Server {
    let call = Call::serve("repository");
    let model = call.folder.path().join("repository").join(MODEL);
    copy(&models().join(MODEL), &model);
    std::fs::write(model.join("sequor.toml"), "[sequence]\nidle = \"1h\"\nclient_state = true\n").unwrap();
    call.start()
}

/// A step: its value, and the state that it brings. A step with a state is a START.
type Step = (f32, Option<f32>);

/// A START with a state, its next step, a START on the live id with another state, and a plain START.
const STEPS: [(Step, bool, f32); 5] = [
    ((5.0, Some(100.0)), true, 105.0),
    ((1.0, None), false, 106.0),
    ((1.0, Some(-7.5)), true, -6.5),
    ((2.0, None), false, -4.5),
    ((3.0, None), true, 3.0),
];

/// The tensors of a step, the state first.
fn tensors((value, state): Step) -> Vec<(&'static str, f32)> {
    state.map(|state| ("INPUT_STATE", state)).into_iter().chain([("INPUT", value)]).collect()
}

fn parameters(id: u32, start: bool) -> Value {
    json!({ "sequence_id": id, "sequence_start": start })
}

fn in_json(id: u32, of: Step, start: bool) -> Value {
    let tensor = |(name, value)| json!({ "name": name, "shape": [1, 1], "datatype": "FP32", "data": [value] });
    json!({ "parameters": parameters(id, start), "inputs": tensors(of).into_iter().map(tensor).collect::<Vec<_>>() })
}

/// A request whose tensors follow its JSON as bytes, and the length of the JSON.
fn in_binary(id: u32, of: Step, start: bool) -> (Vec<u8>, usize) {
    let all = tensors(of);
    let size = json!({ "binary_data_size": 4 });
    let tensor =
        |(name, _): &(&str, f32)| json!({ "name": name, "shape": [1, 1], "datatype": "FP32", "parameters": size });
    let json = json!({ "parameters": parameters(id, start), "inputs": all.iter().map(tensor).collect::<Vec<_>>() });
    let json = json.to_string().into_bytes();
    let bytes = all.iter().flat_map(|(_, value)| value.to_le_bytes());
    (json.iter().copied().chain(bytes).collect(), json.len())
}

fn in_protobuf(id: i64, of: Step, start: bool, is_raw: bool) -> ModelInferRequest {
    let all = tensors(of);
    let tensor = |(name, value): &(&str, f32)| InferInputTensor {
        name: (*name).to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![1, 1],
        contents: (!is_raw).then(|| InferTensorContents { fp32_contents: vec![*value], ..Default::default() }),
        ..InferInputTensor::default()
    };
    let named = |name: &str, choice| (name.to_owned(), parameter(choice));
    ModelInferRequest {
        model_name: MODEL.to_owned(),
        parameters: [
            named("sequence_id", ParameterChoice::Int64Param(id)),
            named("sequence_start", ParameterChoice::BoolParam(start)),
        ]
        .into(),
        inputs: all.iter().map(tensor).collect(),
        raw_input_contents: match is_raw {
            true => all.iter().map(|(_, value)| value.to_le_bytes().to_vec().into()).collect(),
            false => Vec::new(),
        },
        ..ModelInferRequest::default()
    }
}

fn sum_of_json(answer: &Value) -> f32 {
    let sum = answer["outputs"][0]["data"][0].as_f64().unwrap_or_else(|| panic!("{answer}"));
    #[allow(clippy::cast_possible_truncation, reason = "the sums are small")]
    let sum = sum as f32;
    sum
}

fn sum_of_protobuf(answer: &ModelInferResponse) -> f32 {
    f32::from_le_bytes(answer.raw_output_contents[0][..4].try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_brings_its_state_over_a_grpc_stream() {
    let server = server();
    for (id, is_raw) in [(1, true), (2, false)] {
        let requests = STEPS.map(|(of, start, _)| in_protobuf(id, of, start, is_raw));
        let mut client = server.client().await;
        let mut answers = client.model_stream_infer(tokio_stream::iter(requests)).await.unwrap().into_inner();
        for (_, _, expected) in STEPS {
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!(answer.error_message, "");
            assert_eq!(sum_of_protobuf(&answer.infer_response.unwrap()), expected, "{is_raw}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_brings_its_state_over_a_websocket() {
    let server = server();
    let stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
    let address = format!("ws://{}/v2/models/{MODEL}/stream", server.http);
    let (mut socket, _) = tokio_tungstenite::client_async(address, stream).await.unwrap();
    for (of, start, expected) in STEPS {
        let (binary, length) = in_binary(2, of, start);
        let length = u32::try_from(length).unwrap().to_le_bytes();
        let binary = Message::binary([&length[..], &binary].concat());
        for message in [Message::text(in_json(1, of, start).to_string()), binary] {
            socket.send(message).await.unwrap();
            let answer = socket.next().await.unwrap().unwrap();
            let answer = match &answer {
                Message::Binary(bytes) => {
                    let (length, rest) = bytes.split_first_chunk::<4>().unwrap();
                    serde_json::from_slice(&rest[..u32::from_le_bytes(*length) as usize]).unwrap()
                }
                text => serde_json::from_str::<Value>(text.to_text().unwrap()).unwrap(),
            };
            assert_eq!(sum_of_json(&answer), expected);
        }
    }
}

/// Sends a request with its tensors as bytes over HTTP.
fn post_binary(http: SocketAddr, (body, length): &(Vec<u8>, usize)) -> Value {
    let mut stream = TcpStream::connect(http).unwrap();
    let head = format!(
        "POST /v2/models/{MODEL}/infer HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\
         inference-header-content-length: {length}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

#[test]
fn a_start_brings_its_state_as_bytes_over_http() {
    let server = server();
    for (of, start, expected) in STEPS {
        assert_eq!(sum_of_json(&post_binary(server.http, &in_binary(1, of, start))), expected);
    }
    // A state on a later step is refused, and the sequence goes on.
    let mut late = in_json(1, (1.0, Some(1.0)), false);
    late["parameters"]["sequence_start"] = json!(false);
    let refused = crate::plugins::post(server.http, &format!("/v2/models/{MODEL}/infer"), &late);
    assert_eq!(refused["reason"], "bad_input", "{refused}");
    assert_eq!(sum_of_json(&post_binary(server.http, &in_binary(1, (1.0, None), false))), 4.0);
}
