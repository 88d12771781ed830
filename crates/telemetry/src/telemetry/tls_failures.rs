//! Reasons for which TLS handshakes fail, and the listeners that make them.

use super::kinds::Counter;

/// A listener that can have TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsListener {
    Http,
    Grpc,
    Admin,
}

/// Why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFailure {
    NoCertificate,
    UnknownAuthority,
    Expired,
    BadCertificate,
    RefusedByClient,
    Incompatible,
    NotTls,
    Timeout,
    Closed,
    Other,
}

/// A counter for each listener and reason.
pub(super) type TlsFailureCounters = [[Counter; TlsFailure::ALL.len()]; TlsListener::ALL.len()];

impl TlsListener {
    pub const ALL: [TlsListener; 3] = [TlsListener::Http, TlsListener::Grpc, TlsListener::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            TlsListener::Http => "http",
            TlsListener::Grpc => "grpc",
            TlsListener::Admin => "admin",
        }
    }
}

impl TlsFailure {
    pub const ALL: [TlsFailure; 10] = [
        TlsFailure::NoCertificate,
        TlsFailure::UnknownAuthority,
        TlsFailure::Expired,
        TlsFailure::BadCertificate,
        TlsFailure::RefusedByClient,
        TlsFailure::Incompatible,
        TlsFailure::NotTls,
        TlsFailure::Timeout,
        TlsFailure::Closed,
        TlsFailure::Other,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            TlsFailure::NoCertificate => "no_certificate",
            TlsFailure::UnknownAuthority => "unknown_authority",
            TlsFailure::Expired => "expired",
            TlsFailure::BadCertificate => "bad_certificate",
            TlsFailure::RefusedByClient => "refused_by_client",
            TlsFailure::Incompatible => "incompatible",
            TlsFailure::NotTls => "not_tls",
            TlsFailure::Timeout => "timeout",
            TlsFailure::Closed => "closed",
            TlsFailure::Other => "other",
        }
    }
}
