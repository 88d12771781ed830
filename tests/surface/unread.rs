//! Tests answers that clients do not take: they are bounded, and given up after a time.

use std::time::Duration;

use sequor::api::ServerLimits;
use sequor::config::server::Connections;
use sequor::config::units::{Size, Span};
use sequor::server::ServerOptions;
use sequor_proto::ModelInferRequest;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};

use crate::http2::{HEADERS, Http2Client, OK, RESET};
use crate::rig::{Rig, exchange, request, values};

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
/// Elements of a large answer, and its bytes without the message around them.
const ELEMENTS: usize = 100 << 10;
const LARGE: u64 = 4 * ELEMENTS as u64;
const CANCEL: [u8; 4] = [0, 0, 0, 8];

fn large() -> ModelInferRequest {
    request("same", "", &vec![7; ELEMENTS])
}

/// A server whose clients may leave answers unread for this long.
fn rig(queued: u64, write: Duration) -> Rig {
    let limits = ServerLimits { queued: Size(queued), ..ServerLimits::default() };
    let connections = Connections { write: Span(write), ..Connections::default() };
    Rig::served(ServerOptions { limits, connections, ..ServerOptions::default() })
}

/// The gauge of unread answers, as a scrape shows it.
async fn unread(rig: &Rig) -> u64 {
    let answer = exchange(rig.addresses.metrics.unwrap(), "GET /metrics", &[], b"").await;
    let text = String::from_utf8(answer.body).unwrap();
    text.lines().find_map(|line| line.strip_prefix("sequor_answers_unread_bytes ")).expect("a gauge").parse().unwrap()
}

async fn until_unread(rig: &Rig, is_so: impl Fn(u64) -> bool) {
    while !is_so(unread(rig).await) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn ran(rig: &Rig) -> u64 {
    rig.metrics.model("same", 1).statistics().success.count
}

#[tokio::test]
async fn unread_answers_count_against_the_queued_bytes_limit() {
    let rig = rig(4 << 20, Connections::default().write.0);
    let mut deaf = Http2Client::connect(rig.addresses.grpc.unwrap(), 0).await;
    for n in 1..=10 {
        deaf.call(INFER, &large()).await;
        rig.until(|rig| ran(rig) == n).await;
    }
    until_unread(&rig, |bytes| bytes >= 10 * LARGE).await;
    assert!(unread(&rig).await < 4 << 20);
    // The next one does not fit, over any protocol. Small ones do.
    let mut client = rig.client().await;
    let refused = client.model_infer(large()).await.unwrap_err();
    assert_eq!((refused.code(), ran(&rig)), (Code::Unavailable, 10));
    assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "queue_full");
    let input = json!({ "name": "INPUT", "shape": [1, ELEMENTS], "datatype": "INT32", "data": vec![7; ELEMENTS] });
    let refused = rig.post("/v2/models/same/infer", json!({ "inputs": [input] })).await;
    assert_eq!((refused.status, &refused.json()["reason"]), (503, &json!("queue_full")));
    assert_eq!(values(client.model_infer(request("same", "", &[1])).await.unwrap().get_ref()), [1]);
    // An answer that the client takes makes room.
    deaf.open(1, 1 << 20).await;
    assert!(deaf.body(1).await.expect("the answer").len() as u64 > LARGE);
    until_unread(&rig, |bytes| bytes < 10 * LARGE).await;
    client.model_infer(large()).await.unwrap();
    drop(deaf);
    until_unread(&rig, |bytes| bytes == 0).await;
}

#[tokio::test]
async fn unread_replies_of_streams_count() {
    let rig = rig(64 << 20, Connections::default().write.0);
    let mut deaf = Http2Client::connect(rig.addresses.grpc.unwrap(), 0).await;
    deaf.call("/inference.GRPCInferenceService/ModelStreamInfer", &large()).await;
    until_unread(&rig, |bytes| bytes >= LARGE).await;
    let (sender, receiver) = mpsc::channel(100);
    for _ in 0..50 {
        sender.send(large()).await.unwrap();
    }
    let replies = rig.client().await.model_stream_infer(Request::new(ReceiverStream::new(receiver))).await.unwrap();
    // The client's own buffers take some of them.
    until_unread(&rig, |bytes| bytes >= 10 * LARGE).await;
    let mut replies = replies.into_inner();
    for _ in 0..50 {
        replies.next().await.unwrap().unwrap();
    }
    drop(deaf);
    until_unread(&rig, |bytes| bytes == 0).await;
}

#[tokio::test]
async fn the_stream_of_an_unread_answer_is_reset_and_its_connection_goes_on() {
    let rig = rig(4 << 20, Duration::from_millis(300));
    let answer = 5 + u32::try_from(LARGE).unwrap();
    // The client takes nothing, one byte, a part, or almost all.
    for window in [0, 1, 100 << 10, answer] {
        let mut deaf = Http2Client::connect(rig.addresses.grpc.unwrap(), window).await;
        let call = deaf.call(INFER, &large()).await;
        let reset = loop {
            let frame = deaf.next_of(call).await.expect("the connection goes on");
            if frame.kind == RESET {
                break frame;
            }
            assert!(!frame.ends, "window {window}");
        };
        assert_eq!(reset.payload, CANCEL, "window {window}");
        until_unread(&rig, |bytes| bytes == 0).await;
        let next = deaf.call(INFER, &request("same", "", &[1])).await;
        deaf.open(next, 1000).await;
        let head = deaf.next_of(next).await.expect("an answer");
        assert_eq!((head.kind, head.payload[0]), (HEADERS, OK));
        assert!(deaf.body(next).await.is_some());
    }
}

#[tokio::test]
async fn a_connection_whose_client_takes_no_byte_is_closed() {
    let rig = rig(4 << 20, Duration::from_millis(100));
    // A small answer is handed over as a whole, so its stream cannot be reset.
    let mut deaf = Http2Client::connect(rig.addresses.grpc.unwrap(), 1).await;
    let call = deaf.call(INFER, &request("same", "", &[7; 1000])).await;
    while let Some(frame) = deaf.next().await {
        assert!(frame.stream == call && frame.kind != RESET && !frame.ends);
    }
    rig.until(|rig| rig.metrics.connections().get() == 0).await;
    assert!(rig.metrics.encode().contains("sequor_connections_closed_total{reason=\"write\"} 1\n"));
}
