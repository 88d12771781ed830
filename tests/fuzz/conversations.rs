//! Whole conversations over HTTP/1.1, HTTP/2 and WebSockets: what real clients say is recorded, taken apart, put together otherwise and
//! changed, and sent to the server over a pipe in memory. Each conversation ends, leaves nothing behind, and stays below a ceiling of memory.

use std::io;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prost::Message as _;
use sequor::api::ServerLimits;
use sequor::config::server::settings::SharedMemory;
use sequor::config::units::Size;
use sequor::server::{ServerOptions, StreamServer, local};
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferParameter, ModelInferRequest, ModelStatisticsRequest, RepositoryIndexRequest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, duplex};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};

use crate::{Chance, HANGS, Rig, gzip, memory, mutate, number};

/// Bytes of the largest request, and of all that wait.
const REQUEST: usize = 1 << 20;
const QUEUED: u64 = 4 << 20;
/// Memory that one conversation may take: what waits, a body and what it unpacks to, and the buffers of a connection.
const CEILING: usize = 8 << 20;
/// Bytes on their way in one direction.
const PIPE: usize = 256 << 10;
/// A client that does not read, and is not read from, leaves after this time.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long a client waits for more of an answer.
const SILENCE: Duration = Duration::from_millis(5);
/// A client that waits for what a busy machine decodes leaves after this time.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);
/// Conversations of an ordinary run.
const CONVERSATIONS: u64 = 400;
/// Bytes of one conversation at most.
const LONGEST: usize = 2 << 20;

// === the server, and what clients say to it ===

struct Pipes {
    rig: Rig,
    server: StreamServer,
    /// A client leaves that has heard nothing for so long.
    silence: Duration,
}

impl Pipes {
    fn new(limits: ServerLimits) -> Pipes {
        let rig = Rig::new();
        let options = ServerOptions { limits, shared_memory: SharedMemory::Off, ..ServerOptions::default() };
        let server = StreamServer::new(options, rig.repository.clone(), rig.metrics.clone());
        Pipes { rig, server, silence: SILENCE }
    }

    fn bounded() -> Pipes {
        Pipes::new(ServerLimits { request: Size(REQUEST as u64), queued: Size(QUEUED), ..ServerLimits::default() })
    }

    /// What a client says that talks to the server over this stream.
    fn recorded(&self, talk: impl AsyncFnOnce(Recorded)) -> Vec<u8> {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (client, server) = duplex(PIPE);
        let recorded = Recorded { pipe: client, sent: Arc::clone(&sent) };
        self.rig.runtime.block_on(async {
            let both = async { tokio::join!(self.server.serve(server, local(1)), talk(recorded)) };
            timeout(HANGS, both).await.expect("the conversation ends");
            self.gone().await;
        });
        std::mem::take(&mut *sent.lock())
    }

    /// Says this to the server, and takes what it answers if the client `reads`.
    async fn send(&self, sent: &[u8], reads: bool) {
        let (client, server) = duplex(PIPE);
        let talk = async {
            let (mut reader, mut writer) = tokio::io::split(client);
            // A server that has heard enough does not listen to the end.
            let write = async { drop(writer.write_all(sent).await) };
            if !reads {
                let _ = timeout(PATIENCE, write).await;
                return;
            }
            let mut answer = vec![0; 16 << 10];
            tokio::join!(write, async { while heard(&mut reader, &mut answer, self.silence).await {} });
            let _ = writer.shutdown().await;
            while reader.read(&mut answer).await.is_ok_and(|count| count > 0) {}
        };
        tokio::join!(self.server.serve(server, local(1)), talk);
        self.gone().await;
    }

    /// Waits until nothing is left of a conversation.
    async fn gone(&self) {
        let metrics = &self.rig.metrics;
        while [metrics.connections(), metrics.in_flight(), metrics.queued()].iter().any(|gauge| gauge.get() != 0) {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }

    /// Has this conversation, and returns the memory it took.
    fn converse(&self, sent: &[u8], reads: bool) -> usize {
        let before = memory::begin();
        let ended = self.rig.runtime.block_on(async { timeout(HANGS, self.send(sent, reads)).await });
        assert!(ended.is_ok(), "it does not end: {}", sent.escape_ascii());
        memory::peak().saturating_sub(before)
    }

    /// Has mutated conversations, as many as an ordinary run has or as long as `FUZZ_SECONDS` says.
    fn run(&self, seeds: &[Vec<Vec<u8>>]) {
        seeds.iter().for_each(|seed| {
            let took = self.converse(&seed.concat(), true);
            assert!(took <= CEILING, "{took} bytes of memory: {}", seed.concat().escape_ascii());
        });
        let until = number("FUZZ_SECONDS").map(|s| std::time::Instant::now() + Duration::from_secs(s));
        let mut chance = Chance(number("FUZZ_SEED").unwrap_or(1));
        let (before, mut count, mut most) = (memory::begin(), 0, 0);
        while until.map_or(count < CONVERSATIONS, |until| std::time::Instant::now() < until) {
            let sent = rearranged(&mut chance, seeds);
            let took = self.converse(&sent, chance.below(16) > 0);
            assert!(took <= CEILING, "{took} bytes of memory: {}", sent.escape_ascii());
            if count % 16 == 0 {
                let text = self.rig.metrics.encode();
                assert!(!text.contains("reason=\"internal\""), "{}\n{text}", sent.escape_ascii());
            }
            (count, most) = (count + 1, most.max(took));
        }
        let left = memory::begin().saturating_sub(before);
        println!("{count} conversations, at most {} KiB each, {} KiB left", most >> 10, left >> 10);
        assert!(left <= CEILING / 4, "{left} bytes are left");
    }
}

/// Whether the server sends more. If it sends nothing for a while, it has sent everything.
async fn heard(reader: &mut ReadHalf<DuplexStream>, answer: &mut [u8], silence: Duration) -> bool {
    timeout(silence, reader.read(answer)).await.is_ok_and(|read| read.is_ok_and(|count| count > 0))
}

/// A pipe that keeps what the client says.
struct Recorded {
    pipe: DuplexStream,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Recorded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, buf)
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.pipe).poll_write(cx, bytes))?;
        self.sent.lock().extend_from_slice(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

// === mutations ===

/// A conversation of pieces of these, some of them dropped, repeated or of another one, and then most often with changed bytes.
fn rearranged(chance: &mut Chance, seeds: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut pieces = seeds[chance.below(seeds.len())].clone();
    for _ in 0..chance.below(4) {
        let at = chance.below(pieces.len());
        let Some(piece) = pieces.get(at).cloned() else { break };
        match chance.below(4) {
            0 => drop(pieces.remove(at)),
            1 => {
                let most = if chance.below(16) == 0 { 2000 } else { 50 };
                let times = 1 + chance.below(most.min(LONGEST / 2 / piece.len().max(1)));
                pieces.splice(at..at, std::iter::repeat_n(piece, times));
            }
            2 => {
                let other = chance.below(pieces.len());
                pieces.swap(at, other);
            }
            _ => {
                let other = &seeds[chance.below(seeds.len())];
                pieces.insert(at, other[chance.below(other.len())].clone());
            }
        }
    }
    let mut sent = pieces.concat();
    sent.truncate(LONGEST);
    if chance.below(4) == 0 { sent } else { mutate(chance, &[sent]) }
}

/// Bytes cut where `length` says that a piece ends.
fn cut(mut bytes: &[u8], length: impl Fn(&[u8]) -> usize) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(length(bytes).clamp(1, bytes.len()));
        pieces.push(piece.to_vec());
        bytes = rest;
    }
    pieces
}

/// The preface, and frames.
fn http2_pieces(bytes: &[u8]) -> Vec<Vec<u8>> {
    cut(bytes, |bytes| match bytes {
        [b'P', b'R', b'I', ..] => 24,
        [a, b, c, ..] => 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize,
        _ => bytes.len(),
    })
}

/// The head, and frames, which clients mask.
fn websocket_pieces(bytes: &[u8]) -> Vec<Vec<u8>> {
    cut(bytes, |bytes| match bytes {
        [b'G', b'E', b'T', ..] => bytes.windows(4).position(|end| end == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4),
        [_, length, high, low, ..] => match length & 0x7f {
            126 => 8 + usize::from(u16::from_be_bytes([*high, *low])),
            127 => bytes.len(),
            length => 6 + usize::from(length),
        },
        _ => bytes.len(),
    })
}

// === clients ===

/// A step of a running sum.
fn step(id: i64, start: bool, end: bool) -> ModelInferRequest {
    let value = |choice| InferParameter { parameter_choice: Some(choice) };
    let parameters = [
        ("sequence_id".to_owned(), value(ParameterChoice::Int64Param(id))),
        ("sequence_start".to_owned(), value(ParameterChoice::BoolParam(start))),
        ("sequence_end".to_owned(), value(ParameterChoice::BoolParam(end))),
    ];
    let input =
        InferInputTensor { name: "INPUT".into(), datatype: "INT32".into(), shape: vec![1, 1], ..Default::default() };
    ModelInferRequest {
        model_name: "sum".into(),
        parameters: parameters.into(),
        inputs: vec![input],
        raw_input_contents: vec![Bytes::from_static(&[1, 0, 0, 0])],
        ..Default::default()
    }
}

/// A small message that unpacks to as many inputs as a request has room for.
fn many_inputs() -> Vec<u8> {
    let name = ModelInferRequest { model_name: "sum".into(), ..Default::default() }.encode_to_vec();
    gzip(&[name, [0x2a, 0].repeat(REQUEST / 2 - 64)].concat())
}

/// A small body that unpacks to as many parameters as a request has room for.
fn many_parameters() -> Vec<u8> {
    let more = r#","a":1"#.repeat(REQUEST / 6 - 64);
    gzip(format!(r#"{{"parameters":{{"a":1{more}}},"inputs":[]}}"#).as_bytes())
}

const STEP: &str = r#"{"id":"x","parameters":{"sequence_id":5,"sequence_start":true,"sequence_end":true},"inputs":[{"name":"INPUT","shape":[1,1],"datatype":"INT32","data":[1]}]}"#;

/// What a client says that sends this request over HTTP/1.1.
fn over_http1(pipes: &Pipes, request: http::request::Builder, body: impl Into<Bytes>) -> Vec<u8> {
    let request = request.header("host", "fuzz").body(Full::new(body.into())).unwrap();
    pipes.recorded(async |pipe| {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(pipe)).await.unwrap();
        let talk = async {
            let answer = sender.send_request(request).await.unwrap();
            drop(answer.into_body().collect().await);
            drop(sender);
        };
        let (_, ended) = tokio::join!(talk, connection);
        ended.unwrap();
    })
}

fn http1_seeds(pipes: &Pipes) -> Vec<Vec<Vec<u8>>> {
    let get = |path: &str| over_http1(pipes, http::Request::get(path), "");
    let post = |path: &str| http::Request::post(path);
    let infer = || post("/v2/models/sum/infer");
    let binary =
        br#"{"inputs":[{"name":"INPUT","shape":[1,2],"datatype":"INT32","parameters":{"binary_data_size":8}}]}"#;
    let raw = [&binary[..], &[1, 0, 0, 0, 2, 0, 0, 0]].concat();
    let requests = vec![
        over_http1(pipes, infer(), STEP),
        over_http1(pipes, infer().header("content-encoding", "gzip"), gzip(STEP.as_bytes())),
        over_http1(pipes, infer().header("content-encoding", "gzip"), many_parameters()),
        over_http1(pipes, infer().header("content-encoding", "gzip"), gzip(&vec![b' '; 16 * REQUEST])),
        over_http1(pipes, post("/v2/models/same/infer").header("inference-header-content-length", binary.len()), raw),
        over_http1(pipes, infer().header("accept-encoding", "gzip").header("x-sequence-id", "5"), STEP),
        over_http1(pipes, post("/v2/repository/index"), "{}"),
        over_http1(pipes, post("/v2/systemsharedmemory/region/r/register"), r#"{"key":"/k","offset":0,"byte_size":4}"#),
        get("/v2"),
        get("/v2/health/ready"),
        get("/v2/models/sum/config"),
        get("/v2/models/sum/stats"),
        get("/v2/trace/setting"),
    ];
    // Requests one by one, and all on one connection.
    requests.iter().map(|request| vec![request.clone()]).chain([requests.clone()]).collect()
}

/// What a client says over one connection of gRPC.
fn over_http2(pipes: &Pipes, packs: bool, talk: impl AsyncFnOnce(GrpcInferenceServiceClient<Channel>)) -> Vec<u8> {
    pipes.recorded(async |pipe| {
        let pipe = Mutex::new(Some(TokioIo::new(pipe)));
        let connector = tower::service_fn(move |_: http::Uri| {
            std::future::ready(pipe.lock().take().ok_or_else(|| io::Error::other("one connection")))
        });
        let channel = Endpoint::from_static("http://fuzz").connect_with_connector(connector).await.unwrap();
        let mut client = GrpcInferenceServiceClient::new(channel);
        if packs {
            client = client.send_compressed(CompressionEncoding::Gzip);
        }
        talk(client).await;
    })
}

fn http2_seeds(pipes: &Pipes) -> Vec<Vec<Vec<u8>>> {
    let steps = async |mut client: GrpcInferenceServiceClient<Channel>| {
        for n in 0..3 {
            // A sequence may expire between two steps.
            let _ = client.model_infer(step(7, n == 0, n == 2)).await;
        }
    };
    let conversations = [
        over_http2(pipes, false, steps),
        over_http2(pipes, true, steps),
        over_http2(pipes, false, async |mut client| {
            let requests = tokio_stream::iter((0..20).map(|n| step(8, n == 0, n == 19)));
            let mut replies = client.model_stream_infer(requests).await.unwrap().into_inner();
            while replies.next().await.is_some() {}
        }),
        over_http2(pipes, false, async |mut client| {
            client.model_statistics(ModelStatisticsRequest::default()).await.unwrap();
            client.repository_index(RepositoryIndexRequest::default()).await.unwrap();
        }),
        amplified(pipes),
    ];
    conversations.iter().map(|bytes| http2_pieces(bytes)).collect()
}

/// A call whose message unpacks to many inputs.
fn amplified(pipes: &Pipes) -> Vec<u8> {
    pipes.recorded(async |pipe| {
        let io = TokioIo::new(pipe);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        let message = many_inputs();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let request = http::Request::post("http://fuzz/inference.GRPCInferenceService/ModelInfer")
            .header("content-type", "application/grpc")
            .header("grpc-encoding", "gzip")
            .body(Full::<Bytes>::new([&[1][..], &length, &message].concat().into()))
            .unwrap();
        let talk = async {
            let answer = sender.send_request(request).await.unwrap();
            drop(answer.into_body().collect().await);
            drop(sender);
        };
        let (_, ended) = tokio::join!(talk, connection);
        ended.unwrap();
    })
}

fn websocket_seeds(pipes: &Pipes) -> Vec<Vec<Vec<u8>>> {
    let open = |model: &str, messages: Vec<tungstenite::Message>| {
        let url = format!("ws://fuzz/v2/models/{model}/stream");
        pipes.recorded(async |pipe| {
            let (mut socket, _) = tokio_tungstenite::client_async(url, pipe).await.unwrap();
            for message in messages {
                let is_ping = message.is_ping();
                socket.send(message).await.unwrap();
                assert!(is_ping || socket.next().await.is_some());
            }
            let _ = socket.close(None).await;
        })
    };
    let text = |text: &str| tungstenite::Message::text(text);
    let binary = |json: &str, tensors: &[u8]| {
        let length = u32::try_from(json.len()).unwrap().to_le_bytes();
        tungstenite::Message::binary([&length[..], json.as_bytes(), tensors].concat())
    };
    let raw = r#"{"parameters":{"binary_data_output":true},"inputs":[{"name":"INPUT","shape":[1,1],"datatype":"INT32","parameters":{"binary_data_size":4}}]}"#;
    let parameters = format!(r#"{{"parameters":{{"a":1{}}},"inputs":[]}}"#, r#","a":1"#.repeat(100_000));
    let conversations = [
        open("sum", vec![text(STEP), text("{"), text(STEP)]),
        open("same", vec![binary(raw, &[1, 0, 0, 0]), tungstenite::Message::binary(vec![1])]),
        open("sum", vec![tungstenite::Message::Ping(Bytes::from_static(&[7; 125])), text(STEP)]),
        open("sum", vec![text(&parameters)]),
    ];
    conversations.iter().map(|bytes| websocket_pieces(bytes)).collect()
}

// === targets ===

/// Whether this process runs one target only, for the memory counted is that of the process. If not, runs the target in one of its own.
fn is_alone(target: &str) -> bool {
    const ALONE: &str = "SEQUOR_FUZZ_ALONE";
    if std::env::var_os("NEXTEST").is_some() || std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let name = format!("conversations::{target}");
    let status = alone.args(["--exact", &name, "--nocapture"]).env(ALONE, "1").status().unwrap();
    assert!(status.success(), "{target}: {status}");
    false
}

#[test]
fn over_http_1() {
    if is_alone("over_http_1") {
        let pipes = Pipes::bounded();
        pipes.run(&http1_seeds(&pipes));
    }
}

#[test]
fn over_http_2() {
    if is_alone("over_http_2") {
        let pipes = Pipes::bounded();
        pipes.run(&http2_seeds(&pipes));
    }
}

#[test]
fn over_websockets() {
    if is_alone("over_websockets") {
        let pipes = Pipes::bounded();
        pipes.run(&websocket_seeds(&pipes));
    }
}

/// The ceiling is low enough to find a bound that is missing: seeds exceed it where requests and their inputs have none.
#[test]
fn a_missing_bound_exceeds_the_ceiling() {
    if is_alone("a_missing_bound_exceeds_the_ceiling") {
        let limits = ServerLimits { inputs: usize::MAX, ..ServerLimits::default() };
        let (bounded, mut unbounded) = (Pipes::bounded(), Pipes::new(limits));
        for (what, seeds) in [("HTTP/1.1", http1_seeds(&bounded)), ("HTTP/2", http2_seeds(&bounded))] {
            let most = |pipes: &Pipes| seeds.iter().map(|seed| pipes.converse(&seed.concat(), true)).max().unwrap();
            let with = most(&bounded);
            // A client that leaves early takes along what is still being decoded: on a busy machine only a patient one sees it all.
            unbounded.silence = SILENCE;
            let mut without = most(&unbounded);
            while without <= CEILING && unbounded.silence < LONGEST_SILENCE {
                unbounded.silence *= 4;
                without = most(&unbounded);
            }
            println!("{what}: {} KiB with bounds, {} KiB without", with >> 10, without >> 10);
            assert!(with <= CEILING && without > CEILING, "{what}: {with} bytes with bounds, {without} without");
        }
    }
}
