//! Tests limits on connections: every wait has a timeout, every count has a maximum, and other clients continue meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use sequor::api::ServerLimits;
use sequor::config::server::Connections;
use sequor::config::units::{Size, Span};
use sequor::server::{Drained, ServerOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http2::Http2Client;
use crate::rig::{Rig, exchange};

const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// The timeout that expires in these tests.
const MOMENT: Span = Span(Duration::from_millis(60));

/// A server with short limits only where `set` changes them, because the tests may be slow themselves.
fn hasty(set: impl FnOnce(&mut Connections)) -> Rig {
    let mut connections = Connections::default();
    set(&mut connections);
    Rig::served(ServerOptions { connections, ..ServerOptions::default() })
}

/// Connects and sends these bytes.
async fn sent(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Everything that the server sends until it closes the connection. The test runner ends a test that hangs.
async fn rest(mut stream: TcpStream) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        all.extend_from_slice(&chunk[..count]);
    }
    all
}

/// Sends the next step of a live sequence, and returns the sum.
async fn step(rig: &Rig, value: i32, start: bool) -> Value {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [value] });
    let parameters = json!({ "sequence_id": 7, "sequence_start": start });
    let answer = rig.post("/v2/models/sum/infer", json!({ "inputs": [input], "parameters": parameters })).await;
    answer.json()["outputs"][0]["data"][0].clone()
}

fn closed(rig: &Rig, reason: &str) -> bool {
    let line = format!("sequor_connections_closed_total{{reason=\"{reason}\"}} 0\n");
    let text = rig.metrics.encode();
    text.contains("sequor_connections_closed_total") && !text.contains(&line)
}

#[tokio::test]
async fn a_stalled_or_idle_client_is_disconnected() {
    type Set = fn(&mut Connections);
    let (first_byte, head): (Set, Set) = (|c| c.first_byte = MOMENT, |c| c.head = MOMENT);
    let idle: Set = |c| c.idle = MOMENT;
    let handshake = [PREFACE.as_bytes(), SETTINGS].concat();
    let cases: [(Set, &str, &[u8]); 5] = [
        (first_byte, "first_byte", b""),
        (head, "head", &PREFACE.as_bytes()[..7]),
        (head, "head", PREFACE.as_bytes()),
        (idle, "idle", &handshake),
        (head, "", b"GET /v2 HTTP/1.1\r\nhost:"),
    ];
    for (set, reason, bytes) in cases {
        let rig = hasty(set);
        for address in rig.all_addresses() {
            rest(sent(address, bytes).await).await;
        }
        assert!(reason.is_empty() || closed(&rig, reason), "{reason}");
        rig.until(|rig| rig.metrics.connections().get() == 0).await;
    }
    let rig = hasty(|c| (c.body, c.idle) = (MOMENT, MOMENT));
    let http = rig.addresses.http.unwrap();
    assert_eq!(step(&rig, 1, true).await, 1);
    let head = b"POST /v2/models/sum/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
    let answer = String::from_utf8(rest(sent(http, head).await).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("connections.body"), "{answer}");
    // The time between two requests of one connection.
    let answer = rest(sent(http, b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n").await).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    assert_eq!(step(&rig, 2, false).await, 3);
    rig.until(|rig| rig.metrics.connections().get() == 0).await;
}

#[tokio::test]
async fn connections_are_bounded_and_operators_have_their_own() {
    let connections = Connections { max: 4, per_peer: 3, reserved: 2, ..Connections::default() };
    let rig = Rig::served(ServerOptions { connections, ..ServerOptions::default() });
    let [http, grpc, metrics, admin] = rig.all_addresses();
    let mut kept = Vec::new();
    for address in [http, grpc, http] {
        kept.push(sent(address, b"").await);
    }
    rig.until(|rig| rig.metrics.connections().get() == 3).await;
    for address in [http, grpc] {
        assert_eq!(rest(sent(address, b"").await).await, b"");
    }
    assert!(closed(&rig, "per_peer") && !closed(&rig, "max"));
    for (address, path) in [(admin, "GET /admin/config"), (metrics, "GET /metrics")] {
        let own = [("host", "127.0.0.1")];
        let answer = exchange(address, path, &own[..usize::from(address == metrics)], b"").await;
        assert!([200, 403].contains(&answer.status), "{path}");
    }
    kept.pop();
    rig.until(|rig| rig.metrics.connections().get() == 2).await;
    assert_eq!(exchange(http, "GET /v2/health/live", &[], b"").await.status, 200);
}

#[tokio::test]
async fn unfinished_bodies_count_against_the_queued_bytes_limit() {
    let limits = ServerLimits { queued: Size(1 << 20), ..ServerLimits::default() };
    let rig = Rig::served(ServerOptions { limits, ..ServerOptions::default() });
    assert_eq!(step(&rig, 1, true).await, 1);
    let head = "POST /v2/models/sum/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 60000000\r\n\r\n";
    let part = [head.as_bytes(), &vec![b' '; 100 << 10]].concat();
    let mut kept = Vec::new();
    for n in 1..=10 {
        kept.push(sent(rig.addresses.http.unwrap(), &part).await);
        rig.until(|rig| rig.metrics.queued().get() == n * (100 << 10)).await;
    }
    for _ in 0..10 {
        let answer = String::from_utf8(rest(sent(rig.addresses.http.unwrap(), &part).await).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("queue_full"), "{answer}");
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    }
    // gRPC calls count too. A small one fits and is answered, and so is a live sequence.
    let mut client = rig.client().await;
    let large = crate::rig::request("same", "", &vec![1; 100 << 10]);
    assert_eq!(client.model_infer(large).await.unwrap_err().code(), tonic::Code::Unavailable);
    assert_eq!(client.model_infer(crate::rig::request("same", "", &[1])).await.unwrap().get_ref().outputs.len(), 1);
    assert_eq!(step(&rig, 2, false).await, 3);
    assert_eq!(exchange(rig.addresses.http.unwrap(), "GET /v2/health/live", &[], b"").await.status, 200);
    drop(kept);
    rig.until(|rig| rig.metrics.queued().get() == 0).await;
}

/// A HEADERS frame that opens a stream with an inference call and leaves its body incomplete.
fn open_stream(id: u32) -> Vec<u8> {
    let path = b"/inference.GRPCInferenceService/ModelInfer";
    let kind = b"application/grpc";
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend_from_slice(path);
    block.extend_from_slice(&[0x01, 1, b'x', 0x0f, 0x10, u8::try_from(kind.len()).unwrap()]);
    block.extend_from_slice(kind);
    let length = u32::try_from(block.len()).unwrap().to_be_bytes();
    [&length[1..], &[1, 4], &id.to_be_bytes(), &block].concat()
}

#[tokio::test]
async fn streams_of_a_connection_are_bounded() {
    const STREAMS: u32 = 10;
    const REFUSED_STREAM: u8 = 7;
    let connections = Connections { streams: STREAMS, ..Connections::default() };
    let rig = Rig::served(ServerOptions { connections, ..ServerOptions::default() });
    let opened = (0..60).flat_map(|n| open_stream(2 * n + 1));
    let bytes: Vec<u8> = [PREFACE.as_bytes(), SETTINGS].concat().into_iter().chain(opened).collect();
    let mut stream = sent(rig.addresses.grpc.unwrap(), &bytes).await;
    let mut refused = 0;
    while refused < 60 - STREAMS {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut frame = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut frame).await.unwrap();
        refused += u32::from(head[3] == 3 && frame[3] == REFUSED_STREAM);
    }
    assert_eq!(step(&rig, 1, true).await, 1);
}

/// Sends these bytes as a client with a small buffer that reads nothing.
async fn deaf(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_that_stops_reading_is_not_kept() {
    let connections = Connections { write: MOMENT, ..Connections::default() };
    let rig = Rig::served(ServerOptions { connections, ..ServerOptions::default() });
    let address = rig.addresses.http.unwrap();
    let (json, tensor) = (large_json(), vec![0; ELEMENTS * 4]);
    let closed_ones = |count: u64| {
        let line = format!("sequor_connections_closed_total{{reason=\"write\"}} {count}\n");
        move |rig: &Rig| rig.metrics.encode().contains(&line) && rig.metrics.connections().get() == 0
    };
    let over_http = deaf(address, &large_request()).await;
    rig.until(closed_ones(1)).await;
    let head = "GET /v2/models/same/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let length = u32::try_from(json.len()).unwrap().to_le_bytes();
    let message = [&length[..], json.as_bytes(), &tensor].concat();
    // A binary message in one frame, its length in 8 bytes, masked with zeros.
    let frame = [&[0x82, 0xff], &(message.len() as u64).to_be_bytes()[..], &[0; 4], &message].concat();
    let over_websocket = deaf(address, &[head.as_bytes(), &frame].concat()).await;
    rig.until(closed_ones(2)).await;
    drop((over_http, over_websocket));
}

/// Elements of an answer that is larger than the system's buffers.
const ELEMENTS: usize = 6 << 20;

/// The JSON of a request for an answer of this size. The tensor follows.
fn large_json() -> String {
    let input = json!({ "name": "INPUT", "shape": [1, ELEMENTS], "datatype": "INT32",
        "parameters": { "binary_data_size": ELEMENTS * 4 } });
    json!({ "inputs": [input], "parameters": { "binary_data_output": true } }).to_string()
}

/// A request over HTTP/1.1 whose answer has `ELEMENTS` elements.
fn large_request() -> Vec<u8> {
    let json = large_json();
    let head = format!(
        "POST /v2/models/same/infer HTTP/1.1\r\nhost: x\r\ninference-header-content-length: {}\r\n\
         content-length: {}\r\n\r\n",
        json.len(),
        json.len() + ELEMENTS * 4
    );
    [head.as_bytes(), json.as_bytes(), &vec![0; ELEMENTS * 4]].concat()
}

/// Sends these bytes as a client whose system takes little ahead.
async fn sent_by_slow_client(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(256 << 10).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Reads an answer of at least this many bytes, and pauses this long after each 4 MiB.
async fn read_slowly(stream: &mut TcpStream, least: usize, pause: Duration) -> usize {
    let (mut count, mut paused, mut chunk) = (0, 0, vec![0; 64 << 10]);
    while count < least {
        match stream.read(&mut chunk).await {
            Ok(read @ 1..) => count += read,
            _ => break,
        }
        if count - paused > 4 << 20 {
            paused = count;
            tokio::time::sleep(pause).await;
        }
    }
    count
}

#[tokio::test]
async fn an_answer_that_is_being_sent_is_not_cut_as_idle() {
    let rig = hasty(|c| c.idle = MOMENT);
    let mut slow = sent_by_slow_client(rig.addresses.http.unwrap(), &large_request()).await;
    assert!(read_slowly(&mut slow, ELEMENTS * 4, 3 * MOMENT.0).await >= ELEMENTS * 4);
    // Its connection is idle only now.
    rig.until(|rig| rig.metrics.connections().get() == 0).await;
}

#[tokio::test]
async fn a_stop_waits_for_the_answers_that_are_being_sent() {
    // A stopping server cuts idle connections after 1 s.
    const PAUSE: Duration = Duration::from_millis(800);
    let rig = Rig::new();
    let mut slow = sent_by_slow_client(rig.addresses.http.unwrap(), &large_request()).await;
    let mut closed = Http2Client::connect(rig.addresses.grpc.unwrap(), 0).await;
    let message = crate::rig::request("same", "", &vec![7; 100 << 10]);
    let call = closed.call("/inference.GRPCInferenceService/ModelInfer", &message).await;
    rig.until(|rig| rig.metrics.model("same", 1).statistics().success.count == 2).await;
    let drained = tokio::spawn(rig.drain());
    assert!(read_slowly(&mut slow, ELEMENTS * 4, PAUSE).await >= ELEMENTS * 4, "the connection was cut");
    closed.open(call, 1 << 20).await;
    let body = closed.body(call).await.expect("the whole answer");
    assert!(body.len() > 400 << 10);
    drop((slow, closed));
    assert_eq!(drained.await.unwrap(), Drained::Clean);
}

#[tokio::test]
async fn a_websocket_that_does_not_answer_pings_is_closed() {
    let asked_each = |keepalive| Rig::served(ServerOptions { keepalive, ..ServerOptions::default() });
    let rig = asked_each(MOMENT.0);
    let head = "GET /v2/models/sum/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let message = rest(sent(rig.addresses.http.unwrap(), head.as_bytes()).await).await;
    assert!(
        message.starts_with(b"HTTP/1.1 101") && message.ends_with(b"\r\n\r\n\x89\x00"),
        "{}",
        String::from_utf8_lossy(&message)
    );
    rig.until(|rig| rig.metrics.connections().get() == 0).await;
    // A client that answers pings stays connected.
    let rig = asked_each(Duration::from_secs(2));
    let mut stream = sent(rig.addresses.http.unwrap(), head.as_bytes()).await;
    let mut message = Vec::new();
    while !message.ends_with(b"\r\n\r\n") {
        message.push(stream.read_u8().await.unwrap());
    }
    for _ in 0..3 {
        let mut ping = [0; 2];
        stream.read_exact(&mut ping).await.unwrap();
        assert_eq!(ping, [0x89, 0]);
        stream.write_all(&[0x8a, 0x80, 0, 0, 0, 0]).await.unwrap();
    }
    drop(stream);
    rig.until(|rig| rig.metrics.connections().get() == 0).await;
}
