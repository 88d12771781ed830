//! The connection to a collector, over HTTP with protobuf bodies or over gRPC. It is kept between exports, and made again when it is lost.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr as _;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sequor_proto::opentelemetry::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use sequor_proto::opentelemetry_service::trace_service_client::TraceServiceClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use crate::config::server::OtlpSettings;
use crate::config::server::file::OtlpProtocol;
use crate::config::server::otlp::{CollectorUrl, OtlpHeaders};

/// Maximum bytes of a collector's answer.
const ANSWER: usize = 64 << 10;
/// Where systems keep the authorities that they trust.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
const AGENT: &str = concat!("sequor/", env!("CARGO_PKG_VERSION"));

/// A collector that takes spans.
pub(super) struct Collector {
    client: CollectorClient,
    headers: Vec<(HeaderName, HeaderValue)>,
}

enum CollectorClient {
    Http { target: Target, sender: Option<SendRequest<Full<Bytes>>> },
    Grpc(TraceServiceClient<Channel>),
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// The same export may succeed later.
    #[error("{0}")]
    Away(String),
    /// The collector will not take it.
    #[error("{0}")]
    Refused(String),
}

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error("{path}: {why}", path = .path.display())]
    Authority { path: PathBuf, why: String },
    #[error("no certificates of authorities are on this machine; set OTEL_EXPORTER_OTLP_CERTIFICATE")]
    NoAuthorities,
    #[error("OTEL_EXPORTER_OTLP_HEADERS: {name:?} is no name or has no value of a header")]
    Header { name: String },
    #[error("{url}: {why}")]
    Url { url: String, why: String },
}

impl Collector {
    /// Prepares a connection. It is made with the first export.
    pub(super) fn new(settings: &OtlpSettings) -> Result<Collector, CollectorError> {
        let target = Target::new(settings)?;
        let client = match settings.protocol {
            OtlpProtocol::HttpProtobuf => CollectorClient::Http { target, sender: None },
            OtlpProtocol::Grpc => CollectorClient::Grpc(TraceServiceClient::new(channel(&target)?)),
        };
        Ok(Collector { client, headers: headers(&settings.headers)? })
    }

    /// Sends an export. Returns how many of its spans the collector rejected.
    pub(super) async fn send(&mut self, export: &ExportTraceServiceRequest) -> Result<u64, ExportError> {
        let answer = match &mut self.client {
            CollectorClient::Http { target, sender } => post(target, sender, &self.headers, export).await?,
            CollectorClient::Grpc(client) => call(client, &self.headers, export.clone()).await?,
        };
        let rejected = answer.partial_success.map_or(0, |partial| partial.rejected_spans);
        Ok(u64::try_from(rejected).unwrap_or(0))
    }
}

// === over HTTP ===

async fn post(
    target: &Target,
    kept: &mut Option<SendRequest<Full<Bytes>>>,
    headers: &[(HeaderName, HeaderValue)],
    export: &ExportTraceServiceRequest,
) -> Result<ExportTraceServiceResponse, ExportError> {
    let away = |e: &dyn std::fmt::Display| ExportError::Away(format!("{}: {e}", target.url.authority()));
    let mut sender = match kept.take().filter(|sender| !sender.is_closed()) {
        Some(sender) => sender,
        None => {
            let stream = target.connect().await.map_err(|e| away(&e))?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| away(&e))?;
            tokio::spawn(connection);
            sender
        }
    };
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(target.url.path.as_str())
        .header(HOST, target.url.authority())
        .header(USER_AGENT, AGENT)
        .header(CONTENT_TYPE, "application/x-protobuf");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(Bytes::from(export.encode_to_vec())));
    let request = request.map_err(|e| ExportError::Refused(format!("{}: {e}", target.url.path)))?;
    let answer = sender.send_request(request).await.map_err(|e| away(&e))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER).collect().await.map_err(|e| away(&e))?.to_bytes();
    *kept = Some(sender);
    match status {
        // An answer that is no message still says that the spans have arrived.
        StatusCode::OK => Ok(ExportTraceServiceResponse::decode(body).unwrap_or_default()),
        status if status.is_success() => Ok(ExportTraceServiceResponse::default()),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(away(&status)),
        status => Err(ExportError::Refused(format!("{}{}: {status}", target.url.authority(), target.url.path))),
    }
}

// === over gRPC ===

async fn call(
    client: &mut TraceServiceClient<Channel>,
    headers: &[(HeaderName, HeaderValue)],
    export: ExportTraceServiceRequest,
) -> Result<ExportTraceServiceResponse, ExportError> {
    let mut request = tonic::Request::new(export);
    set_metadata(request.metadata_mut(), headers);
    client.export(request).await.map(tonic::Response::into_inner).map_err(|status| {
        let what = format!("{}: {}", status.code(), status.message());
        match status.code() {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted => ExportError::Away(what),
            _ => ExportError::Refused(what),
        }
    })
}

fn set_metadata(metadata: &mut MetadataMap, headers: &[(HeaderName, HeaderValue)]) {
    for (name, value) in headers {
        let key = MetadataKey::from_bytes(name.as_str().as_bytes());
        if let (Ok(key), Ok(value)) = (key, MetadataValue::try_from(value.as_bytes())) {
            metadata.insert(key, value);
        }
    }
}

fn channel(target: &Target) -> Result<Channel, CollectorError> {
    let authority = target.url.authority();
    let wrong = |e: &dyn std::fmt::Display| CollectorError::Url { url: authority.clone(), why: e.to_string() };
    let scheme = if target.tls.is_some() { "https" } else { "http" };
    let origin = Uri::from_str(&format!("{scheme}://{authority}")).map_err(|e| wrong(&e))?;
    // The connector makes TLS itself, so the endpoint is one without.
    let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(|e| wrong(&e))?;
    let endpoint = endpoint.origin(origin).user_agent(AGENT).map_err(|e| wrong(&e))?;
    let target = target.clone();
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let target = target.clone();
        async move { target.connect().await.map(TokioIo::new) }
    })))
}

// === the connection ===

/// The address of a collector, and how to reach it.
#[derive(Clone)]
struct Target {
    url: CollectorUrl,
    tls: Option<Arc<ClientConfig>>,
}

/// A connection with or without TLS.
trait CollectorStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> CollectorStream for S {}

impl Target {
    fn new(settings: &OtlpSettings) -> Result<Target, CollectorError> {
        let protocol: &[u8] = match settings.protocol {
            OtlpProtocol::HttpProtobuf => b"http/1.1",
            OtlpProtocol::Grpc => b"h2",
        };
        let url = settings.url.clone();
        let tls = url.is_tls.then(|| tls(settings.authority.as_deref(), protocol)).transpose()?;
        Ok(Target { url, tls })
    }

    async fn connect(&self) -> io::Result<Pin<Box<dyn CollectorStream>>> {
        let stream = TcpStream::connect((self.url.host.as_str(), self.url.port)).await?;
        let Some(tls) = &self.tls else { return Ok(Box::pin(stream)) };
        let name = ServerName::try_from(self.url.host.clone()).map_err(io::Error::other)?;
        Ok(Box::pin(TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?))
    }
}

/// TLS that trusts this authority, or those of the system.
fn tls(authority: Option<&Path>, protocol: &[u8]) -> Result<Arc<ClientConfig>, CollectorError> {
    let of_system = || AUTHORITIES.map(Path::new).into_iter().find(|path| path.exists());
    let path = authority.or_else(of_system).ok_or(CollectorError::NoAuthorities)?;
    let wrong = |why: String| CollectorError::Authority { path: path.to_owned(), why };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))? {
        let added = certificate.map_err(|e| e.to_string()).and_then(|cert| roots.add(cert).map_err(|e| e.to_string()));
        // The system's file may hold authorities that the library does not read. The operator's own must be read.
        if authority.is_some() {
            added.map_err(wrong)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| wrong(e.to_string()))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}

fn headers(given: &OtlpHeaders) -> Result<Vec<(HeaderName, HeaderValue)>, CollectorError> {
    let header = |(name, value): &(String, String)| {
        let wrong = || CollectorError::Header { name: name.clone() };
        let mut header = HeaderValue::from_str(value).map_err(|_| wrong())?;
        header.set_sensitive(true);
        Ok((HeaderName::from_str(name).map_err(|_| wrong())?, header))
    };
    given.0.iter().map(header).collect()
}
