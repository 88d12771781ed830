//! Tests requests with few bytes on the wire that need many in memory. Each is refused while memory stays within the limits, a live
//! sequence continues, and the server reports that it is live.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use axum::http::Request;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use prost::Message;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::{InferParameter, InferTensorContents, ModelInferRequest, SystemSharedMemoryRegisterRequest};
use serde_json::json;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

use super::Rig;
use super::http::ask;
use super::watch::Watch;

/// The memory that the server may use above idle: two requests, and everything that may be queued.
const REQUEST: u64 = 64 << 20;
const QUEUED: u64 = 256 << 20;

fn gzip(pieces: &[(&[u8], usize)]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    for (piece, times) in pieces {
        let many = piece.repeat(1000.min(*times));
        for _ in 0..times / 1000.min(*times) {
            packer.write_all(&many).unwrap();
        }
    }
    packer.finish().unwrap()
}

/// The first bytes of a request for a model.
fn named(model: &str) -> Vec<u8> {
    ModelInferRequest { model_name: model.to_owned(), ..Default::default() }.encode_to_vec()
}

/// Sends a message unchanged, and returns the status code and text of the answer.
async fn call(channel: &mut Channel, address: SocketAddr, message: &[u8], packed: bool) -> (i32, String) {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let frame = [&[u8::from(packed)][..], &length, message].concat();
    let mut request = Request::post(format!("http://{address}/inference.GRPCInferenceService/ModelInfer"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if packed {
        request = request.header("grpc-encoding", "gzip");
    }
    let request = request.body(Body::new(Full::new(Bytes::from(frame)))).unwrap();
    let answer = channel.ready().await.unwrap().call(request).await.unwrap();
    let (parts, body) = answer.into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or(parts.headers);
    let status = tonic::Status::from_header_map(&trailers).expect("a status");
    (status.code() as i32, status.message().to_owned())
}

fn is_refused(got: &(i32, String), number: i32, text: &str) -> Result<(), String> {
    if got.0 == number && got.1.contains(text) { Ok(()) } else { Err(format!("got {got:?}, want {number} {text}")) }
}

const INVALID: i32 = 3;
const NOT_FOUND: i32 = 5;
const TOO_LARGE: i32 = 8;
const UNAVAILABLE: i32 = 14;

const INPUTS: &str = "the request has more than 1000 inputs (limits.inputs)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_grpc_messages_do_not_use_large_amounts_of_memory() {
    let rig = Rig::with(&["--limits-queued", "256MiB"]).await;
    let watch = Watch::new(&rig);
    let address = rig.server.grpc;
    let mut channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    // An input without name, shape and type takes two bytes.
    let ten_million = gzip(&[(&named("sum"), 1), (&[0x2a, 0], 10_000_000)]);
    let thirty_million = gzip(&[(&named("sum"), 1), (&[0x2a, 0], 30_000_000)]);
    let unknown = gzip(&[(&named("nope"), 1), (&[0x0a, 0], 10_000_000), (&named("nope"), 1)]);
    let plain = [named("sum"), [0x2a, 0].repeat(30_000_000)].concat();
    let one = |contents| ModelInferRequest {
        model_name: "sum".to_owned(),
        inputs: vec![InferInputTensor { name: "INPUT".to_owned(), contents: Some(contents), ..Default::default() }],
        ..Default::default()
    };
    let texts = InferTensorContents { bytes_contents: vec![vec![]; 20_000_000], ..Default::default() };
    let texts = one(texts).encode_to_vec();
    let cases: [(&str, &[u8], bool, i32, &str); 6] = [
        ("ten million inputs in gzip", &ten_million, true, INVALID, INPUTS),
        ("thirty million inputs in gzip", &thirty_million, true, INVALID, INPUTS),
        ("ten million names in gzip", &unknown, true, NOT_FOUND, "'nope' is not found"),
        ("thirty million inputs", &plain, false, INVALID, INPUTS),
        ("twenty million texts", &texts, false, UNAVAILABLE, "(limits.queued)"),
        ("ten million inputs once more", &ten_million, true, INVALID, INPUTS),
    ];
    let mut wrong = Vec::new();
    for (what, message, packed, number, text) in cases {
        let send = async |_| is_refused(&call(&mut channel, address, message, packed).await, number, text);
        wrong.extend(watch.prove(&rig, (what, message.len()), send).await);
    }
    drop(channel);
    let limit = watch.idle() + 2 * REQUEST + QUEUED;
    watch.end(rig, &wrong, cases.len(), limit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_http_bodies_do_not_use_large_amounts_of_memory() {
    let rig = Rig::with(&["--limits-queued", "256MiB"]).await;
    let watch = Watch::new(&rig);
    let bodies = [
        ("an array as a parameter", gzip(&[(br#"{"parameters":{"a":[0"#, 1), (b",0", 33_000_000)]), "must be a string"),
        ("many parameters", gzip(&[(br#"{"parameters":{"a":1"#, 1), (br#","a":1"#, 10_000_000)]), "limits.parameters"),
        (
            "many inputs",
            {
                let input = br#"{"name":"","shape":[],"datatype":""}"#;
                gzip(&[(br#"{"inputs":["#, 1), (input, 1), (&[b",", &input[..]].concat(), 1_500_000)])
            },
            "limits.inputs",
        ),
        (
            "many outputs",
            gzip(&[(br#"{"outputs":[{"name":""}"#, 1), (br#",{"name":""}"#, 5_000_000)]),
            "limits.outputs",
        ),
        (
            "many dimensions",
            { gzip(&[(br#"{"inputs":[{"name":"","datatype":"","shape":[1"#, 1), (b",1", 30_000_000)]) },
            "dimensions",
        ),
        ("more than may be", gzip(&[(b" ", 80_000_000)]), "limits.request"),
    ];
    let mut wrong = Vec::new();
    for (what, body, text) in &bodies {
        for (model, text) in [("sum", *text), ("nope", "'nope' is not found")] {
            let head = format!(
                "POST /v2/models/{model}/infer HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let sent = [head.as_bytes(), body].concat();
            let send = async |_| {
                let message = ask(rig.server.http, &sent, false)?.error()?;
                if message.contains(text) { Ok(()) } else { Err(message) }
            };
            wrong.extend(watch.prove(&rig, (&format!("{what}, of {model}"), body.len()), send).await);
        }
    }
    let limit = watch.idle() + 2 * REQUEST + QUEUED;
    watch.end(rig, &wrong, 2 * bodies.len(), limit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_memory_is_summed_before_it_is_read() {
    let rig = Rig::with(&["--limits-queued", "256MiB"]).await;
    let watch = Watch::new(&rig);
    let key = format!("/sequor-amplified-{}", std::process::id());
    let path = format!("/dev/shm{key}");
    std::fs::File::create(&path).unwrap().set_len(REQUEST).unwrap();
    let region = SystemSharedMemoryRegisterRequest { name: "r".to_owned(), key, offset: 0, byte_size: REQUEST };
    rig.client.clone().system_shared_memory_register(region).await.unwrap();
    let value = |choice| InferParameter { parameter_choice: Some(choice) };
    let input = |name: &str| InferInputTensor {
        name: name.to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![1, 1],
        parameters: [
            ("shared_memory_region".to_owned(), value(ParameterChoice::StringParam("r".to_owned()))),
            ("shared_memory_byte_size".to_owned(), value(ParameterChoice::Int64Param(REQUEST as i64))),
        ]
        .into(),
        ..Default::default()
    };
    let of = |model: &str, inputs| ModelInferRequest { model_name: model.to_owned(), inputs, ..Default::default() };
    let sixty = || (0..60).map(|n| input(&format!("INPUT{n}"))).collect::<Vec<_>>();
    let cases = [
        ("sixty windows for one input", of("sum", sixty()), INVALID, "expected 1 inputs but got 60 inputs"),
        ("one window sixty times", of("sum", vec![input("INPUT"); 60]), INVALID, "already exists in request"),
        ("sixty windows for a model there is not", of("nope", sixty()), NOT_FOUND, "'nope' is not found"),
        (
            "three windows",
            of("three", vec![input("INPUT"), input("SUM"), input("COUNT")]),
            TOO_LARGE,
            "(limits.request)",
        ),
    ];
    let mut wrong = Vec::new();
    for (what, request, number, text) in &cases {
        let send = async |_| {
            let refused = rig.client.clone().model_infer(request.clone()).await.err().ok_or("was taken")?;
            is_refused(&(refused.code() as i32, refused.message().to_owned()), *number, text)
        };
        wrong.extend(watch.prove(&rig, (what, request.encoded_len()), send).await);
    }
    std::fs::remove_file(path).unwrap();
    let limit = watch.idle() + REQUEST;
    watch.end(rig, &wrong, cases.len(), limit);
}

/// More bytes than the system buffers of a connection in both directions.
const PINGS: usize = 64 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_of_a_client_that_reads_no_pongs_are_not_read() {
    let rig = Rig::with(&[]).await;
    let watch = Watch::new(&rig);
    let send = async |_| {
        let mut stream = std::net::TcpStream::connect(rig.server.http).map_err(|e| e.to_string())?;
        let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13";
        let head = format!(
            "GET /v2/models/sum/stream HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n{key}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).map_err(|e| e.to_string())?;
        // A ping of 125 bytes, masked with zeros.
        let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[7; 125]].concat();
        let many = ping.repeat(1000);
        stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut sent = 0;
        while sent < 2 * PINGS {
            match stream.write(&many[sent % ping.len()..]) {
                Ok(more) => sent += more,
                Err(_) => break,
            }
        }
        println!("{sent} bytes of pings were taken before the server stopped reading");
        if sent > PINGS { Err(format!("{sent} bytes of pings were taken")) } else { Ok(()) }
    };
    let wrong: Vec<String> = watch.prove(&rig, ("pings without end", 2 * PINGS), send).await.into_iter().collect();
    let limit = watch.idle() + PINGS as u64;
    watch.end(rig, &wrong, 1, limit);
}

/// Number of incomplete bodies; each lacks only the last byte of the maximum size.
const BODIES: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_bodies_count_against_the_limit_and_release_their_memory() {
    let rig = Rig::with(&["--limits-queued", "256MiB"]).await;
    let watch = Watch::new(&rig);
    let length = REQUEST as usize;
    let head = format!("POST /v2/models/sum/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    let sent = [head.as_bytes(), &vec![b' '; length - 1]].concat();
    let mut open = Vec::new();
    let fit = (QUEUED / REQUEST) as usize;
    let send = async |_| {
        let mut refused = 0;
        for _ in 0..BODIES {
            let mut stream = std::net::TcpStream::connect(rig.server.http).map_err(|e| e.to_string())?;
            // Bodies that fit get no answer; those beyond get one eventually.
            let waits = if open.len() < fit { Duration::from_millis(200) } else { Duration::from_secs(60) };
            stream.set_read_timeout(Some(waits)).unwrap();
            // A body without room is refused while it is sent.
            let written = stream.write_all(&sent);
            let mut answer = [0; 1024];
            match stream.read(&mut answer) {
                Ok(count) if answer[..count].starts_with(b"HTTP/1.1 503") => refused += 1,
                Ok(0) | Err(_) if written.is_err() => refused += 1,
                Err(_) => open.push(stream),
                Ok(count) => return Err(String::from_utf8_lossy(&answer[..count]).into_owned()),
            }
        }
        if open.len() <= fit && refused == BODIES - open.len() {
            Ok(())
        } else {
            Err(format!("{} are open", open.len()))
        }
    };
    let what = ("bodies held open", BODIES * sent.len());
    let wrong: Vec<String> = watch.prove(&rig, what, send).await.into_iter().collect();
    drop(open);
    let limit = watch.idle() + 2 * REQUEST + QUEUED;
    watch.end(rig, &wrong, 1, limit);
}

/// Number of streams that one connection opens.
const STREAMS: usize = 60_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_of_one_connection_use_little_memory() {
    let rig = Rig::with(&[]).await;
    let watch = Watch::new(&rig);
    // HEADERS of a call without a message.
    let block = {
        let (path, kind) = (b"/inference.GRPCInferenceService/ModelInfer", b"application/grpc");
        let mut block = vec![0x83, 0x86, 0x04, path.len() as u8];
        block.extend_from_slice(path);
        block.extend_from_slice(&[0x01, 1, b'x', 0x0f, 0x10, kind.len() as u8]);
        block.extend_from_slice(kind);
        block
    };
    let opened = (0..STREAMS as u32).flat_map(|n| {
        let length = (block.len() as u32).to_be_bytes();
        [&length[1..], &[1, 4], &(2 * n + 1).to_be_bytes(), &block].concat()
    });
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    let bytes: Vec<u8> = preface.into_iter().chain(opened).collect();
    let send = async |_| {
        let mut stream = std::net::TcpStream::connect(rig.server.grpc).map_err(|e| e.to_string())?;
        let mut reader = stream.try_clone().map_err(|e| e.to_string())?;
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        reader.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The server stops reading from a client that reads nothing, so the test reads and counts the server's frames.
        let refused = std::thread::spawn(move || {
            let mut refused = 0;
            let mut head = [0; 9];
            while reader.read_exact(&mut head).is_ok() {
                let mut rest = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                if reader.read_exact(&mut rest).is_err() || head[3] == 7 {
                    break;
                }
                refused += usize::from(head[3] == 3);
                if refused == STREAMS - 1000 {
                    break;
                }
            }
            refused
        });
        let _ = stream.write_all(&bytes);
        let refused = refused.join().unwrap();
        println!("{refused} of {STREAMS} streams were refused, or the connection was closed");
        Ok(())
    };
    let what = ("streams of one connection", bytes.len());
    let wrong: Vec<String> = watch.prove(&rig, what, send).await.into_iter().collect();
    let limit = watch.idle() + REQUEST;
    watch.end(rig, &wrong, 1, limit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_loads_that_exceed_a_limit_use_no_memory() {
    let rig = Rig::with(&["--model-control-mode=explicit", "--load-model=*"]).await;
    let watch = Watch::new(&rig);
    let config = |slots: u64, instances: u64| {
        let batching = json!({ "oldest": { "max_candidate_sequences": slots } });
        let group = json!([{ "kind": "KIND_CPU", "count": instances }]);
        json!({ "max_batch_size": 4, "sequence_batching": batching, "instance_group": group }).to_string()
    };
    let cases = [
        ("2,147,483,647 slots", config(2_147_483_647, 1), "2147483647"),
        ("500 instances", config(4, 500), "500 instances"),
    ];
    let mut wrong = Vec::new();
    for (what, config, text) in &cases {
        let body = json!({ "parameters": { "config": config } }).to_string();
        let head = format!(
            "POST /v2/repository/models/three/load HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let sent = [head.as_bytes(), body.as_bytes()].concat();
        let send = async |_| {
            let message = ask(rig.server.http, &sent, false)?.error()?;
            if message.contains(text) { Ok(()) } else { Err(message) }
        };
        wrong.extend(watch.prove(&rig, (what, body.len()), send).await);
    }
    let limit = watch.idle() + REQUEST;
    watch.end(rig, &wrong, cases.len(), limit);
}
