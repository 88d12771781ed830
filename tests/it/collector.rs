//! A collector of OpenTelemetry's traces in this process. It serves OpenTelemetry's own messages and service, over HTTP and over gRPC at one
//! port, with or without TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::certificates::TestCertificates;
use crate::server::{Ended, Server};

/// An answer over HTTP that stands for a success without one of the spans.
pub(crate) const PARTIAL: u16 = 299;
/// A status that stands for no answer at all.
pub(crate) const HANGS: u16 = 999;

/// A collector on a free port. It serves until the test ends.
pub(crate) struct TestCollector {
    pub(crate) url: String,
    pub(crate) exports: Receiver<(HeaderMap, ExportTraceServiceRequest)>,
    answers: Answers,
    /// `None` only while it is dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

/// How it answers.
#[derive(Clone)]
struct Answers {
    to: SyncSender<(HeaderMap, ExportTraceServiceRequest)>,
    status: Arc<AtomicU16>,
    /// Exports that were not taken.
    failed: Arc<AtomicU64>,
}

impl Answers {
    /// Takes an export, or fails with this status.
    async fn take(&self, headers: HeaderMap, export: ExportTraceServiceRequest) -> Result<bool, StatusCode> {
        match self.status.load(Relaxed) {
            200 => self.to.send((headers, export)).unwrap(),
            PARTIAL => return Ok(true),
            status => {
                self.failed.fetch_add(1, Relaxed);
                match StatusCode::from_u16(status) {
                    Ok(status) if status != HANGS => return Err(status),
                    _ => std::future::pending().await,
                }
            }
        }
        Ok(false)
    }
}

fn response(is_partial: bool) -> ExportTraceServiceResponse {
    let partial = ExportTracePartialSuccess { rejected_spans: 1, error_message: "too old".to_owned() };
    ExportTraceServiceResponse { partial_success: is_partial.then_some(partial) }
}

async fn take(State(answers): State<Answers>, headers: HeaderMap, body: Bytes) -> (StatusCode, Vec<u8>) {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let export = ExportTraceServiceRequest::decode(body).unwrap();
    match answers.take(headers, export).await {
        Ok(is_partial) => (StatusCode::OK, response(is_partial).encode_to_vec()),
        Err(status) => (status, Vec::new()),
    }
}

#[tonic::async_trait]
impl TraceService for Answers {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let (metadata, _, export) = request.into_parts();
        let taken = self.take(metadata.into_headers(), export).await;
        taken.map(|is_partial| tonic::Response::new(response(is_partial))).map_err(|status| {
            if status == 503 { tonic::Status::unavailable("later") } else { tonic::Status::invalid_argument("no") }
        })
    }
}

async fn serve<S>(stream: S, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}

fn acceptor(certificates: &TestCertificates) -> TlsAcceptor {
    let issued = CertificateDer::pem_file_iter(certificates.path("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificates.path("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = issued.map(Result::unwrap).collect();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

impl TestCollector {
    pub(crate) fn start() -> TestCollector {
        TestCollector::started(None)
    }

    /// Serves with a certificate of these certificates.
    pub(crate) fn with_tls(certificates: &TestCertificates) -> TestCollector {
        TestCollector::started(Some(acceptor(certificates)))
    }

    fn started(tls: Option<TlsAcceptor>) -> TestCollector {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let at: SocketAddr = listener.local_addr().unwrap();
        let url = format!("{}://localhost:{}", if tls.is_some() { "https" } else { "http" }, at.port());
        let (to, exports) = sync_channel(1024);
        let answers = Answers { to, status: Arc::new(200.into()), failed: Arc::default() };
        let grpc = tonic::service::Routes::new(TraceServiceServer::new(answers.clone())).into_axum_router();
        let router = Router::new().route("/v1/traces", post(take)).with_state(answers.clone()).merge(grpc);
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (router, tls) = (router.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, router).await,
                        // A client may refuse the certificate.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, router).await;
                            }
                        }
                    }
                });
            }
        });
        TestCollector { url, exports, answers, runtime: Some(runtime) }
    }

    /// Sets the status of its next answers.
    pub(crate) fn answer(&self, status: u16) {
        self.answers.status.store(status, Relaxed);
    }

    /// Number of exports that it did not take.
    pub(crate) fn failed(&self) -> u64 {
        self.answers.failed.load(Relaxed)
    }

    /// The spans that have arrived.
    pub(crate) fn spans(&self) -> Vec<Traced> {
        self.exports.try_iter().flat_map(|(_, export)| traced(export)).collect()
    }

    /// Stops the server, which flushes. Returns its output and the spans that have arrived since the last call.
    pub(crate) fn after(&self, server: Server) -> (Ended, Vec<Traced>) {
        let ended = server.stop();
        (ended, self.spans())
    }
}

impl Drop for TestCollector {
    fn drop(&mut self) {
        // A test may be a task, where a runtime may not wait for its threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) fn traced(export: ExportTraceServiceRequest) -> Vec<Traced> {
    let of = |spans: ResourceSpans| spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
    export.resource_spans.into_iter().flat_map(of).map(Traced).collect()
}

/// The value of an attribute, as text.
pub(crate) fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == name)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(truth) => truth.to_string(),
        other => panic!("{other:?}"),
    })
}

pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A span that has arrived.
#[derive(Debug)]
pub(crate) struct Traced(pub(crate) Span);

impl Traced {
    /// The value of an attribute; empty if it has none.
    pub(crate) fn of(&self, name: &str) -> String {
        text(&self.0.attributes, name).unwrap_or_default()
    }

    pub(crate) fn times(&self) -> (u64, u64) {
        (self.0.start_time_unix_nano, self.0.end_time_unix_nano)
    }
}

/// The spans of requests, in the order of their begin.
pub(crate) fn roots(spans: &[Traced]) -> Vec<&Traced> {
    let mut roots: Vec<&Traced> = spans.iter().filter(|span| span.0.kind() == SpanKind::Server).collect();
    roots.sort_by_key(|span| span.times());
    roots
}

/// The span of this name below another one.
pub(crate) fn below<'s>(spans: &'s [Traced], parent: &Traced, name: &str) -> &'s Traced {
    let is_it = |span: &&Traced| span.0.parent_span_id == parent.0.span_id && span.0.name == name;
    spans.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {spans:?}"))
}
