//! TLS of a command: the certificates that it trusts, and the one that it presents.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, ClientConfig, RootCertStore};

/// Trusts certificates of this CA, and presents a certificate if one is given.
pub(super) fn config(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|e| format!("{}: {e}", ca.display()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| e.to_string())?.with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| format!("{}: {e}", key.display()))?;
            let unfit = |e| format!("{} and {} do not belong together: {e}", cert.display(), key.display());
            builder.with_client_auth_cert(certificates(cert)?, secret).map_err(unfit)?
        }
    };
    Ok(Arc::new(config))
}

/// The reason why a TLS handshake failed. `presents`: whether this command has a certificate of its own.
pub(super) fn refusal(error: &io::Error, presents: bool) -> String {
    match of_rustls(error) {
        // A certificate made with the usual commands leads to this refusal.
        Some(rustls::Error::InvalidCertificate(why)) if format!("{why:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is refused: it is a CA's own certificate, as `openssl req -x509` makes it. Make a server certificate \
             (CA:FALSE) that the CA of --tls-ca signs: docs/reference/security.md"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(why)) => format!("its certificate is refused: {why}"),
        Some(rustls::Error::AlertReceived(alert)) => of_alert(*alert, presents),
        Some(rustls::Error::InvalidMessage(_)) => {
            "what answers there does not speak TLS. Leave --tls-ca and https:// out if the server has no tls.cert".to_owned()
        }
        _ => format!("no TLS: {error}"),
    }
}

/// The reason why a connection ended after its handshake, if that may be due to certificates. A client of TLS 1.3 learns that its certificate
/// is refused only then. Its alert may be lost, because the server closes the connection while the client still sends.
pub(super) fn refusal_after_handshake(error: &(dyn Error + 'static), presents: bool) -> Option<String> {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let io = causes.filter_map(|error| error.downcast_ref::<io::Error>()).last();
    match (io.and_then(of_rustls), presents) {
        (Some(rustls::Error::AlertReceived(alert)), _) => Some(of_alert(*alert, presents)),
        (_, false) => {
            Some(format!("{error}. If the server wants a certificate of its clients (tls.client_ca), {SHOW_ONE}"))
        }
        (_, true) => None,
    }
}

const SHOW_ONE: &str = "add --tls-cert FILE and --tls-key FILE";

fn of_alert(alert: AlertDescription, presents: bool) -> String {
    match presents {
        false if alert == AlertDescription::CertificateRequired => {
            format!("it wants a certificate of its clients (tls.client_ca): {SHOW_ONE}")
        }
        true => format!(
            "it refuses the certificate of --tls-cert ({alert:?}). Its authority must be the one of the server's tls.client_ca"
        ),
        false => format!("it has ended the TLS connection ({alert:?})"),
    }
}

fn of_rustls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |e: rustls::pki_types::pem::Error| format!("{}: {e}", path.display());
    let all: Vec<_> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() { Err(format!("{} holds no certificate", path.display())) } else { Ok(all) }
}
