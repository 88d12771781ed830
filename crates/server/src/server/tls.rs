//! TLS of the listeners: a certificate, its key, and optionally the CA of client certificates. Changed files are read again, so that a
//! certificate is renewed without a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::changed::Watched;
use super::handshakes::FailedHandshakes;
use crate::config::server::file::TlsSection;
use crate::telemetry::{Metrics, TlsListener};

/// The TLS of a server. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<Mutex<TlsState>>);

struct TlsState {
    files: TlsFiles,
    watched: Watched,
    config: Arc<ServerConfig>,
}

/// The TLS of one listener, and its failed handshakes.
#[derive(Debug, Clone)]
pub(super) struct ListenerTls {
    pub(super) tls: Tls,
    pub(super) failed: FailedHandshakes,
}

impl ListenerTls {
    pub(super) fn new(tls: &Tls, listener: TlsListener, metrics: &Metrics) -> ListenerTls {
        ListenerTls { tls: tls.clone(), failed: FailedHandshakes::new(listener, metrics.clone()) }
    }
}

/// The paths of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// If set, clients must present a certificate of this CA.
    pub client_ca: Option<PathBuf>,
}

impl From<&TlsSection> for TlsFiles {
    fn from(settings: &TlsSection) -> TlsFiles {
        let TlsSection { cert, key, client_ca } = settings.clone();
        TlsFiles { cert, key, client_ca: (!client_ca.as_os_str().is_empty()).then_some(client_ca) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{} cannot be read as PEM: {cause}", .path.display())]
    Pem { path: PathBuf, cause: rustls::pki_types::pem::Error },
    #[error("{} holds no certificate", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("{} and {} do not make a server's certificate: {cause}", .cert.display(), .key.display())]
    Unfit { cert: PathBuf, key: PathBuf, cause: rustls::Error },
    #[error("{} is no authority's certificate: {cause}", .path.display())]
    Authority { path: PathBuf, cause: String },
    #[error("TLS is not to be had: {0}")]
    Provider(rustls::Error),
}

impl Tls {
    pub fn open(files: TlsFiles) -> Result<Tls, TlsError> {
        let paths = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()];
        let watched = Watched::new(paths.into_iter().flatten().cloned().collect());
        let config = Arc::new(config(&files)?);
        Ok(Tls(Arc::new(Mutex::new(TlsState { files, watched, config }))))
    }

    /// Whether clients must present a certificate.
    pub fn asks_clients(&self) -> bool {
        self.0.lock().files.client_ca.is_some()
    }

    /// Performs the handshake of a new connection, with this timeout.
    pub(super) async fn accept<S>(&self, stream: S, within: Duration) -> std::io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.0.lock().current();
        tokio::time::timeout(within, TlsAcceptor::from(config).accept(stream)).await?
    }
}

/// The name of a client with a certificate: the first bytes of the certificate's SHA-256.
pub(super) fn client_name<S>(stream: &TlsStream<S>) -> Option<String> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    let digest = Sha256::digest(certificate);
    let head: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    Some(format!("certificate:{head}"))
}

impl TlsState {
    fn current(&mut self) -> Arc<ServerConfig> {
        if self.watched.changed() {
            match config(&self.files) {
                Ok(config) => {
                    tracing::info!(cert = %self.files.cert.display(), "certificates were read again");
                    self.config = Arc::new(config);
                }
                // The new certificate may be written before its key. Once the key is written too, the next connection finds both.
                Err(error) => tracing::error!(%error, "certificates were not read again; the old ones hold"),
            }
        }
        Arc::clone(&self.config)
    }
}

/// Reads all files as a start does. Returns every fault, with the setting that names the file.
pub(super) fn faults(files: &TlsFiles) -> Vec<(&'static str, TlsError)> {
    let TlsFiles { cert, key, client_ca } = files;
    let chain = certificates(cert).err().map(|error| ("tls.cert", error));
    let secret = private_key(key).err().map(|error| ("tls.key", error));
    let authority = client_ca.as_ref().and_then(|path| verifier(path).err()).map(|error| ("tls.client_ca", error));
    let faults: Vec<_> = [chain, secret, authority].into_iter().flatten().collect();
    let together = || config(files).err().map(|error| ("tls.key", error));
    if faults.is_empty() { together().into_iter().collect() } else { faults }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|cause| TlsError::Pem { path: path.to_owned(), cause })
}

fn config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let TlsFiles { cert, key, .. } = files;
    let chain = certificates(cert)?;
    let secret = private_key(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(TlsError::Provider)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(verifier(path)?),
    };
    let unfit = |cause| TlsError::Unfit { cert: cert.clone(), key: key.clone(), cause };
    let mut config = builder.with_single_cert(chain, secret).map_err(unfit)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn verifier(path: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unfit = |cause: String| TlsError::Authority { path: path.to_owned(), cause };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|e| unfit(e.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(|e| unfit(e.to_string()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |cause| TlsError::Pem { path: path.to_owned(), cause };
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(pem)?.collect();
    let all = all.map_err(pem)?;
    if all.is_empty() { Err(TlsError::NoCertificate { path: path.to_owned() }) } else { Ok(all) }
}

/// Keys must not be logged.
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.0.lock().files).finish_non_exhaustive()
    }
}
