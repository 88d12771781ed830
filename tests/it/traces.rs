//! Tests the export of spans with a collector in this process, which decodes OpenTelemetry's own messages, over HTTP and over gRPC.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use prost::Message as _;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::opentelemetry::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use sequor_proto::opentelemetry::common::v1::KeyValue;
use sequor_proto::opentelemetry::common::v1::any_value::Value;
use sequor_proto::opentelemetry::trace::v1::span::SpanKind;
use sequor_proto::opentelemetry::trace::v1::status::StatusCode as SpanStatus;
use sequor_proto::opentelemetry::trace::v1::{ResourceSpans, Span};
use sequor_proto::opentelemetry_service::trace_service_server::{TraceService, TraceServiceServer};
use sequor_proto::{ModelInferRequest, ModelStreamInferResponse};
use tonic::Request;

use crate::server::{Call, Ended, Server, models, until};
use crate::steps::{metric, parameter, step};

const MODEL: &str = "accumulator_int32";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

// === the collector ===

/// A collector on a free port. It serves until the test ends.
struct TestCollector {
    at: SocketAddr,
    exports: Receiver<(HeaderMap, ExportTraceServiceRequest)>,
    /// The status of its answers over HTTP.
    status: Arc<AtomicU16>,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
struct Exports {
    to: Arc<Mutex<Sender<(HeaderMap, ExportTraceServiceRequest)>>>,
    status: Arc<AtomicU16>,
}

async fn take(State(exports): State<Exports>, headers: HeaderMap, body: Bytes) -> (StatusCode, Vec<u8>) {
    let status = StatusCode::from_u16(exports.status.load(Relaxed)).unwrap();
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let export = ExportTraceServiceRequest::decode(body).unwrap();
    if status == StatusCode::OK {
        exports.to.lock().unwrap().send((headers, export)).unwrap();
    }
    // 202 stands for a collector that takes the export without one of its spans.
    let partial_success = (status == StatusCode::ACCEPTED)
        .then(|| ExportTracePartialSuccess { rejected_spans: 1, ..ExportTracePartialSuccess::default() });
    let status = if status == StatusCode::ACCEPTED { StatusCode::OK } else { status };
    (status, ExportTraceServiceResponse { partial_success }.encode_to_vec())
}

#[tonic::async_trait]
impl TraceService for Exports {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let (metadata, _, export) = request.into_parts();
        self.to.lock().unwrap().send((metadata.into_headers(), export)).unwrap();
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl TestCollector {
    /// Takes exports over both protocols, at one port.
    fn start() -> TestCollector {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let at = listener.local_addr().unwrap();
        let (to, exports) = channel();
        let status = Arc::new(AtomicU16::new(200));
        let state = Exports { to: Arc::new(Mutex::new(to)), status: Arc::clone(&status) };
        let grpc = tonic::service::Routes::new(TraceServiceServer::new(state.clone())).into_axum_router();
        let http = Router::new().route("/v1/traces", post(take)).with_state(state);
        runtime.spawn(async move { axum::serve(listener, http.merge(grpc)).await });
        TestCollector { at, exports, status, _runtime: runtime }
    }

    fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    /// Stops the server, which flushes. Returns its output and all spans that have arrived.
    fn after(&self, server: Server) -> (Ended, Vec<Traced>) {
        let ended = server.stop();
        (ended, self.exports.try_iter().flat_map(|(_, export)| export.resource_spans).flat_map(traced).collect())
    }
}

/// A span with its attributes as text.
#[derive(Debug)]
struct Traced(Span);

fn traced(of: ResourceSpans) -> Vec<Traced> {
    of.scope_spans.into_iter().flat_map(|scope| scope.spans).map(Traced).collect()
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == name)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(truth) => truth.to_string(),
        other => panic!("{other:?}"),
    })
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Traced {
    fn of(&self, name: &str) -> Option<String> {
        text(&self.0.attributes, name)
    }

    fn is_root(&self) -> bool {
        self.0.kind() == SpanKind::Server
    }

    fn times(&self) -> (u64, u64) {
        (self.0.start_time_unix_nano, self.0.end_time_unix_nano)
    }
}

fn roots(spans: &[Traced]) -> Vec<&Traced> {
    spans.iter().filter(|span| span.is_root()).collect()
}

/// The span of this name below another one.
fn below<'s>(spans: &'s [Traced], parent: &Traced, name: &str) -> &'s Traced {
    let is_it = |span: &&Traced| span.0.parent_span_id == parent.0.span_id && span.0.name == name;
    spans.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {spans:?}"))
}

// === the server ===

/// A server that sends its spans to this URL, one request in `1 / sample`.
fn exporting(url: &str, sample: &str) -> Call {
    Call::serve(models()).arguments(["--otlp-endpoint", url, "--otlp-sample", sample, "--node", "n1"])
}

fn with_parent<T>(message: T, flags: &str) -> Request<T> {
    let mut request = Request::new(message);
    let parent = format!("00-{TRACE}-{PARENT}-{flags}");
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    request
}

fn chunk(id: i64, start: bool, end: bool) -> ModelInferRequest {
    step(MODEL, id, "r-1".to_owned(), 1, start, end)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_has_a_span_with_its_wait_and_its_run_below() {
    let collector = TestCollector::start();
    let call = exporting(&collector.url(), "1").environment("OTEL_SERVICE_NAME", "asr");
    let call = call.environment("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test%20bed");
    let server = call.environment("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20k").start();
    let mut client = server.client().await;
    client.model_infer(chunk(7, true, false)).await.unwrap();
    client.model_infer(chunk(7, false, true)).await.unwrap();
    let (headers, export) = collector.exports.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(headers["authorization"], "Bearer k");
    let resource = export.resource_spans[0].resource.clone().unwrap().attributes;
    let of = |name: &str| text(&resource, name);
    assert_eq!((of("service.name").as_deref(), of("service.instance.id").as_deref()), (Some("asr"), Some("n1")));
    assert_eq!(of("deployment.environment").as_deref(), Some("test bed"));

    let mut spans: Vec<Traced> = export.resource_spans.into_iter().flat_map(traced).collect();
    let (ended, more) = collector.after(server);
    spans.extend(more);
    assert!(!ended.stderr.contains("Bearer"), "{}", ended.stderr);
    let mut both = roots(&spans);
    both.sort_by_key(|span| span.times());
    let [start, end] = both.as_slice() else { panic!("{spans:?}") };
    assert_eq!((start.0.name.as_str(), &start.0.parent_span_id), ("infer accumulator_int32", &Vec::new()));
    assert_ne!(start.0.trace_id, end.0.trace_id);
    assert_eq!((start.0.trace_id.len(), start.0.span_id.len()), (16, 8));
    let said = |span: &Traced, name: &str| span.of(name).unwrap_or_default();
    for (span, step, starts) in [(start, "1", "true"), (end, "2", "false")] {
        assert_eq!(
            ["api", "model", "version", "request.id", "sequence.id", "batch_size", "code"]
                .map(|name| said(span, &format!("sequor.{name}"))),
            ["kserve_grpc", MODEL, "1", "r-1", "7", "1", "OK"]
        );
        assert_eq!((said(span, "sequor.sequence.step").as_str(), said(span, "sequor.sequence.start").as_str()), (step, starts));
        let (queue, run) = (below(&spans, span, "queue"), below(&spans, span, "run"));
        assert!(queue.0.trace_id == span.0.trace_id && queue.0.kind() == SpanKind::Internal);
        let ((from, to), (queued, taken), (begun, done)) = (span.times(), queue.times(), run.times());
        assert!(from <= queued && queued <= taken && taken == begun && begun < done && done <= to, "{spans:?}");
        assert!(run.of("sequor.run_us").is_some());
    }
    assert_eq!(spans.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_callers_decision_wins_over_the_sample() {
    let collector = TestCollector::start();
    for (sample, wanted) in [("0", 1), ("1", 2)] {
        let server = exporting(&collector.url(), sample).start();
        let mut client = server.client().await;
        client.model_infer(with_parent(chunk(1, true, true), "01")).await.unwrap();
        client.model_infer(with_parent(chunk(2, true, true), "00")).await.unwrap();
        client.model_infer(chunk(3, true, true)).await.unwrap();
        let (_, spans) = collector.after(server);
        let all = roots(&spans);
        assert_eq!(all.len(), wanted, "{spans:?}");
        assert!(all.iter().all(|span| span.of("sequor.sequence.id").as_deref() != Some("2")), "{spans:?}");
        let continued = all.iter().find(|span| span.of("sequor.sequence.id").as_deref() == Some("1")).unwrap();
        assert_eq!((hex(&continued.0.trace_id), hex(&continued.0.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_message_of_a_stream_continues_the_streams_trace() {
    let collector = TestCollector::start();
    let server = exporting(&collector.url(), "0").environment("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let server = server.environment("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a").start();
    let mut client = server.client().await;
    let named = |start, end| {
        let mut message = chunk(0, start, end);
        let id = ParameterChoice::StringParam("call-with-anna".to_owned());
        message.parameters.insert("sequence_id".to_owned(), parameter(id));
        message
    };
    let messages = vec![named(true, false), named(false, false), named(false, true)];
    let stream = with_parent(tokio_stream::iter(messages), "01");
    let mut answers = client.model_stream_infer(stream).await.unwrap().into_inner();
    let mut answered = 0;
    while let Some(ModelStreamInferResponse { error_message, .. }) = answers.message().await.unwrap() {
        assert_eq!(error_message, "");
        answered += 1;
    }
    assert_eq!(answered, 3);
    let (headers, export) = collector.exports.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(headers["x-tenant"], "a");
    assert!(!format!("{export:?}").contains("anna"), "a client's text is hashed");
    let mut spans: Vec<Traced> = export.resource_spans.into_iter().flat_map(traced).collect();
    spans.extend(collector.after(server).1);
    let mut all = roots(&spans);
    all.sort_by_key(|span| span.of("sequor.sequence.step"));
    assert_eq!(all.iter().filter_map(|span| span.of("sequor.sequence.step")).collect::<Vec<_>>(), ["1", "2", "3"]);
    assert!(all.iter().all(|span| hex(&span.0.trace_id) == TRACE && hex(&span.0.parent_span_id) == PARENT));
    let ids: Vec<String> = all.iter().filter_map(|span| span.of("sequor.sequence.id")).collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0] && id.len() == 16), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refused_request_has_a_span_with_its_reason() {
    let collector = TestCollector::start();
    let server = exporting(&collector.url(), "1").start();
    let mut client = server.client().await;
    client.model_infer(chunk(1, false, false)).await.unwrap_err();
    client.model_infer(step("nope", 1, String::new(), 1, true, true)).await.unwrap_err();
    assert_eq!(crate::cache::send(server.http, "/v1/models/nope:predict", &serde_json::json!({"instances": [1]})).0, 404);
    let (_, spans) = collector.after(server);
    let all = roots(&spans);
    let named: Vec<_> = all
        .iter()
        .map(|span| (span.0.name.as_str(), span.of("sequor.api").unwrap(), span.of("error.type").unwrap()))
        .collect();
    let expected = [
        ("infer accumulator_int32", "kserve_grpc", "no_start"),
        ("infer", "kserve_grpc", "not_served"),
        ("infer", "tfs_http", "not_served"),
    ];
    assert_eq!(named, expected.map(|(name, api, reason)| (name, api.to_owned(), reason.to_owned())));
    assert!(all.iter().all(|span| span.0.status.as_ref().unwrap().code() == SpanStatus::Error));
    assert!(spans.iter().all(|span| span.0.name != "run"), "nothing ran: {spans:?}");
}

/// Requests go on while the collector is away. Spans that can be sent later are kept for some seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_go_on_while_the_collector_fails() {
    let collector = TestCollector::start();
    let server = exporting(&collector.url(), "1").start();
    let mut client = server.client().await;
    let exported = || metric(&server, "sequor_spans_exported_total", &[]) as u64;
    let dropped = |reason: &str| metric(&server, "sequor_spans_dropped_total", &[reason]) as u64;
    collector.status.store(503, Relaxed);
    client.model_infer(chunk(1, true, true)).await.unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!((exported(), dropped("reason")), (0, 0), "the export is tried again");
    collector.status.store(200, Relaxed);
    until("the spans arrive", || exported() == 3);
    collector.status.store(400, Relaxed);
    client.model_infer(chunk(2, true, true)).await.unwrap();
    until("a refused export is dropped", || dropped("\"collector\"") == 3);
    collector.status.store(202, Relaxed);
    client.model_infer(chunk(3, true, true)).await.unwrap();
    until("a span is rejected", || dropped("\"rejected\"") == 1);
    assert_eq!(exported(), 5);
    let ended = server.stop();
    assert!(ended.stderr.contains("spans cannot be exported") && ended.stderr.contains("takes spans again"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_without_its_collector_serves_and_stops() {
    let nothing = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    for protocol in ["http/protobuf", "grpc"] {
        let server = exporting(&format!("http://{nothing}"), "1").arguments(["--otlp-protocol", protocol]).start();
        let mut client = server.client().await;
        for id in 1..100 {
            client.model_infer(chunk(id, true, true)).await.unwrap();
        }
        let ended = server.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("spans cannot be exported"), "{}", ended.stderr);
    }
}

#[test]
fn tritons_flag_of_traces_names_the_collector() {
    let collector = TestCollector::start();
    let url = format!("--trace-config=opentelemetry,url={}/v1/traces", collector.url());
    let flags = ["--trace-config=mode=opentelemetry", &url, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1"];
    let server = Call::serve(models()).arguments(flags).start();
    let input = serde_json::json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] });
    let parameters = serde_json::json!({ "sequence_id": 1, "sequence_start": true, "sequence_end": true });
    let body = serde_json::json!({ "parameters": parameters, "inputs": [input] });
    let (status, _, answer) = crate::cache::send(server.http, "/v2/models/accumulator_int32/infer", &body);
    assert_eq!(status, 200, "{answer}");
    let (ended, spans) = collector.after(server);
    assert_eq!(roots(&spans).len(), 1, "{spans:?} {}", ended.stderr);
    let refused = Call::serve(models()).arguments(["--trace-config=level=TIMESTAMPS"]).end();
    assert_eq!(refused.code, Some(3), "{refused:?}");
}
