//! TLS of a command: the certificates that it trusts, and the one that it presents.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

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

/// The reason why a TLS connection failed.
pub(super) fn refusal(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        // A certificate made with the usual commands leads to this refusal.
        Some(rustls::Error::InvalidCertificate(why)) if format!("{why:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is refused: it is a CA's own certificate, as `openssl req -x509` makes it. Make a server certificate \
             (CA:FALSE) that the CA of --tls-ca signs: docs/reference/security.md"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(why)) => format!("its certificate is refused: {why}"),
        _ => format!("no TLS: {error}"),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |e: rustls::pki_types::pem::Error| format!("{}: {e}", path.display());
    let all: Vec<_> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() { Err(format!("{} holds no certificate", path.display())) } else { Ok(all) }
}
