//! Builds the OpenTelemetry library's exporter from the settings: over HTTP with protobuf bodies, or over gRPC.
//!
//! The exporter connects at the first export and reconnects after a failure. It retries a failed export until the export's timeout. The library
//! reads the headers of exports from the environment itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::KeyValue;
use opentelemetry_http::HttpClient;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::config::server::OtlpSettings;
use crate::config::server::file::OtlpProtocol;

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error("{path}: {why}", path = .path.display())]
    Authority { path: PathBuf, why: String },
    #[error("the certificates of this machine's authorities cannot be used ({0}); set OTEL_EXPORTER_OTLP_CERTIFICATE")]
    NoAuthorities(io::Error),
    #[error("TLS is not to be had: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// Prepares the exporter. Call it in a runtime.
pub(super) fn exporter(settings: &OtlpSettings) -> Result<SpanExporter, CollectorError> {
    let mut exporter = match settings.protocol {
        OtlpProtocol::HttpProtobuf => over_http(settings)?,
        OtlpProtocol::Grpc => over_grpc(settings)?,
    };
    let attributes = settings.resource.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    exporter.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
    Ok(exporter)
}

/// There are enough attempts for a collector that restarts. The timeout of an export may end them earlier.
fn attempts() -> RetryPolicy {
    let policy = RetryPolicy::recommended().with_max_retries(6);
    policy.with_initial_delay(Duration::from_millis(250)).with_max_delay(Duration::from_secs(4))
}

fn over_http(settings: &OtlpSettings) -> Result<SpanExporter, CollectorError> {
    let client: Arc<dyn HttpClient> = match settings.is_tls {
        true => Arc::new(HyperClient::new(connector(settings.authority.as_deref())?, settings.timeout, None)),
        false => Arc::new(HyperClient::with_default_connector(settings.timeout, None)),
    };
    let builder = SpanExporter::builder().with_http().with_shared_http_client(client).with_retry_policy(attempts());
    let builder = builder.with_protocol(Protocol::HttpBinary).with_endpoint(&settings.endpoint);
    Ok(builder.with_timeout(settings.timeout).build()?)
}

fn over_grpc(settings: &OtlpSettings) -> Result<SpanExporter, CollectorError> {
    let builder = SpanExporter::builder().with_tonic().with_retry_policy(attempts());
    let builder = builder.with_endpoint(&settings.endpoint).with_timeout(settings.timeout);
    let builder = match (settings.is_tls, settings.authority.as_deref()) {
        (false, _) => builder,
        (true, None) => builder.with_tls_config(ClientTlsConfig::new().with_native_roots()),
        (true, Some(path)) => {
            roots(path)?;
            let pem = fs_err::read(path).map_err(|e| unusable(path, &e))?;
            builder.with_tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
        }
    };
    Ok(builder.build()?)
}

/// TLS for HTTP that trusts this authority, or those of the operating system.
fn connector(authority: Option<&Path>) -> Result<HttpsConnector<HttpConnector>, CollectorError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match authority {
        Some(path) => builder.with_root_certificates(roots(path)?),
        None => builder.with_native_roots().map_err(CollectorError::NoAuthorities)?,
    };
    let tls = builder.with_no_client_auth();
    Ok(HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build())
}

fn roots(path: &Path) -> Result<RootCertStore, CollectorError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| unusable(path, &e))? {
        roots.add(certificate.map_err(|e| unusable(path, &e))?).map_err(|e| unusable(path, &e))?;
    }
    if roots.is_empty() {
        return Err(unusable(path, &"holds no certificate"));
    }
    Ok(roots)
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> CollectorError {
    CollectorError::Authority { path: path.to_owned(), why: why.to_string() }
}
