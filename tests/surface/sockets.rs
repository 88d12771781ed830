//! Tests WebSockets.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use sequor::api::ServerLimits;
use sequor::config::server::Connections;
use sequor::config::units::{Size, Span};
use sequor::server::{Drained, ServerOptions};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::rig::Rig;

async fn open(rig: &Rig, path: &str) -> Result<WebSocketStream<TcpStream>, Error> {
    let address = rig.addresses.http.unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    Ok(tokio_tungstenite::client_async(format!("ws://{address}{path}"), stream).await?.0)
}

fn body(id: &str, value: i32, parameters: &Value) -> Value {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [value] });
    json!({ "id": id, "parameters": parameters, "inputs": [input] })
}

async fn send(socket: &mut WebSocketStream<TcpStream>, body: &Value) {
    socket.send(Message::text(body.to_string())).await.unwrap();
}

async fn read(socket: &mut WebSocketStream<TcpStream>) -> Value {
    let message = socket.next().await.unwrap().unwrap();
    serde_json::from_str(message.to_text().unwrap()).unwrap()
}

#[tokio::test]
async fn a_sequence_runs_over_a_socket_in_order() {
    let rig = Rig::new();
    let mut socket = open(&rig, "/v2/models/sum/stream").await.unwrap();
    for n in 0..50 {
        let id = n.to_string();
        send(&mut socket, &body(&id, n, &json!({ "sequence_id": 7, "sequence_start": n == 0 }))).await;
    }
    for n in 0..50 {
        let answer = read(&mut socket).await;
        assert_eq!((&answer["id"], &answer["outputs"][0]["data"]), (&json!(n.to_string()), &json!([n * (n + 1) / 2])));
    }
}

#[tokio::test]
async fn an_error_is_an_answer_and_the_socket_stays_open() {
    let rig = Rig::new();
    let mut socket = open(&rig, "/v2/models/sum/stream").await.unwrap();
    send(&mut socket, &body("a", 1, &json!({ "sequence_id": 5 }))).await;
    socket.send(Message::text("{")).await.unwrap();
    socket.send(Message::binary(vec![1])).await.unwrap();
    send(&mut socket, &body("b", 1, &json!({ "sequence_id": 5, "sequence_start": true }))).await;
    let refused = read(&mut socket).await;
    assert_eq!((&refused["id"], &refused["reason"]), (&json!("a"), &json!("never_started")));
    assert!(refused["error"].as_str().unwrap().starts_with("inference request for sequence 5 to model 'sum' must"));
    for _ in 0..2 {
        assert_eq!(read(&mut socket).await["reason"], "bad_input");
    }
    assert_eq!(read(&mut socket).await["id"], "b");
    let word = body("c", 1, &json!({ "sequence_id": 5 })).to_string().replace("\"data\":[1]", "\"data\":[NaN]");
    assert!(word.contains("NaN"), "{word}");
    socket.send(Message::text(word)).await.unwrap();
    let refused = read(&mut socket).await;
    assert_eq!((&refused["id"], &refused["reason"]), (&json!("c"), &json!("bad_input")));
    let unknown = open(&rig, "/v2/models/nope/stream").await.unwrap_err();
    assert!(matches!(unknown, Error::Http(answer) if answer.status() == 404));
    assert_eq!(rig.http("GET /v2/models/sum/stream", &[], b"").await.status, 400);
}

#[tokio::test]
async fn tensors_travel_as_bytes_in_binary_messages() {
    let rig = Rig::new();
    let mut socket = open(&rig, "/v2/models/same/versions/1/stream").await.unwrap();
    let input =
        json!({ "name": "INPUT", "shape": [1, 2], "datatype": "INT32", "parameters": { "binary_data_size": 8 } });
    let json = json!({ "parameters": { "binary_data_output": true }, "inputs": [input] }).to_string();
    let length = u32::try_from(json.len()).unwrap().to_le_bytes();
    let message = [&length[..], json.as_bytes(), &[1, 0, 0, 0, 9, 0, 0, 0]].concat();
    socket.send(Message::binary(message)).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap().into_data();
    let (length, rest) = answer.split_first_chunk::<4>().unwrap();
    let (json, bytes) = rest.split_at(u32::from_le_bytes(*length) as usize);
    let json: Value = serde_json::from_slice(json).unwrap();
    assert_eq!((&json["outputs"][0]["shape"], bytes), (&json!([1, 2]), &[1, 0, 0, 0, 9, 0, 0, 0][..]));
}

#[tokio::test]
async fn a_closed_websocket_cancels_its_requests_and_a_stopping_server_closes_it() {
    let (rig, gate) = Rig::slow().await;
    let mut given_up = open(&rig, "/v2/models/slow/stream").await.unwrap();
    // The size of its answers is known after the first one.
    send(&mut given_up, &body("", 1, &json!({}))).await;
    read(&mut given_up).await;
    gate.close();
    for n in 0..20 {
        let mut body = body("", n, &json!({}));
        body["inputs"][0]["shape"] = json!([1, n + 1]);
        body["inputs"][0]["data"] = json!(vec![n; usize::try_from(n).unwrap() + 1]);
        send(&mut given_up, &body).await;
    }
    rig.until(|rig| rig.metrics.in_flight().get() == 20).await;
    drop(given_up);
    rig.until(|rig| rig.metrics.model("slow", 1).statistics().fail.count >= 15).await;
    gate.open();
    rig.until(|rig| rig.metrics.in_flight().get() == 0).await;

    let mut socket = open(&rig, "/v2/models/slow/stream").await.unwrap();
    gate.close();
    send(&mut socket, &body("last", 1, &json!({}))).await;
    rig.until(|_| gate.held() == 1).await;
    let reads = tokio::spawn(async move {
        assert_eq!(read(&mut socket).await["id"], "last");
        socket.next().await.unwrap().unwrap()
    });
    assert_eq!(rig.drain_while(|| gate.open()).await, Drained::Clean);
    let Message::Close(Some(frame)) = reads.await.unwrap() else { panic!() };
    assert_eq!(frame.code, CloseCode::Away);
}

#[tokio::test]
async fn a_client_that_closes_gets_its_close_frame_back() {
    let rig = Rig::new();
    let mut socket = open(&rig, "/v2/models/same/stream").await.unwrap();
    send(&mut socket, &body("a", 1, &json!({}))).await;
    assert_eq!(read(&mut socket).await["id"], "a");
    socket.close(Some(CloseFrame { code: CloseCode::Normal, reason: "done".into() })).await.unwrap();
    let Some(Ok(Message::Close(Some(frame)))) = socket.next().await else { panic!("no Close frame") };
    assert_eq!(frame.code, CloseCode::Normal);
    assert!(socket.next().await.is_none(), "and the connection ends");
}

/// The head of a text message of this length, with a zero mask.
fn head_of_text(length: u64) -> Vec<u8> {
    [&[0x81, 0x80 | 127][..], &length.to_be_bytes(), &[0; 4]].concat()
}

#[tokio::test]
async fn an_unfinished_message_counts_against_the_queued_bytes_limit() {
    const PART: usize = 600 << 10;
    let rig = Rig::with(ServerLimits { queued: Size(1 << 20), ..ServerLimits::default() }, &[]);
    let begin = [head_of_text(60_000_000), vec![b' '; PART]].concat();
    let mut first = open(&rig, "/v2/models/same/stream").await.unwrap();
    first.get_mut().write_all(&begin).await.unwrap();
    rig.until(|rig| rig.metrics.queued().get() == i64::try_from(begin.len()).unwrap()).await;
    let mut second = open(&rig, "/v2/models/same/stream").await.unwrap();
    second.get_mut().write_all(&begin).await.unwrap();
    assert_eq!(read(&mut second).await["reason"], "queue_full");
    let Some(Ok(Message::Close(Some(frame)))) = second.next().await else { panic!() };
    assert_eq!(frame.code, CloseCode::Again);
    // A small message still fits, and a disconnected client does not count any more.
    let mut third = open(&rig, "/v2/models/same/stream").await.unwrap();
    send(&mut third, &body("small", 1, &json!({}))).await;
    assert_eq!(read(&mut third).await["id"], "small");
    drop((first, second));
    rig.until(|rig| rig.metrics.queued().get() == 0).await;
}

#[tokio::test]
async fn a_websocket_is_closed_if_a_message_stalls_but_not_between_messages() {
    let connections = Connections { body: Span(Duration::from_millis(60)), ..Connections::default() };
    let rig = Rig::served(ServerOptions { connections, ..ServerOptions::default() });
    let mut socket = open(&rig, "/v2/models/same/stream").await.unwrap();
    socket.send(Message::Ping(vec![1; 100].into())).await.unwrap();
    assert!(matches!(socket.next().await, Some(Ok(Message::Pong(_)))));
    send(&mut socket, &body("whole", 1, &json!({}))).await;
    assert_eq!(read(&mut socket).await["id"], "whole");
    // A client may be silent between two messages for longer than within one.
    tokio::time::sleep(Duration::from_millis(180)).await;
    send(&mut socket, &body("later", 1, &json!({}))).await;
    assert_eq!(read(&mut socket).await["id"], "later");
    socket.get_mut().write_all(&head_of_text(100)).await.unwrap();
    let refused = read(&mut socket).await;
    assert!(refused["error"].as_str().unwrap().contains("connections.body"), "{refused}");
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(Some(_))))));
}
