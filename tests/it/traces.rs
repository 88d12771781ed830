//! Tests the export of spans by the real server: what a span says, whose trace it continues, and what happens if the collector fails.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::{ModelInferRequest, ModelStreamInferResponse};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tonic::Request;

use crate::certificates::TestCertificates;
use crate::collector::{HANGS, PARTIAL, TestCollector, Traced, below, hex, roots, text, traced};
use crate::ensembles::of_two;
use crate::operator::ask;
use crate::server::{Call, Server, models, until};
use crate::steps::{metric, parameter, step};

const MODEL: &str = "accumulator_int32";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const PROTOCOLS: [&str; 2] = ["http/protobuf", "grpc"];
const SECRET: &str = "s3cret-of-the-collector";
/// Time within which the first export must arrive.
const SOON: Duration = Duration::from_secs(60);

/// A server that sends its spans to this URL, one request in `1 / sample`.
fn exporting(url: &str, sample: &str) -> Call {
    Call::serve(models()).arguments(["--otlp-endpoint", url, "--otlp-sample", sample, "--node", "n1"])
}

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

fn with_parent<T>(message: T, flags: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("traceparent", parent(flags).parse().unwrap());
    request
}

fn chunk(id: i64, start: bool, end: bool) -> ModelInferRequest {
    step(MODEL, id, "r-1".to_owned(), 1, start, end)
}

/// Sends a sequence of one step over HTTP, with these headers.
fn post(http: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(http).unwrap();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {length}");
    write!(stream, "{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn infer(http: SocketAddr, id: u32, headers: &[(&str, &str)]) -> u16 {
    let input = serde_json::json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] });
    let parameters = serde_json::json!({ "sequence_id": id, "sequence_start": true, "sequence_end": true });
    let body = serde_json::json!({ "parameters": parameters, "inputs": [input] }).to_string();
    post(http, &format!("/v2/models/{MODEL}/infer"), headers, &body)
}

fn exported(server: &Server) -> u64 {
    metric(server, "sequor_spans_exported_total", &[]) as u64
}

fn dropped(server: &Server, reason: &str) -> u64 {
    metric(server, "sequor_spans_dropped_total", &[&format!("reason=\"{reason}\"")]) as u64
}

// === what a span says ===

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_has_a_span_with_its_wait_and_its_run_below() {
    let collector = TestCollector::start();
    let call = exporting(&collector.url, "1").environment("OTEL_SERVICE_NAME", "asr");
    let server = call.environment("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test%20bed").start();
    let mut client = server.client().await;
    client.model_infer(chunk(7, true, false)).await.unwrap();
    client.model_infer(chunk(7, false, true)).await.unwrap();
    let (_, export) = collector.exports.recv_timeout(SOON).unwrap();
    let resource = export.resource_spans[0].resource.clone().unwrap().attributes;
    let of = |name: &str| text(&resource, name).unwrap_or_default();
    let named = ["service.name", "service.instance.id", "service.version", "deployment.environment"].map(of);
    assert_eq!(named, ["asr", "n1", env!("CARGO_PKG_VERSION"), "test bed"]);

    let mut spans = traced(export);
    spans.extend(collector.after(server).1);
    let both = roots(&spans);
    let [start, end] = both.as_slice() else { panic!("{spans:?}") };
    assert_eq!((start.0.name.as_str(), start.0.parent_span_id.len()), ("infer accumulator_int32", 0));
    assert_ne!(start.0.trace_id, end.0.trace_id);
    assert_eq!((start.0.trace_id.len(), start.0.span_id.len()), (16, 8));
    for (span, step, starts) in [(start, "1", "true"), (end, "2", "false")] {
        let ours = ["api", "model", "version", "request.id", "sequence.id", "batch_size", "code"];
        let ours = ours.map(|name| span.of(&format!("sequor.{name}")));
        assert_eq!(ours, ["kserve_grpc", MODEL, "1", "r-1", "7", "1", "OK"]);
        assert_eq!([span.of("sequor.sequence.step"), span.of("sequor.sequence.start")], [step, starts]);
        let rpc = ["rpc.system", "rpc.service", "rpc.method", "rpc.grpc.status_code"].map(|name| span.of(name));
        assert_eq!(rpc, ["grpc", "inference.GRPCInferenceService", "ModelInfer", "0"]);
        assert_eq!([span.of("client.address"), span.of("error.type")], ["127.0.0.1", ""]);
        let (queue, run) = (below(&spans, span, "queue"), below(&spans, span, "run"));
        assert!(queue.0.trace_id == span.0.trace_id && queue.0.kind() == SpanKind::Internal);
        let ((from, to), (queued, taken), (begun, done)) = (span.times(), queue.times(), run.times());
        assert!(from <= queued && queued <= taken && taken == begun && begun < done && done <= to, "{spans:?}");
        assert!(!run.of("sequor.run_us").is_empty());
    }
    assert_eq!(spans.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refused_request_has_a_span_with_its_reason() {
    let collector = TestCollector::start();
    let server = exporting(&collector.url, "1").start();
    let mut client = server.client().await;
    client.model_infer(chunk(1, false, false)).await.unwrap_err();
    client.model_infer(step("nope", 1, String::new(), 1, true, true)).await.unwrap_err();
    assert_eq!(post(server.http, "/v1/models/nope:predict", &[], "{\"instances\": [1]}"), 404);
    let (_, spans) = collector.after(server);
    let text = |span: &&Traced| {
        let status = span.0.status.clone().unwrap();
        assert_eq!((status.code(), status.message), (SpanStatus::Error, span.of("error.type")));
        let codes = [span.of("rpc.grpc.status_code"), span.of("http.response.status_code")].concat();
        [span.0.name.clone(), span.of("sequor.api"), span.of("error.type"), codes]
    };
    let expected = [
        ["infer accumulator_int32", "kserve_grpc", "never_started", "3"],
        ["infer", "kserve_grpc", "not_served", "5"],
        ["infer", "tfs_http", "not_served", "404"],
    ];
    assert_eq!(roots(&spans).iter().map(text).collect::<Vec<_>>(), expected);
    assert!(spans.iter().all(|span| span.0.name != "run"), "nothing ran: {spans:?}");
}

// === whose trace it continues ===

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_callers_decision_wins_over_the_sample() {
    let collector = TestCollector::start();
    for (sample, wanted) in [("0", vec!["1", "4"]), ("1", vec!["1", "3", "4"])] {
        let server = exporting(&collector.url, sample).start();
        let mut client = server.client().await;
        client.model_infer(with_parent(chunk(1, true, true), "01")).await.unwrap();
        client.model_infer(with_parent(chunk(2, true, true), "00")).await.unwrap();
        client.model_infer(chunk(3, true, true)).await.unwrap();
        assert_eq!(infer(server.http, 4, &[("traceparent", &parent("01"))]), 200);
        assert_eq!(infer(server.http, 5, &[("traceparent", &parent("00"))]), 200);
        let (_, spans) = collector.after(server);
        let all = roots(&spans);
        assert_eq!(all.iter().map(|span| span.of("sequor.sequence.id")).collect::<Vec<_>>(), wanted, "{spans:?}");
        for span in all.iter().filter(|span| span.of("sequor.sequence.id") != "3") {
            assert_eq!([hex(&span.0.trace_id), hex(&span.0.parent_span_id)], [TRACE, PARENT]);
        }
        let http = all.iter().find(|span| span.of("sequor.api") == "kserve_http").unwrap();
        assert_eq!([http.of("http.request.method"), http.of("http.response.status_code")], ["POST", "200"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_message_of_a_stream_continues_the_streams_trace() {
    let collector = TestCollector::start();
    let server = exporting(&collector.url, "0").environment("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").start();
    let mut client = server.client().await;
    let named = |start, end| {
        let mut message = step("accumulator_fp32", 0, String::new(), 0, start, end);
        "FP32".clone_into(&mut message.inputs[0].datatype);
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
    let (_, spans) = collector.after(server);
    assert!(!format!("{spans:?}").contains("anna"), "a client's text is hashed");
    let all = roots(&spans);
    let of = |name: &str| all.iter().map(|span| span.of(name)).collect::<Vec<_>>();
    assert_eq!(of("sequor.sequence.step"), ["1", "2", "3"]);
    assert_eq!(of("rpc.method"), ["ModelStreamInfer"; 3]);
    assert!(all.iter().all(|span| hex(&span.0.trace_id) == TRACE && hex(&span.0.parent_span_id) == PARENT));
    let ids = of("sequor.sequence.id");
    assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 16), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_message_of_a_websocket_continues_the_trace_that_opened_it() {
    let collector = TestCollector::start();
    let server = exporting(&collector.url, "0").start();
    let mut opening = format!("ws://{}/v2/models/{MODEL}/stream", server.http).into_client_request().unwrap();
    opening.headers_mut().insert("traceparent", parent("01").parse().unwrap());
    let stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(opening, stream).await.unwrap();
    for (start, end) in [(true, false), (false, false), (false, true)] {
        let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] });
        let parameters = json!({ "sequence_id": 7, "sequence_start": start, "sequence_end": end });
        socket.send(Message::text(json!({ "parameters": parameters, "inputs": [input] }).to_string())).await.unwrap();
        let answer = socket.next().await.unwrap().unwrap();
        assert!(answer.to_text().unwrap().contains("outputs"), "{answer}");
    }
    drop(socket);
    let (_, spans) = collector.after(server);
    let all = roots(&spans);
    assert_eq!(all.iter().map(|span| span.of("sequor.sequence.step")).collect::<Vec<_>>(), ["1", "2", "3"]);
    for span in all {
        assert_eq!([hex(&span.0.trace_id), hex(&span.0.parent_span_id)], [TRACE, PARENT]);
        assert_eq!([span.of("sequor.api"), span.of("network.protocol.name")], ["kserve_http", "websocket"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_of_an_ensemble_has_one_span_with_the_time_of_all_its_steps() {
    let collector = TestCollector::start();
    let call = Call::serve("repository").arguments(["--otlp-endpoint", &collector.url, "--otlp-sample", "1"]);
    of_two(&call.folder.path().join("repository"));
    let server = call.start();
    let mut client = server.client().await;
    for (start, end) in [(true, false), (false, true)] {
        client.model_infer(step("both", 7, String::new(), 1, start, end)).await.unwrap();
    }
    let (_, spans) = collector.after(server);
    let all = roots(&spans);
    assert_eq!(all.iter().map(|span| span.of("sequor.sequence.step")).collect::<Vec<_>>(), ["1", "2"], "{spans:?}");
    assert_eq!(spans.len(), 6, "those of members are not shown: {spans:?}");
    for span in all {
        assert_eq!([span.0.name.as_str(), &span.of("sequor.model")], ["infer both", "both"]);
        let (queue, run) = (below(&spans, span, "queue"), below(&spans, span, "run"));
        let ((from, to), (queued, taken), (begun, done)) = (span.times(), queue.times(), run.times());
        assert!(from <= queued && taken == begun && begun < done && done <= to, "{spans:?}");
        let parts = ["state_in", "run", "state_out"].map(|part| run.of(&format!("sequor.{part}_us")).parse::<u64>());
        let micros: u64 = parts.into_iter().map(Result::unwrap).sum();
        assert!(micros > 0 && micros <= (done - begun).div_ceil(1000) + 3, "{micros} of {spans:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_sampler_without_parents_decides_for_each_request() {
    let collector = TestCollector::start();
    for (sampler, flags, traced) in
        [("always_on", "00", 1), ("always_off", "01", 0), ("parentbased_always_on", "00", 0)]
    {
        let call = Call::serve(models()).arguments(["--otlp-endpoint", &collector.url]);
        let server = call.environment("OTEL_TRACES_SAMPLER", sampler).start();
        let mut client = server.client().await;
        client.model_infer(with_parent(chunk(1, true, true), flags)).await.unwrap();
        let (_, spans) = collector.after(server);
        let all = roots(&spans);
        assert_eq!(all.len(), traced, "{sampler}");
        assert!(all.iter().all(|span| hex(&span.0.trace_id) == TRACE), "it stays in its trace");
    }
}

#[test]
fn tritons_flag_of_traces_names_the_collector() {
    let collector = TestCollector::start();
    let url = format!("--trace-config=opentelemetry,url={}/v1/traces", collector.url);
    let flags = ["--trace-config=mode=opentelemetry", &url, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1"];
    let server = Call::serve(models()).arguments(flags).start();
    assert_eq!(infer(server.http, 1, &[]), 200);
    let (ended, spans) = collector.after(server);
    assert_eq!(roots(&spans).len(), 1, "{spans:?} {}", ended.stderr);
    let refused = Call::serve(models()).arguments(["--trace-config=level=TIMESTAMPS"]).end();
    assert_eq!(refused.code, Some(3), "{refused:?}");
}

// === secrets and TLS ===

#[test]
fn headers_reach_the_collector_and_nothing_else() {
    let collector = TestCollector::start();
    let header = format!("authorization=Bearer%20{SECRET}");
    for protocol in PROTOCOLS {
        let call = exporting(&collector.url, "1").arguments(["--otlp-protocol", protocol]);
        let call = call.environment("OTEL_EXPORTER_OTLP_HEADERS", &header).environment("RUST_LOG", "trace");
        let server = call.start();
        assert_eq!(infer(server.http, 1, &[]), 200);
        let (headers, _) = collector.exports.recv_timeout(SOON).unwrap();
        assert_eq!(headers["authorization"], format!("Bearer {SECRET}"));
        collector.answer(400);
        assert_eq!(infer(server.http, 2, &[]), 200);
        until("an export is refused", || dropped(&server, "collector") > 0);
        collector.answer(200);
        let config = ask(server.admin.unwrap(), "GET", "/admin/config", "", b"").1;
        assert!(config.contains("otlp.endpoint") && !config.contains(SECRET), "{config}");
        let ended = server.stop();
        assert!(ended.stderr.contains("spans cannot be exported"), "{}", ended.stderr);
        assert!(!ended.stderr.contains(SECRET) && !ended.stdout.contains(SECRET), "{}", ended.stderr);
    }
    let shown = Call::sequor().arguments(["config", "show", "--otlp-endpoint", &collector.url]);
    let shown = shown.environment("OTEL_EXPORTER_OTLP_HEADERS", &header).end();
    assert!(shown.code == Some(0) && shown.stdout.contains(&collector.url), "{shown:?}");
    assert!(!shown.stdout.contains(SECRET) && !shown.stderr.contains(SECRET), "{shown:?}");
    let wrong = Call::sequor().arguments(["config", "show", "--otlp-endpoint", &format!("http://u:{SECRET}@c")]).end();
    assert!(wrong.code == Some(3) && !wrong.stderr.contains(SECRET), "{wrong:?}");
}

#[test]
fn a_collector_with_tls_must_have_a_certificate_of_the_authority() {
    let certificates = TestCertificates::new();
    let collector = TestCollector::with_tls(&certificates);
    for protocol in PROTOCOLS {
        let start = |authority: &str| {
            let call = exporting(&collector.url, "1").arguments(["--otlp-protocol", protocol]);
            call.environment("OTEL_EXPORTER_OTLP_CERTIFICATE", certificates.path(authority)).start()
        };
        let server = start("ca.pem");
        assert_eq!(infer(server.http, 1, &[]), 200);
        let (ended, spans) = collector.after(server);
        assert_eq!(roots(&spans).len(), 1, "{protocol}: {}", ended.stderr);
        // A certificate that did not issue the collector's.
        let server = start("client.pem");
        assert_eq!(infer(server.http, 1, &[]), 200);
        until("the export fails", || dropped(&server, "collector") == 3);
        assert_eq!(collector.after(server).1.len(), 0);
    }
    let call =
        exporting(&collector.url, "1").environment("OTEL_EXPORTER_OTLP_CERTIFICATE", certificates.path("client.key"));
    let ended = call.end();
    assert!(ended.code == Some(3) && ended.stderr.contains("client.key: holds no certificate"), "{ended:?}");
}

// === a collector that fails ===

/// Spans that can be sent later are kept for some seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failed_export_is_tried_again_and_a_refused_one_is_dropped() {
    for protocol in PROTOCOLS {
        let collector = TestCollector::start();
        let server = exporting(&collector.url, "1").arguments(["--otlp-protocol", protocol]).start();
        let mut client = server.client().await;
        collector.answer(503);
        client.model_infer(chunk(1, true, true)).await.unwrap();
        until("an attempt fails", || collector.failed() > 0);
        collector.answer(200);
        until("the spans arrive", || exported(&server) == 3);
        assert_eq!(dropped(&server, "collector"), 0);
        collector.answer(400);
        client.model_infer(chunk(2, true, true)).await.unwrap();
        until("a refused export is dropped", || dropped(&server, "collector") == 3);
        collector.answer(PARTIAL);
        client.model_infer(chunk(3, true, true)).await.unwrap();
        until("an export is taken in part", || exported(&server) == 6);
        let ended = server.stop();
        let lines = ["spans cannot be exported", "takes spans again", "rejected_spans=1"];
        assert!(lines.iter().all(|line| ended.stderr.contains(line)), "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("opentelemetry").count(), 1, "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_go_on_and_spans_are_dropped_while_the_collector_hangs() {
    hangs(None, 8192, 10_000).await;
    // 30 spans are those of 10 requests.
    hangs(Some("30"), 10, 100).await;
}

/// The server keeps so many requests for a collector that never answers, of more, and does not wait for it at its end.
async fn hangs(variable: Option<&str>, waiting: u64, many: u64) {
    let collector = TestCollector::start();
    collector.answer(HANGS);
    let call = exporting(&collector.url, "1").environment("OTEL_EXPORTER_OTLP_TIMEOUT", "600000");
    let server = match variable {
        Some(spans) => call.environment("OTEL_BSP_MAX_QUEUE_SIZE", spans),
        None => call,
    };
    let server = server.start();
    let mut client = server.client().await;
    client.model_infer(chunk(1, true, true)).await.unwrap();
    until("an export hangs", || collector.failed() > 0);
    assert_eq!(answered(&server, many).await, many);
    until("all are finished", || dropped(&server, "queue_full") == (many - waiting) * 3);
    assert_eq!(exported(&server), 0);
    server.process.terminate();
    let since = Instant::now();
    let ended = server.process.ended();
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    assert!(ended.code == Some(0) && ended.stderr.contains("did not take the last spans in time"), "{}", ended.stderr);
}

/// Sends this many sequences of one step over one stream. Returns the number of answers. An export takes so long that they would come too late if
/// they waited for it.
async fn answered(server: &Server, many: u64) -> u64 {
    let messages = (0..many).map(|_| chunk(1, true, true)).collect::<Vec<_>>();
    let mut client = server.client().await;
    let all = async {
        let mut answers = client.model_stream_infer(tokio_stream::iter(messages)).await.unwrap().into_inner();
        let mut answered = 0;
        while let Some(ModelStreamInferResponse { error_message, .. }) = answers.message().await.unwrap() {
            assert_eq!(error_message, "");
            answered += 1;
        }
        answered
    };
    tokio::time::timeout(2 * SOON, all).await.expect("requests wait for the collector")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_without_its_collector_serves_and_stops() {
    let nothing = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    for protocol in PROTOCOLS {
        let call = exporting(&format!("http://{nothing}"), "1").arguments(["--otlp-protocol", protocol]);
        // 100 exports of 3 s each, if a request could wait for room in the queue.
        let call = call.environment("OTEL_EXPORTER_OTLP_TIMEOUT", "3000").environment("OTEL_BSP_MAX_QUEUE_SIZE", "30");
        let server = call.start();
        assert_eq!(answered(&server, 1000).await, 1000);
        let all = || dropped(&server, "collector") + dropped(&server, "queue_full");
        until("the spans are dropped", || all() == 1000 * 3);
        assert!(dropped(&server, "collector") > 0 && dropped(&server, "queue_full") > 0);
        let ended = server.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("spans cannot be exported").count(), 1, "{}", ended.stderr);
    }
}

/// Neither a client nor the sample traces requests without an endpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_collector_nothing_is_traced() {
    let server = Call::serve(models()).arguments(["--otlp-sample", "1"]).start();
    let mut client = server.client().await;
    client.model_infer(with_parent(chunk(1, true, true), "01")).await.unwrap();
    assert_eq!((exported(&server), metric(&server, "sequor_spans_dropped_total", &[])), (0, 0.0));
    assert!(!server.stop().stderr.contains("spans"));
}
