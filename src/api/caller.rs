//! Who asks: what the server has found out of it before a request gets here.

use std::net::SocketAddr;

/// The server puts it into every request for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of a key, `certificate:` and the head of its SHA-256, or [`Caller::LOCAL`].
    pub name: String,
    pub address: SocketAddr,
}

impl Caller {
    /// Whoever may reach a listener that asks for nothing.
    pub const LOCAL: &str = "local";
}
