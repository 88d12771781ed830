//! Tests a server on ports that the system chooses, with real clients. It has no models, so only the other endpoints are tested.

use std::future::poll_fn;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use sequor_proto as proto;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tower::Service as _;

use super::*;
use crate::config::units::{Size, Span};

struct Server {
    running: RunningServer,
    stop: mpsc::Sender<Stop>,
}

fn serve_with(options: ServerOptions) -> Server {
    serve_over(Repository::empty(), options)
}

fn serve_over(repository: Repository, options: ServerOptions) -> Server {
    let wanted =
        Addresses { http: Some(local(0)), grpc: Some(local(0)), metrics: Some(local(0)), admin: Some(local(0)) };
    let listeners = Listeners::bind(&wanted).expect("ports");
    let (stop, stopped) = mpsc::channel(2);
    let running = start(listeners, options, repository, Metrics::new(true), stopped);
    Server { running, stop }
}

fn serve() -> Server {
    let drain = Drain { announce: Span::default(), finish: Span::default(), ..Drain::default() };
    serve_with(ServerOptions { drain, ..ServerOptions::default() })
}

impl Server {
    async fn channel(&self) -> Channel {
        let address = self.running.addresses.grpc.expect("a port");
        Channel::from_shared(format!("http://{address}")).expect("an address").connect().await.expect("a connection")
    }

    async fn kserve(&self) -> GrpcInferenceServiceClient<Channel> {
        GrpcInferenceServiceClient::new(self.channel().await)
    }

    async fn http(&self, request: &str) -> String {
        exchange(self.running.addresses.http.expect("a port"), request, "").await
    }
}

/// Sends a request that closes its connection. Returns the whole answer.
async fn exchange(address: SocketAddr, request: &str, body: &str) -> String {
    exchange_with(address, request, "x", body).await
}

async fn exchange_with(address: SocketAddr, request: &str, host: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let length = body.len();
    let text =
        format!("{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

fn code_and_body(answer: &str) -> (&str, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.split_whitespace().nth(1).expect("a code"), body)
}

#[tokio::test]
async fn one_port_answers_grpc_and_http() {
    let server = serve();
    let grpc = server.running.addresses.grpc.expect("a port");
    assert_eq!(code_and_body(&exchange(grpc, "GET /v2/health/live", "").await), ("200", ""));
    let http = server.running.addresses.http.expect("a port");
    let channel =
        Channel::from_shared(format!("http://{http}")).expect("an address").connect().await.expect("a connection");
    let live =
        GrpcInferenceServiceClient::new(channel).server_live(proto::ServerLiveRequest {}).await.expect("an answer");
    assert!(live.into_inner().live);
}

#[tokio::test]
async fn the_server_reports_its_metadata_and_readiness() {
    let server = serve();
    let metadata =
        server.kserve().await.server_metadata(proto::ServerMetadataRequest {}).await.expect("an answer").into_inner();
    assert_eq!((metadata.name.as_str(), metadata.version.as_str()), ("sequor", env!("CARGO_PKG_VERSION")));
    let answer = server.http("GET /v2").await;
    let (code, body) = code_and_body(&answer);
    let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!((code, &json["name"], &json["extensions"][1]), ("200", &"sequor".into(), &"sequence".into()));
    assert_eq!(code_and_body(&server.http("GET /v2/health/ready").await), ("200", ""));
    let ready = server.kserve().await.server_ready(proto::ServerReadyRequest {}).await.expect("an answer");
    assert!(ready.into_inner().ready);
}

#[tokio::test]
async fn unknown_models_and_paths_and_verbs_are_refused() {
    let server = serve();
    let text = "Request for unknown model: 'nope' is not found";
    let body = format!("{{\"error\":\"{text}\",\"reason\":\"not_served\"}}");
    for path in ["GET /v2/models/nope", "GET /v2/models/nope/versions/1", "GET /v2/models/nope/config"] {
        let answer = server.http(path).await;
        assert_eq!(code_and_body(&answer), ("404", body.as_str()), "{path}");
        assert!(answer.contains("sequor-reason: not_served\r\n"), "{answer}");
    }
    let not_ready = r#"{"error":"Model version not ready","reason":"not_served"}"#;
    for path in ["GET /v2/models/nope/ready", "GET /v2/models/nope/versions/1/ready"] {
        assert_eq!(code_and_body(&server.http(path).await), ("400", not_ready), "{path}");
    }
    assert_eq!(code_and_body(&server.http("POST /v2/models/nope/infer").await), ("404", body.as_str()));
    assert_eq!(code_and_body(&server.http("GET /v2/nowhere").await), ("404", r#"{"error":"Not Found"}"#));
    let verb = server.http("GET /v2/models/nope/infer").await;
    assert_eq!(code_and_body(&verb), ("405", r#"{"error":"Method Not Allowed"}"#));
    assert!(verb.contains("allow: POST\r\n"), "{verb}");
    for answer in [verb, server.http("GET /v2/nowhere").await] {
        assert!(answer.contains("sequor-reason: unsupported\r\n") && answer.contains("sequor-help: "), "{answer}");
    }
    let malformed = server.http("GET /v1/models/%ff").await;
    assert_eq!(code_and_body(&malformed).0, "400");
    assert!(malformed.contains("sequor-reason: bad_input\r\n"), "{malformed}");
    let admin = server.running.addresses.admin.expect("a port");
    let malformed = exchange_with(admin, "POST /admin/models/%ff/load", "127.0.0.1", "").await;
    assert_eq!(code_and_body(&malformed).0, "400");
    assert!(malformed.contains("sequor-reason: bad_input\r\n"), "{malformed}");

    let request = proto::ModelInferRequest { model_name: "nope".to_owned(), ..Default::default() };
    let status = server.kserve().await.model_infer(request).await.expect_err("refused");
    assert_eq!((status.code(), status.message()), (Code::NotFound, text));
    assert_eq!(status.metadata().get("sequor-reason").expect("a trailer"), "not_served");
    let request = proto::ModelReadyRequest { name: "nope".to_owned(), version: String::new() };
    assert_eq!(server.kserve().await.model_ready(request).await.expect_err("refused").code(), Code::NotFound);
}

#[tokio::test]
async fn an_unknown_grpc_method_is_refused_by_name() {
    let server = serve();
    // Of an unknown service, and of known ones.
    let paths = [
        "/tensorflow.serving.SessionService/SessionRun",
        "/inference.GRPCInferenceService/Nothing",
        "/tensorflow.serving.PredictionService/Nothing",
    ];
    for path in paths {
        let mut grpc = tonic::client::Grpc::new(server.channel().await);
        grpc.ready().await.expect("ready");
        let codec = tonic_prost::ProstCodec::<proto::ServerLiveRequest, proto::ServerLiveResponse>::default();
        let request = tonic::Request::new(proto::ServerLiveRequest {});
        let status = grpc.unary(request, path.parse().expect("a path"), codec).await.expect_err("refused");
        let text = format!("{path} is not served here");
        assert_eq!((status.code(), status.message()), (Code::Unimplemented, text.as_str()));
        assert_eq!(status.metadata().get("sequor-reason").expect("a reason"), "unsupported");
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_is_not_read() {
    let limits = ServerLimits { request: Size(100), ..ServerLimits::default() };
    let server = serve_with(ServerOptions { limits, ..ServerOptions::default() });
    let request = proto::ModelInferRequest { model_name: "x".repeat(200), ..Default::default() };
    let status = server.kserve().await.model_infer(request).await.expect_err("refused");
    let reason = status.metadata().get("sequor-reason").map(|reason| reason.to_str().expect("text"));
    assert_eq!((status.code(), reason), (Code::ResourceExhausted, Some("bad_input")));
    assert_eq!(status.message(), "Received message larger than max (203 vs. 100) (limits.request)");
}

#[tokio::test]
async fn reflection_knows_the_services() {
    let server = serve();
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut client = ServerReflectionClient::new(server.channel().await);
    let answers = client.server_reflection_info(tokio_stream::once(request)).await.expect("an answer");
    let answer = answers.into_inner().next().await.expect("an answer").expect("an answer").message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["inference.GRPCInferenceService", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|n| n == name), "{names:?}");
    }
}

#[tokio::test]
async fn metrics_are_on_their_own_port() {
    let server = serve();
    server.http("POST /v2/models/nope/infer").await;
    let address = server.running.addresses.metrics.expect("a port");
    let answer = exchange(address, "GET /metrics", "").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    let line = r#"sequor_requests_total{model="",api="kserve_http",code="NOT_FOUND",reason="not_served"} 1"#;
    assert!(answer.contains(line), "{answer}");
    assert_eq!(code_and_body(&server.http("GET /metrics").await).0, "404");
    let elsewhere = exchange(address, "GET /", "").await;
    assert!(code_and_body(&elsewhere).0 == "404" && elsewhere.contains("/metrics"), "{elsewhere}");
}

// === probes on the metrics port ===

async fn probes(server: &Server) -> (SocketAddr, Channel) {
    let address = server.running.addresses.metrics.expect("a port");
    let channel = Channel::from_shared(format!("http://{address}")).expect("an address");
    (address, channel.connect().await.expect("a connection"))
}

#[tokio::test]
async fn a_long_message_on_the_metrics_port_is_refused_at_its_head() {
    let server = serve();
    let (address, mut channel) = probes(&server).await;
    let (sender, frames) = mpsc::channel(1);
    let half = [&[0, 0, 0, 8, 0][..], &[0; 1 << 10]].concat();
    sender.send(Ok::<_, tonic::Status>(Frame::data(Bytes::from(half)))).await.expect("room");
    let body = tonic::body::Body::new(StreamBody::new(ReceiverStream::new(frames)));
    let request = axum::http::Request::post(format!("http://{address}/grpc.health.v1.Health/Check"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(body);
    poll_fn(|cx| channel.poll_ready(cx)).await.expect("a connection");
    let answer = channel.call(request.expect("a request")).await.expect("an answer");
    let status = tonic::Status::from_header_map(answer.headers()).expect("a refusal");
    // The rest of the message has not been sent.
    drop(sender);
    let text = "larger than max (2048 vs. 1024) (a fixed limit of health probes at the metrics listener)";
    assert!(status.message().contains(text), "{status:?}");
}

#[tokio::test]
async fn the_metrics_port_serves_single_health_checks_and_no_watches() {
    let server = serve();
    let mut client = HealthClient::new(probes(&server).await.1);
    let named = HealthCheckRequest { service: "inference.GRPCInferenceService".to_owned() };
    let answer = client.check(named).await.expect("an answer").into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
    let refused = client.watch(HealthCheckRequest::default()).await.expect_err("refused");
    assert_eq!((refused.code(), refused.message().contains("Call Check")), (Code::Unimplemented, true), "{refused:?}");
}

#[tokio::test]
async fn one_peer_has_at_most_half_of_the_connections_of_the_metrics_port() {
    let connections = Connections { reserved: 4, ..Connections::default() };
    let server = serve_with(ServerOptions { connections, ..ServerOptions::default() });
    let addresses = server.running.addresses;
    let open = |address: Option<SocketAddr>| TcpStream::connect(address.expect("a port"));
    let _held = [open(addresses.metrics).await, open(addresses.metrics).await];
    let request = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut third = open(addresses.metrics).await.expect("a connection");
    let _ = third.write_all(request).await;
    let answer = third.read(&mut [0; 12]).await;
    assert!(!matches!(answer, Ok(1..)), "the third is closed: {answer:?}");
    let _admin = [open(addresses.admin).await, open(addresses.admin).await];
    let mut third = open(addresses.admin).await.expect("a connection");
    third.write_all(request).await.expect("written");
    assert!(matches!(third.read(&mut [0; 12]).await, Ok(1..)), "an operator may have all");
}

// === the drain ===

async fn health(server: &Server) -> i32 {
    let mut client = HealthClient::new(server.channel().await);
    client.check(HealthCheckRequest::default()).await.expect("an answer").into_inner().status
}

#[tokio::test]
async fn a_draining_server_reports_not_ready_and_still_answers() {
    let hour = Span(Duration::from_secs(3600));
    let drain = Drain { announce: hour, finish: hour, exit_timeout: hour };
    let server = serve_with(ServerOptions { drain, ..ServerOptions::default() });
    assert_eq!(health(&server).await, ServingStatus::Serving as i32);
    let mut client = HealthClient::new(server.channel().await);
    let mut watched = client.watch(HealthCheckRequest::default()).await.expect("an answer").into_inner();
    let mut next = async || watched.next().await.map(|status| status.expect("a status").status);
    assert_eq!(next().await, Some(ServingStatus::Serving as i32));

    server.stop.send(Stop::Drain).await.expect("sent");
    assert_eq!(next().await, Some(ServingStatus::NotServing as i32));
    assert_eq!(health(&server).await, ServingStatus::NotServing as i32);
    assert_eq!(code_and_body(&server.http("GET /v2/health/ready").await), ("400", ""));
    assert_eq!(code_and_body(&server.http("GET /v2/health/live").await), ("200", ""));

    // A second stop request ends the wait of an hour. The watch stream ends, so no connection must be cut.
    server.stop.send(Stop::Drain).await.expect("sent");
    assert_eq!(next().await, None);
    assert_eq!(server.running.join().await, Drained::Clean);
}

#[tokio::test]
async fn a_server_that_was_never_ready_has_nothing_to_announce() {
    let hour = Span(Duration::from_secs(3600));
    let drain = Drain { announce: hour, finish: hour, exit_timeout: hour };
    let repository = Repository::empty();
    let _loading = repository.loading();
    let server = serve_over(repository, ServerOptions { drain, ..ServerOptions::default() });
    assert_eq!(health(&server).await, ServingStatus::NotServing as i32);
    server.stop.send(Stop::Drain).await.expect("sent");
    assert_eq!(server.running.join().await, Drained::Clean);
}

#[tokio::test]
async fn an_idle_reflection_stream_does_not_delay_a_shutdown() {
    let server = serve();
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let mut client = ServerReflectionClient::new(server.channel().await);
    let mut answers = client.server_reflection_info(requests).await.expect("a stream").into_inner();
    answers.next().await.expect("an answer").expect("an answer");
    server.stop.send(Stop::Drain).await.expect("sent");
    assert!(answers.next().await.is_none());
    assert_eq!(server.running.join().await, Drained::Clean);
}

#[tokio::test]
async fn an_idle_server_stops_at_once_and_frees_its_ports() {
    let server = serve();
    let (addresses, kept) = (server.running.addresses, server.kserve().await);
    server.stop.send(Stop::Drain).await.expect("sent");
    assert_eq!(server.running.join().await, Drained::Clean);
    assert!(TcpStream::connect(addresses.http.expect("a port")).await.is_err());
    drop(kept);
    Listeners::bind(&addresses).expect("the ports are free");
}

/// A gRPC client without calls may not read its socket. It then sees no GOAWAY and answers no ping.
#[tokio::test]
async fn a_client_that_does_not_read_does_not_delay_a_shutdown() {
    let server = serve();
    let mut stream = TcpStream::connect(server.running.addresses.grpc.expect("a port")).await.expect("a connection");
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("written");
    stream.write_all(&settings).await.expect("written");
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.expect("the server's settings");
    server.stop.send(Stop::Drain).await.expect("sent");
    assert_eq!(server.running.join().await, Drained::Clean);
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut() {
    let server = serve();
    // A body that never arrives whole.
    let mut stream = TcpStream::connect(server.running.addresses.http.expect("a port")).await.expect("a connection");
    let head = "POST /v2/repository/index HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("written");
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.expect("the server reads the body");
    assert_eq!(&line, b"HTTP/1.1 100");
    server.stop.send(Stop::Now).await.expect("sent");
    server.stop.send(Stop::Now).await.expect("sent");
    assert_eq!(server.running.join().await, Drained::Cut);
}
