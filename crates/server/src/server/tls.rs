//! TLS of the listeners: a certificate, its key, and optionally the CA of client certificates. Changed files are read again, so that a
//! certificate is renewed without a restart.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, RootCertStore, ServerConfig};
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
        log_warnings(&files);
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
                    log_warnings(&self.files);
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
    // Without a path, the fault of the setting was reported before.
    if key.as_os_str().is_empty() {
        return chain.into_iter().collect();
    }
    let secret = private_key(key).err().map(|error| ("tls.key", error));
    let authority = client_ca.as_ref().and_then(|path| verifier(path).err()).map(|error| ("tls.client_ca", error));
    let faults: Vec<_> = [chain, secret, authority].into_iter().flatten().collect();
    let together = || config(files).err().map(|error| ("tls.key", error));
    if faults.is_empty() { together().into_iter().collect() } else { faults }
}

fn log_warnings(files: &TlsFiles) {
    for warning in warnings(files) {
        tracing::warn!("{warning}");
    }
}

/// The reasons for clients to refuse the server's certificate, which a listener can present.
pub(super) fn warnings(files: &TlsFiles) -> Vec<String> {
    let chain = certificates(&files.cert).unwrap_or_default();
    let of_chain = chain.iter().enumerate().flat_map(|(nth, certificate)| {
        let which = if nth == 0 { String::new() } else { format!(" (certificate {} of the file)", nth + 1) };
        doubts(certificate, UnixTime::now())
            .into_iter()
            .filter(move |doubt| nth == 0 || *doubt != Doubt::Authority)
            .map(move |doubt| format!("{}{which} {doubt}", files.cert.display()))
    });
    of_chain.collect()
}

/// Why clients refuse a certificate that belongs to its key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Doubt {
    Expired(Duration),
    NotYet(Duration),
    Authority,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Expired(ago) => write!(f, "expired {} ago: clients refuse it. Renew it", days(*ago)),
            Doubt::NotYet(left) => write!(
                f,
                "is valid only in {}: clients refuse it until then. Check the clock of the machine that issued it, and of this one",
                days(*left)
            ),
            Doubt::Authority => f.write_str(
                "is an authority's own certificate (CA:TRUE), as `openssl req -x509` makes it: clients built on rustls refuse it, \
                 Sequor's commands among them, even if they trust it. Use a certificate with CA:FALSE that this authority signs: \
                 docs/reference/security.md",
            ),
        }
    }
}

/// A span of time in days and hours, or in minutes if it is shorter.
fn days(span: Duration) -> String {
    let minutes = span.as_secs() / 60;
    match (minutes / (24 * 60), minutes / 60) {
        (0, 0) => format!("{minutes}m"),
        (0, hours) => format!("{hours}h"),
        (days, hours) => format!("{days}d {}h", hours % 24),
    }
}

/// Checks a certificate as a client does that trusts its issuer.
fn doubts(certificate: &CertificateDer<'static>, now: UnixTime) -> Vec<Doubt> {
    let mut roots = RootCertStore::empty();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let added = roots.add(certificate.clone()).is_ok();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let (true, Ok(verifier), Ok(name)) = (added, verifier, ServerName::try_from("localhost")) else {
        return Vec::new();
    };
    let check = |at: UnixTime| match verifier.verify_server_cert(certificate, &[], &name, &[], at) {
        Err(rustls::Error::InvalidCertificate(why)) => Some(why),
        _ => None,
    };
    let since =
        |later: UnixTime, earlier: UnixTime| Duration::from_secs(later.as_secs().saturating_sub(earlier.as_secs()));
    // Of several doubts, the first is that of time.
    let (of_time, valid_at) = match check(now) {
        Some(CertificateError::ExpiredContext { time, not_after }) => {
            (Some(Doubt::Expired(since(time, not_after))), not_after)
        }
        Some(CertificateError::NotValidYetContext { time, not_before }) => {
            (Some(Doubt::NotYet(since(not_before, time))), not_before)
        }
        _ => (None, now),
    };
    let is_authority = check(valid_at).is_some_and(|why| format!("{why:?}").contains("CaUsedAsEndEntity"));
    of_time.into_iter().chain(is_authority.then_some(Doubt::Authority)).collect()
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
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.0.lock().files).finish_non_exhaustive()
    }
}
