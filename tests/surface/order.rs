//! Tests large messages, which another thread decodes: their requests keep their order within the connection.

use std::io::{Read, Write};

use axum::http::Request;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use prost::Message as _;
use sequor::config::server::file::ControlMode;
use sequor::model::RepositoryControl;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::tungstenite::Message;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

use crate::http2::{HEADERS, Http2Client, OK};
use crate::rig::{Rig, SAME, START, parameter, request, step, values};

/// Size of a meaningless parameter that makes a message large.
const PADDING: usize = 1 << 20;

/// Step `n` of sequence 7; every other one is large.
fn padded(n: i32) -> sequor_proto::ModelInferRequest {
    let mut step = step(7, "", n, if n == 0 { &[START] } else { &[] });
    if n % 2 == 0 {
        step.parameters.insert("padding".to_owned(), parameter(ParameterChoice::StringParam("x".repeat(PADDING))));
    }
    step
}

#[tokio::test]
async fn calls_that_are_sent_ahead_keep_their_order_beside_large_ones() {
    let rig = Rig::new();
    let client = rig.client().await.send_compressed(CompressionEncoding::Gzip);
    let calls = (0..20).map(|n| {
        let mut client = client.clone();
        async move { client.model_infer(padded(n)).await }
    });
    for (n, answer) in (0..).zip(join_all(calls).await) {
        assert_eq!(values(answer.unwrap().get_ref()), [n * (n + 1) / 2], "step {n}");
    }
}

#[tokio::test]
async fn steps_on_a_stream_keep_their_order_beside_large_ones() {
    let rig = Rig::new();
    for client in [rig.client().await, rig.client().await.send_compressed(CompressionEncoding::Gzip)] {
        let requests = tokio_stream::iter((0..20).map(padded));
        let mut replies = client.clone().model_stream_infer(requests).await.unwrap().into_inner();
        for n in 0..20 {
            let reply = replies.next().await.unwrap().unwrap();
            assert_eq!(values(&reply.infer_response.unwrap()), [n * (n + 1) / 2], "step {n}: {}", reply.error_message);
        }
    }
}

#[tokio::test]
async fn messages_of_a_socket_keep_their_order_beside_large_ones() {
    let rig = Rig::new();
    let address = rig.addresses.http.unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let url = format!("ws://{address}/v2/models/sum/stream");
    let mut socket = tokio_tungstenite::client_async(url, stream).await.unwrap().0;
    for n in 0..20 {
        let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [n] });
        let padding = "x".repeat(if n % 2 == 0 { PADDING } else { 0 });
        let parameters = json!({ "sequence_id": 7, "sequence_start": n == 0, "padding": padding });
        let body = json!({ "id": n.to_string(), "parameters": parameters, "inputs": [input] });
        socket.send(Message::text(body.to_string())).await.unwrap();
    }
    for n in 0..20 {
        let message = socket.next().await.unwrap().unwrap();
        let answer: serde_json::Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
        assert_eq!((&answer["id"], &answer["outputs"][0]["data"]), (&json!(n.to_string()), &json!([n * (n + 1) / 2])));
    }
}

/// The head and body of the next answer on a connection.
async fn answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

/// Answers of more than 256 KiB are compressed on another thread. Later answers of the connection wait for that.
#[tokio::test]
async fn answers_on_a_connection_keep_their_order_beside_large_packed_ones() {
    let rig = Rig::new();
    let mut stream = TcpStream::connect(rig.addresses.http.unwrap()).await.unwrap();
    let large: Vec<u8> = (0..PADDING / 4).flat_map(|n| i32::try_from(n).unwrap().to_le_bytes()).collect();
    for body in [&large[..], &[1, 0, 0, 0]] {
        let head = "POST /v2/models/same/infer HTTP/1.1\r\nhost: localhost\r\naccept-encoding: gzip\r\n\
            inference-header-content-length: 0\r\ncontent-length: ";
        stream.write_all(format!("{head}{}\r\n\r\n", body.len()).as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
    }
    let (head, packed) = answer(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-encoding: gzip"), "{head}");
    let mut unpacked = Vec::new();
    GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked.ends_with(&large), "{} bytes", unpacked.len());
    let (head, small) = answer(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200") && small.ends_with(&[1, 0, 0, 0]), "{head}");
}

/// A second message of a unary call is ignored, and does not wait for the turn of the first.
#[tokio::test]
async fn a_call_with_two_compressed_messages_is_answered() {
    let rig = Rig::new();
    let address = rig.addresses.grpc.unwrap();
    let mut channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(&request("same", "", &[3]).encode_to_vec()).unwrap();
    let packed = packer.finish().unwrap();
    let length = u32::try_from(packed.len()).unwrap().to_be_bytes();
    let frames = [&[1][..], &length, &packed].concat().repeat(2);
    let call = Request::post(format!("http://{address}/inference.GRPCInferenceService/ModelInfer"))
        .header("content-type", "application/grpc")
        .header("grpc-encoding", "gzip")
        .header("te", "trailers");
    let call = call.body(Body::new(Full::new(Bytes::from(frames)))).unwrap();
    let answer = channel.ready().await.unwrap().call(call).await.unwrap();
    let (parts, body) = answer.into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or(parts.headers);
    assert_eq!(trailers["grpc-status"], "0");
}

/// A call with an incomplete body counts towards limits, but does not block other calls of its connection.
#[tokio::test]
async fn a_compressed_call_that_stays_open_does_not_hold_up_its_connection() {
    let rig = Rig::new();
    let address = rig.addresses.grpc.unwrap();
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    // 100 KiB, with its flag and length. The flag marks the message as not compressed.
    let message = request("same", "", &vec![3; 25 << 10]).encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let bytes = Bytes::from([&[0][..], &length, &message].concat());
    let (sender, frames) = tokio::sync::mpsc::channel(2);
    let counted = i64::try_from(bytes.len()).unwrap();
    sender.send(Ok::<_, std::convert::Infallible>(Frame::data(bytes))).await.unwrap();
    let call = Request::post(format!("http://{address}/inference.GRPCInferenceService/ModelInfer"))
        .header("content-type", "application/grpc")
        .header("grpc-encoding", "gzip")
        .header("te", "trailers");
    let call = call.body(Body::new(StreamBody::new(ReceiverStream::new(frames)))).unwrap();
    let open = tokio::spawn(channel.clone().ready().await.unwrap().call(call));
    rig.until(|rig| rig.metrics.queued().get() == counted).await;
    let mut client = GrpcInferenceServiceClient::new(channel);
    assert_eq!(values(client.model_infer(request("same", "", &[1])).await.unwrap().get_ref()), [1]);
    drop(sender);
    let (parts, body) = open.await.unwrap().unwrap().into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or(parts.headers);
    assert_eq!(trailers["grpc-status"], "0");
    rig.until(|rig| rig.metrics.queued().get() == 0).await;
}

#[tokio::test]
async fn a_load_does_not_hold_up_the_other_requests_of_its_connection() {
    let (rig, gate) = Rig::gated(&[]);
    let directories = vec![rig.folder.path().to_owned()];
    rig.repository.govern(RepositoryControl { mode: ControlMode::Explicit, directories });
    let sample = r#"model_warmup [ { name: "a" batch_size: 1 inputs { key: "INPUT" value: {
        data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } } ]"#;
    rig.write("warm", &format!("{SAME}{sample}"), 1, "identity INT32 dims=-1");
    gate.close();
    let mut client = Http2Client::connect(rig.addresses.http.unwrap(), 1 << 20).await;
    let load = client.post("/v2/repository/models/warm/load", &[], b"{}").await;
    rig.until(|_| gate.held() == 1).await;
    // A request that waits for its turn, but not for a run.
    let infer = client.post("/v2/models/sum/infer", &[], b"no JSON").await;
    let refused = client.next().await.expect("an answer");
    assert_eq!((refused.stream, refused.kind), (infer, HEADERS));
    gate.open();
    let loaded = client.next_of(load).await.expect("an answer");
    assert_eq!((loaded.kind, loaded.payload[0]), (HEADERS, OK));
}
