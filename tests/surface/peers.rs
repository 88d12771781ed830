//! Tests the limits of one client. At a maximum, every surface refuses its requests, other clients continue, and all shares are freed.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use sequor::api::{Caller, Check, RequestContext, RequestHead, ServerLimits, Status};
use sequor::config::server::{GivenFlags, HostInfo, Reloaded, Settings, Shown, load, reload};
use sequor::config::units::Size;
use sequor::server::{ReloadOptions, ServerOptions, SettingsSource};
use sequor_core::Id;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{ModelInferRequest, ModelStreamInferResponse};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::rig::{END, Rig, START, connect_from, exchange_on, request, step};

const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn rig(limits: ServerLimits) -> Rig {
    Rig::served(ServerOptions { limits, ..ServerOptions::default() })
}

/// A server with a model whose requests wait for seven others, which never arrive.
fn waiting_rig(limits: ServerLimits) -> Rig {
    let batching = "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 600000000 }";
    let waits = ("waits", &*format!("{}{batching}", crate::rig::SAME), "identity INT32 dims=-1");
    Rig::with(limits, &[waits])
}

async fn channel(rig: &Rig, from: IpAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", rig.addresses.grpc.unwrap())).unwrap();
    endpoint.local_address(Some(from)).connect().await.unwrap()
}

/// A client of one surface.
enum Client {
    Grpc(GrpcInferenceServiceClient<Channel>),
    Stream(mpsc::Sender<ModelInferRequest>, Box<Streaming<ModelStreamInferResponse>>),
    Http(IpAddr),
    Socket(IpAddr),
}

const SURFACES: [&str; 4] = ["grpc", "stream", "http", "socket"];

impl Client {
    async fn new(rig: &Rig, surface: &str, from: IpAddr) -> Client {
        match surface {
            "grpc" => Client::Grpc(GrpcInferenceServiceClient::new(channel(rig, from).await)),
            "stream" => {
                let mut client = GrpcInferenceServiceClient::new(channel(rig, from).await);
                let (sender, receiver) = mpsc::channel(16);
                let replies = client.model_stream_infer(ReceiverStream::new(receiver)).await.unwrap();
                Client::Stream(sender, Box::new(replies.into_inner()))
            }
            "http" => Client::Http(from),
            _ => Client::Socket(from),
        }
    }

    /// Sends a request. The error is the reason of its refusal.
    async fn send(&mut self, rig: &Rig, request: ModelInferRequest) -> Result<(), String> {
        let http = rig.addresses.http.unwrap();
        match self {
            Client::Grpc(client) => match client.model_infer(request).await {
                Ok(_) => Ok(()),
                Err(status) => {
                    assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
                    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
                    Err(reason(&status))
                }
            },
            Client::Stream(sender, replies) => {
                sender.send(request).await.unwrap();
                // If a message is refused while it arrives, its stream ends.
                let reply = match replies.next().await.unwrap() {
                    Ok(reply) => reply,
                    Err(status) => return Err(reason(&status)),
                };
                let parameters = reply.infer_response.unwrap().parameters;
                match parameters.get("sequor_reason").and_then(|reason| reason.parameter_choice.clone()) {
                    Some(ParameterChoice::StringParam(reason)) => Err(reason),
                    _ => Ok(()),
                }
            }
            Client::Http(from) => {
                let path = format!("POST /v2/models/{}/infer", request.model_name);
                let stream = connect_from(*from, http).await;
                let answer = exchange_on(stream, &path, &[], to_json(&request).to_string().as_bytes()).await;
                match answer.status {
                    200 => Ok(()),
                    503 => {
                        assert!(answer.head.contains("retry-after: 1\r\n"), "{}", answer.head);
                        Err(answer.json()["reason"].as_str().unwrap().to_owned())
                    }
                    other => panic!("{other}: {}", String::from_utf8_lossy(&answer.body)),
                }
            }
            Client::Socket(from) => {
                let mut socket = socket(rig, *from, &request.model_name).await;
                socket.send(Message::text(to_json(&request).to_string())).await.unwrap();
                let answer = socket.next().await.unwrap().unwrap();
                let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
                answer["reason"].as_str().map_or(Ok(()), |reason| Err(reason.to_owned()))
            }
        }
    }
}

fn reason(status: &tonic::Status) -> String {
    status.metadata().get("sequor-reason").unwrap().to_str().unwrap().to_owned()
}

async fn socket(rig: &Rig, from: IpAddr, model: &str) -> WebSocketStream<TcpStream> {
    let address = rig.addresses.http.unwrap();
    let stream = connect_from(from, address).await;
    let url = format!("ws://{address}/v2/models/{model}/stream");
    tokio_tungstenite::client_async(url, stream).await.unwrap().0
}

/// The same request as JSON.
fn to_json(request: &ModelInferRequest) -> Value {
    let parameters: serde_json::Map<String, Value> = request
        .parameters
        .iter()
        .map(|(key, value)| match value.parameter_choice.as_ref().unwrap() {
            ParameterChoice::Int64Param(n) => (key.clone(), json!(n)),
            ParameterChoice::BoolParam(flag) => (key.clone(), json!(flag)),
            other => panic!("{other:?}"),
        })
        .collect();
    let data: Vec<i32> =
        request.raw_input_contents[0].as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
    let input = json!({ "name": "INPUT", "shape": [1, data.len()], "datatype": "INT32", "data": data });
    json!({ "parameters": parameters, "inputs": [input] })
}

fn at_limit() -> Result<(), String> {
    Err("peer_limit".to_owned())
}

/// The value of a series of the metrics.
async fn scraped(rig: &Rig, series: &str) -> u64 {
    let address = rig.addresses.metrics.unwrap();
    let text = exchange_on(TcpStream::connect(address).await.unwrap(), "GET /metrics", &[], b"").await.body;
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
}

/// Settings that give one client one sequence.
#[derive(Debug)]
struct OneSequence;

fn host() -> HostInfo {
    HostInfo { name: "here".to_owned(), memory: None }
}

impl SettingsSource for OneSequence {
    fn read(&self, running: &Settings) -> Result<Reloaded, String> {
        let file = (Path::new("sequor.toml"), "limits.sequences_per_peer = 1");
        reload(Some(file), &|_| None, &GivenFlags::default(), &host(), running).map_err(|faults| format!("{faults:?}"))
    }

    fn shown(&self, settings: &Settings) -> Vec<Shown> {
        settings.shown.clone()
    }
}

#[tokio::test]
async fn the_first_maximum_that_a_reload_sets_holds_for_open_streams_and_sockets() {
    let running = load(None, &|_| None, &GivenFlags::default(), &host()).unwrap();
    let reload = Some(ReloadOptions { running, source: Arc::new(OneSequence) });
    let rig = Rig::served(ServerOptions { reload, ..ServerOptions::default() });
    let mut stream = Client::new(&rig, "stream", GREEDY).await;
    let mut socket = socket(&rig, GREEDY, "sum").await;
    assert_eq!(stream.send(&rig, step(1, "", 1, &[START])).await, Ok(()));
    let mut admin = TcpStream::connect(rig.addresses.admin.unwrap()).await.unwrap();
    let head =
        "POST /admin/config/reload HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    admin.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    admin.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The sequence that the client held before is not counted.
    assert_eq!(stream.send(&rig, step(2, "", 1, &[START])).await, Ok(()));
    assert_eq!(stream.send(&rig, step(3, "", 1, &[START])).await, at_limit());
    socket.send(Message::text(to_json(&step(3, "", 1, &[START])).to_string())).await.unwrap();
    let answer: Value = serde_json::from_str(socket.next().await.unwrap().unwrap().to_text().unwrap()).unwrap();
    assert_eq!(answer["reason"], "peer_limit");
    assert_eq!(stream.send(&rig, step(1, "", 1, &[END])).await, Ok(()));
    assert_eq!(stream.send(&rig, step(3, "", 1, &[START])).await, at_limit());
    assert_eq!(stream.send(&rig, step(2, "", 1, &[END])).await, Ok(()));
    assert_eq!(stream.send(&rig, step(3, "", 1, &[START])).await, Ok(()));
}

#[tokio::test]
async fn live_sequences_of_one_client_are_bounded_on_every_surface() {
    let rig = rig(ServerLimits { sequences_per_peer: Some(2), ..ServerLimits::default() });
    for surface in SURFACES {
        let mut greedy = Client::new(&rig, surface, GREEDY).await;
        let mut other = Client::new(&rig, surface, OTHER).await;
        for id in [1, 2] {
            assert_eq!(greedy.send(&rig, step(id, "", 1, &[START])).await, Ok(()), "{surface}");
        }
        assert_eq!(greedy.send(&rig, step(3, "", 1, &[START])).await, at_limit(), "{surface}");
        // Its own sequences continue, and may restart.
        assert_eq!(greedy.send(&rig, step(1, "", 1, &[])).await, Ok(()), "{surface}");
        assert_eq!(greedy.send(&rig, step(1, "", 1, &[START])).await, Ok(()), "{surface}");
        assert_eq!(other.send(&rig, step(4, "", 1, &[START])).await, Ok(()), "{surface}");
        assert_eq!(scraped(&rig, "sequor_peer_most_sequences").await, 2, "{surface}");
        // A sequence belongs to the client that started it last.
        assert_eq!(greedy.send(&rig, step(4, "", 1, &[START])).await, at_limit(), "{surface}");
        assert_eq!(other.send(&rig, step(2, "", 1, &[START])).await, Ok(()), "{surface}");
        assert_eq!(greedy.send(&rig, step(3, "", 1, &[START])).await, Ok(()), "{surface}");
        // Ended sequences free their share.
        for id in 1..=4 {
            assert_eq!(greedy.send(&rig, step(id, "", 1, &[END])).await, Ok(()), "{surface}");
        }
        rig.until(|rig| rig.repository.live() == 0).await;
        assert_eq!(scraped(&rig, "sequor_peer_most_sequences").await, 0, "{surface}");
    }
    assert_eq!(scraped(&rig, "sequor_peer_refused_total{limit=\"sequences\"}").await, 2 * SURFACES.len() as u64);
    assert_eq!(scraped(&rig, "sequor_peer_refused_total{limit=\"in_flight\"}").await, 0);
    rig.until(|rig| rig.metrics.connections().get() == 0).await;
    assert_eq!(scraped(&rig, "sequor_peers").await, 0);
}

#[tokio::test]
async fn sequences_that_expire_are_dropped_or_fail_make_room() {
    let hasty = crate::rig::SUM.replace("600000000", "20000");
    let limits = ServerLimits { sequences_per_peer: Some(1), ..ServerLimits::default() };
    let models = [("hasty", &*hasty, "accumulate INT32")];
    let rig = Rig::with(limits, &models);
    let mut client = Client::new(&rig, "grpc", GREEDY).await;
    let start = |model: &str, id| ModelInferRequest { model_name: model.to_owned(), ..step(id, "", 1, &[START]) };
    assert_eq!(client.send(&rig, start("hasty", 1)).await, Ok(()));
    rig.until(|rig| rig.repository.live() == 0).await;
    assert_eq!(client.send(&rig, start("sum", 2)).await, Ok(()));
    assert_eq!(client.send(&rig, start("hasty", 3)).await, at_limit());
    assert!(rig.repository.drop_sequence("sum", &Id::Int(2)).unwrap());
    rig.until(|rig| rig.repository.live() == 0).await;
    assert_eq!(client.send(&rig, start("sum", 4)).await, Ok(()));
    assert_eq!(client.send(&rig, step(4, "", 1, &[END])).await, Ok(()));
    // A START that is refused for another reason does not count.
    let mut wrong = start("sum", 5);
    wrong.inputs[0].shape = vec![1, 2];
    let Client::Grpc(grpc) = &mut client else { panic!() };
    assert_eq!(grpc.model_infer(wrong).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    assert_eq!(client.send(&rig, start("sum", 6)).await, Ok(()));
    // A disconnected client's sequence stays, and counts until it ends.
    drop(client);
    rig.until(|rig| rig.metrics.connections().get() == 0).await;
    let mut again = Client::new(&rig, "http", GREEDY).await;
    assert_eq!(again.send(&rig, start("sum", 7)).await, at_limit());
    assert_eq!(again.send(&rig, step(6, "", 1, &[END])).await, Ok(()));
    assert_eq!(again.send(&rig, start("sum", 7)).await, Ok(()));
}

/// Sends requests of a client that wait; `count` of them.
async fn waiting(rig: &Rig, from: IpAddr, count: i64, values: &[i32]) -> Vec<JoinHandle<()>> {
    let mut waiting = Vec::new();
    for n in 1..=count {
        let mut client = GrpcInferenceServiceClient::new(channel(rig, from).await);
        let request = request("waits", "", values);
        waiting.push(tokio::spawn(async move { drop(client.model_infer(request).await) }));
        rig.until(|rig| rig.metrics.in_flight().get() == n).await;
    }
    waiting
}

#[tokio::test]
async fn requests_in_flight_of_one_client_are_bounded_on_every_surface() {
    let rig = waiting_rig(ServerLimits { in_flight_per_peer: Some(2), ..ServerLimits::default() });
    let kept = waiting(&rig, GREEDY, 2, &[1]).await;
    assert_eq!(scraped(&rig, "sequor_peer_most_in_flight").await, 2);
    for surface in SURFACES {
        let mut greedy = Client::new(&rig, surface, GREEDY).await;
        let mut other = Client::new(&rig, surface, OTHER).await;
        assert_eq!(greedy.send(&rig, request("same", "", &[1])).await, at_limit(), "{surface}");
        assert_eq!(other.send(&rig, request("same", "", &[1])).await, Ok(()), "{surface}");
    }
    // A disconnected client frees its share.
    kept.iter().for_each(JoinHandle::abort);
    rig.until(|rig| rig.metrics.in_flight().get() == 0).await;
    for surface in SURFACES {
        let mut greedy = Client::new(&rig, surface, GREEDY).await;
        assert_eq!(greedy.send(&rig, request("same", "", &[1])).await, Ok(()), "{surface}");
    }
    assert_eq!(scraped(&rig, "sequor_peer_refused_total{limit=\"in_flight\"}").await, SURFACES.len() as u64);
}

#[tokio::test]
async fn queued_bytes_of_one_client_are_bounded_on_every_surface() {
    const LIMIT: u64 = 4 << 20;
    let rig = waiting_rig(ServerLimits { queued_per_peer: Some(Size(LIMIT)), ..ServerLimits::default() });
    let large = vec![1; 300 << 10];
    let kept = waiting(&rig, GREEDY, 3, &large).await;
    assert_eq!(scraped(&rig, "sequor_peer_most_queued_bytes").await, 3 * (1200 << 10));
    for surface in SURFACES {
        let mut greedy = Client::new(&rig, surface, GREEDY).await;
        let mut other = Client::new(&rig, surface, OTHER).await;
        assert_eq!(greedy.send(&rig, request("same", "", &large)).await, at_limit(), "{surface}");
        let mut greedy = Client::new(&rig, surface, GREEDY).await;
        assert_eq!(greedy.send(&rig, request("same", "", &[1])).await, Ok(()), "{surface}");
        assert_eq!(other.send(&rig, request("same", "", &large)).await, Ok(()), "{surface}");
    }
    kept.iter().for_each(JoinHandle::abort);
    rig.until(|rig| rig.metrics.queued().get() == 0).await;
    // A body counts while it arrives, until its client disconnects.
    let head = "POST /v2/models/same/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 60000000\r\n\r\n";
    let part = [head.as_bytes(), &vec![b' '; 3 << 20]].concat();
    let mut open = connect_from(GREEDY, rig.addresses.http.unwrap()).await;
    open.write_all(&part).await.unwrap();
    rig.until(|rig| rig.metrics.queued().get() == 3 << 20).await;
    for surface in SURFACES {
        let mut greedy = Client::new(&rig, surface, GREEDY).await;
        let mut other = Client::new(&rig, surface, OTHER).await;
        assert_eq!(greedy.send(&rig, request("same", "", &large)).await, at_limit(), "{surface}");
        assert_eq!(other.send(&rig, request("same", "", &large)).await, Ok(()), "{surface}");
    }
    drop(open);
    rig.until(|rig| rig.metrics.queued().get() == 0).await;
    for surface in SURFACES {
        let mut greedy = Client::new(&rig, surface, GREEDY).await;
        assert_eq!(greedy.send(&rig, request("same", "", &large)).await, Ok(()), "{surface}");
    }
}

/// Identifies clients by a header.
#[derive(Debug)]
struct ByHeader;

impl Check for ByHeader {
    fn check(&self, context: &mut RequestContext, head: &RequestHead<'_>) -> Result<(), Status> {
        if let Some(name) = head.headers.get("who").and_then(|name| name.to_str().ok()) {
            let (name, address) = (name.to_owned(), context.caller.address);
            context.caller = Arc::new(Caller { name, address });
        }
        Ok(())
    }
}

#[tokio::test]
async fn per_client_limits_use_the_name_of_a_client_if_it_has_one() {
    let limits = ServerLimits { sequences_per_peer: Some(1), ..ServerLimits::default() };
    let rig = Rig::served(ServerOptions { limits, checks: vec![Arc::new(ByHeader)], ..ServerOptions::default() });
    let start = async |from: IpAddr, who: &str, id: i64| {
        let body = to_json(&step(id, "", 1, &[START])).to_string();
        let stream = connect_from(from, rig.addresses.http.unwrap()).await;
        exchange_on(stream, "POST /v2/models/sum/infer", &[("who", who)], body.as_bytes()).await.status
    };
    assert_eq!((start(GREEDY, "anna", 1).await, start(OTHER, "anna", 2).await), (200, 503));
    assert_eq!(start(GREEDY, "bert", 3).await, 200);
}
