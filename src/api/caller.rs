//! The client that calls, as far as the server knows it before a surface reads the request.

use std::net::SocketAddr;

/// A client, by name and address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of a key, `certificate:` and the head of its SHA-256, or [`Caller::LOCAL`].
    pub name: String,
    pub address: SocketAddr,
}

impl Caller {
    /// The name of every client of a listener that asks for neither key nor certificate.
    pub const LOCAL: &str = "local";
}
