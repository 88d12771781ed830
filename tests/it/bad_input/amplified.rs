//! Few bytes on the wire that ask for many in memory. Each is refused while memory stays within what the limits allow, a live sequence goes
//! on, and the server answers that it is alive.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::http::Request;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use prost::Message;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::{InferParameter, InferTensorContents, ModelInferRequest, SystemSharedMemoryRegisterRequest};
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

use super::House;
use super::http::ask;
use crate::server::get;

/// What the server may take beyond what it has when idle: two requests, and all that may be queued.
const REQUEST: u64 = 64 << 20;
const QUEUED: u64 = 256 << 20;

/// Asks all the time whether the server is alive.
struct Beside {
    stop: Arc<AtomicBool>,
    asking: JoinHandle<(u32, Duration)>,
}

impl Beside {
    fn new(address: SocketAddr) -> Beside {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let asking = std::thread::spawn(move || {
            let (mut count, mut longest) = (0, Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let asked = Instant::now();
                assert_eq!(get(address, "/v2/health/live").0, 200);
                longest = longest.max(asked.elapsed());
                count += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            (count, longest)
        });
        Beside { stop, asking }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (count, longest) = self.asking.join().unwrap();
        println!("alive: {count} answers beside it, the longest wait {longest:?}");
    }
}

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

/// The first bytes of a request to a model.
fn named(model: &str) -> Vec<u8> {
    ModelInferRequest { model_name: model.to_owned(), ..Default::default() }.encode_to_vec()
}

/// Sends a message as it is, and returns the number and the sentence of what it is answered with.
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
async fn small_messages_over_grpc_do_not_become_large_ones() {
    let house = House::with(&["--limits-queued", "256MiB"]).await;
    let idle = house.memory("VmRSS:");
    let address = house.server.grpc;
    let mut channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let beside = Beside::new(house.server.http);
    // An input of no name, no shape and no type: two bytes.
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
    println!(
        "{} and {} bytes of gzip, {} and {} without",
        ten_million.len(),
        thirty_million.len(),
        plain.len(),
        texts.len()
    );
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
        wrong.extend(house.check(what, "sum", send).await);
    }
    beside.end();
    drop(channel);
    house.assert_within(&wrong, cases.len(), idle + 2 * REQUEST + QUEUED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_bodies_over_http_do_not_become_large_ones() {
    let house = House::with(&["--limits-queued", "256MiB"]).await;
    let idle = house.memory("VmRSS:");
    let beside = Beside::new(house.server.http);
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
                let said = ask(house.server.http, &sent, false)?.error()?;
                if said.contains(text) { Ok(()) } else { Err(said) }
            };
            wrong.extend(house.check(&format!("{what}, {} bytes, of {model}", body.len()), "sum", send).await);
        }
    }
    beside.end();
    house.assert_within(&wrong, 2 * bodies.len(), idle + 2 * REQUEST + QUEUED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_memory_is_summed_before_it_is_read() {
    let house = House::with(&["--limits-queued", "256MiB"]).await;
    let idle = house.memory("VmRSS:");
    let key = format!("/sequor-amplified-{}", std::process::id());
    let path = format!("/dev/shm{key}");
    std::fs::File::create(&path).unwrap().set_len(REQUEST).unwrap();
    let region = SystemSharedMemoryRegisterRequest { name: "r".to_owned(), key, offset: 0, byte_size: REQUEST };
    house.client.clone().system_shared_memory_register(region).await.unwrap();
    let beside = Beside::new(house.server.http);
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
            let refused = house.client.clone().model_infer(request.clone()).await.err().ok_or("was taken")?;
            is_refused(&(refused.code() as i32, refused.message().to_owned()), *number, text)
        };
        wrong.extend(house.check(what, "sum", send).await);
    }
    beside.end();
    std::fs::remove_file(path).unwrap();
    house.assert_within(&wrong, cases.len(), idle + REQUEST);
}

/// How much of this a server that stops reading can take: what the system keeps of a connection, both ways.
const PINGS: usize = 64 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_of_a_client_that_reads_no_pongs_are_not_read() {
    let house = House::with(&[]).await;
    let idle = house.memory("VmRSS:");
    let beside = Beside::new(house.server.http);
    let send = async |_| {
        let mut stream = std::net::TcpStream::connect(house.server.http).map_err(|e| e.to_string())?;
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
    let wrong: Vec<String> = house.check("pings without end", "sum", send).await.into_iter().collect();
    beside.end();
    house.assert_within(&wrong, 1, idle + PINGS as u64);
}
