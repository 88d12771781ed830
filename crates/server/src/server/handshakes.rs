//! Counts failed TLS handshakes of a listener, and logs them with their reasons, at a limited rate.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustls::CertificateError;

use crate::telemetry::{Metrics, QuietLine, TlsFailure, TlsListener};

/// The failed handshakes of one listener. Clones share the log lines: one for each reason.
#[derive(Debug, Clone)]
pub(super) struct FailedHandshakes {
    listener: TlsListener,
    metrics: Metrics,
    lines: Arc<Mutex<[QuietLine; TlsFailure::ALL.len()]>>,
}

impl FailedHandshakes {
    pub(super) fn new(listener: TlsListener, metrics: Metrics) -> FailedHandshakes {
        FailedHandshakes { listener, metrics, lines: Arc::default() }
    }

    /// Counts a failed handshake, and writes a line if the minimum time since the last one with this reason has passed.
    pub(super) fn report(&self, peer: SocketAddr, error: &Error) {
        let (listener, reason) = (self.listener.name(), reason(error));
        self.metrics.tls_failed(self.listener, reason);
        // A load balancer that only checks the port does this all the time.
        if reason == TlsFailure::Closed {
            tracing::debug!(%peer, listener, %error, "the client has left during the TLS handshake");
            return;
        }
        let count = self.lines.lock().get_mut(reason as usize).and_then(|line| line.count(1, Instant::now()));
        if let Some(count) = count {
            let (why, reason) = (meaning(reason), reason.name());
            tracing::warn!(%peer, listener, reason, count, %error, "a TLS handshake failed: {why}");
        }
    }
}

fn reason(error: &Error) -> TlsFailure {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (of_tls, error.kind()) {
        (Some(rustls::Error::NoCertificatesPresented), _) => TlsFailure::NoCertificate,
        (Some(rustls::Error::InvalidCertificate(fault)), _) => of_certificate(fault),
        (Some(rustls::Error::AlertReceived(_)), _) => TlsFailure::RefusedByClient,
        (Some(rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol), _) => {
            TlsFailure::Incompatible
        }
        (Some(rustls::Error::InvalidMessage(_) | rustls::Error::PeerSentOversizedRecord), _) => TlsFailure::NotTls,
        (Some(_), _) => TlsFailure::Other,
        (None, ErrorKind::TimedOut) => TlsFailure::Timeout,
        (None, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => TlsFailure::Closed,
        (None, _) => TlsFailure::Other,
    }
}

fn of_certificate(fault: &CertificateError) -> TlsFailure {
    match fault {
        // A bad signature: an authority of the same name has another key, for example because it was made anew.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsFailure::UnknownAuthority,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFailure::Expired,
        _ => TlsFailure::BadCertificate,
    }
}

/// The reason as a sentence for operators.
fn meaning(reason: TlsFailure) -> &'static str {
    match reason {
        TlsFailure::NoCertificate => "the client presented no certificate, and tls.client_ca requires one",
        TlsFailure::UnknownAuthority => "no authority of tls.client_ca has signed the client's certificate",
        TlsFailure::Expired => "the client's certificate has expired",
        TlsFailure::BadCertificate => "the client's certificate is not valid",
        TlsFailure::RefusedByClient => {
            "the client ended it; usually it does not trust the authority of tls.cert, or called another name"
        }
        TlsFailure::Incompatible => "client and server have no version or cipher of TLS in common",
        TlsFailure::NotTls => "the client did not speak TLS, and this listener takes nothing else",
        TlsFailure::Timeout => "it took longer than connections.first_byte",
        TlsFailure::Closed => "the client has left",
        TlsFailure::Other => "see the error",
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, InvalidMessage, PeerIncompatible};

    use super::*;

    #[test]
    fn every_failure_has_a_reason_in_plain_words() {
        let of_tls = |error: rustls::Error| reason(&Error::new(ErrorKind::InvalidData, error));
        let certificate = |fault: CertificateError| of_tls(rustls::Error::InvalidCertificate(fault));
        assert_eq!(of_tls(rustls::Error::NoCertificatesPresented), TlsFailure::NoCertificate);
        assert_eq!(certificate(CertificateError::UnknownIssuer), TlsFailure::UnknownAuthority);
        assert_eq!(certificate(CertificateError::BadSignature), TlsFailure::UnknownAuthority);
        assert_eq!(certificate(CertificateError::Expired), TlsFailure::Expired);
        assert_eq!(certificate(CertificateError::NotValidYet), TlsFailure::BadCertificate);
        let alert = rustls::Error::AlertReceived(AlertDescription::UnknownCA);
        assert_eq!(of_tls(alert), TlsFailure::RefusedByClient);
        let incompatible = rustls::Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon);
        assert_eq!(of_tls(incompatible), TlsFailure::Incompatible);
        let plain = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(of_tls(plain), TlsFailure::NotTls);
        assert_eq!(reason(&Error::from(ErrorKind::TimedOut)), TlsFailure::Timeout);
        assert_eq!(reason(&Error::from(ErrorKind::UnexpectedEof)), TlsFailure::Closed);
        assert_eq!(of_tls(rustls::Error::General("x".to_owned())), TlsFailure::Other);
    }
}
