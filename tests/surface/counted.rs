//! Tests `sequor_requests_total`: it counts each request by the outcome that the client got.

use futures_util::{SinkExt, StreamExt};
use sequor::api::ServerLimits;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::tungstenite::Message;
use tonic::Request;

use crate::rig::{Rig, request};

/// A model that returns its text unchanged.
const TEXT: &str = r#"
    backend: "onnxruntime" max_batch_size: 8
    input [ { name: "INPUT" data_type: TYPE_STRING dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_STRING dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
"#;

/// The counts of a model, each as `api code reason count`.
fn counted(rig: &Rig, model: &str) -> Vec<String> {
    let text = rig.metrics.encode();
    let of = format!("sequor_requests_total{{model=\"{model}\",");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&of));
    let mut counts: Vec<String> = lines
        .map(|line| line.replace("api=", "").replace(",code=", " ").replace(",reason=", " ").replace(['"', '}'], ""))
        .collect();
    counts.sort();
    counts
}

/// A request whose text cannot be sent in JSON: its JSON, and the element after it.
fn unsendable() -> (Value, Vec<u8>) {
    let element = [&1u32.to_le_bytes()[..], b"\xff"].concat();
    let size = json!({ "binary_data_size": element.len() });
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "BYTES", "parameters": size });
    (json!({ "id": "x", "inputs": [input] }), element)
}

#[tokio::test]
async fn an_answer_that_cannot_be_sent_counts_as_its_refusal() {
    let rig = Rig::with(ServerLimits::default(), &[("text", TEXT, "identity BYTES dims=1")]);
    let (json, element) = unsendable();
    let json = json.to_string();
    let length = json.len().to_string();
    let body = [json.as_bytes(), &element].concat();
    let headers = [("inference-header-content-length", length.as_str())];
    let answer = rig.http("POST /v2/models/text/infer", &headers, &body).await;
    assert_eq!((answer.status, &answer.json()["reason"]), (400, &json!("answer_unsent")));
    assert_eq!(counted(&rig, "text"), ["kserve_http INVALID_ARGUMENT answer_unsent 1"]);

    let address = rig.addresses.http.unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let url = format!("ws://{address}/v2/models/text/stream");
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let length = u32::try_from(json.len()).unwrap().to_le_bytes();
    socket.send(Message::binary([&length[..], &body].concat())).await.unwrap();
    let value: Value = serde_json::from_str(socket.next().await.unwrap().unwrap().to_text().unwrap()).unwrap();
    assert_eq!((&value["reason"], &value["id"]), (&json!("answer_unsent"), &json!("x")));
    rig.until(|rig| counted(rig, "text") == ["kserve_http INVALID_ARGUMENT answer_unsent 2"]).await;

    let answer = rig.post("/v1/models/text:predict", json!({ "instances": [["good"]] })).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    assert_eq!(counted(&rig, "text"), ["kserve_http INVALID_ARGUMENT answer_unsent 2", "tfs_http OK  1"]);
}

#[tokio::test]
async fn a_client_that_has_gone_counts_as_cancelled() {
    let (rig, gate) = Rig::slow().await;
    assert_eq!(counted(&rig, "slow"), ["kserve_grpc OK  1"]);
    gate.close();
    let body =
        json!({ "inputs": [{ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] }] }).to_string();
    let head = format!("POST /v2/models/slow/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut caller = TcpStream::connect(rig.addresses.http.unwrap()).await.unwrap();
    caller.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
    let (sender, receiver) = mpsc::channel(4);
    let mut client = rig.client().await;
    let replies = client.model_stream_infer(Request::new(ReceiverStream::new(receiver))).await.unwrap();
    for n in [2, 3] {
        sender.send(request("slow", "", &vec![1; n])).await.unwrap();
    }
    rig.until(|rig| rig.metrics.in_flight().get() == 3).await;
    drop((caller, replies, sender, client));
    let gone = ["kserve_grpc CANCELLED cancelled 2", "kserve_grpc OK  1", "kserve_http CANCELLED cancelled 1"];
    rig.until(|rig| counted(rig, "slow") == gone).await;
    gate.open();
    rig.until(|rig| rig.metrics.in_flight().get() == 0).await;
    assert_eq!(counted(&rig, "slow"), gone, "each is counted once");
}
