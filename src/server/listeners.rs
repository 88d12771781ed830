//! The ports: bound before anything else is done, so that a port that is taken is one sentence and not the end of a long start.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::holder::{self, Holder};

/// Connections that may wait to be accepted; a whole fleet connects at once when a server comes back.
const WAITING: u32 = 4096;

/// Where to serve, or where it is served. `None` is not at all; port 0 leaves the choice to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Addresses {
    pub http: Option<SocketAddr>,
    pub grpc: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
}

/// The ports of a server, bound.
#[derive(Debug)]
pub struct Listeners {
    pub http: Option<TcpListener>,
    pub grpc: Option<TcpListener>,
    pub metrics: Option<TcpListener>,
    pub admin: Option<TcpListener>,
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{what} {address} is taken{}. --{what}-port N, or stop it.", .holder.as_ref().map(|h| format!(" ({h})")).unwrap_or_default())]
    Taken { what: &'static str, address: SocketAddr, holder: Option<Holder> },
    #[error("{what} {address} cannot be served on: {cause}")]
    Other { what: &'static str, address: SocketAddr, cause: io::Error },
}

impl Listeners {
    /// Binds the ports, all or none. To be called within a runtime.
    pub fn bind(wanted: &Addresses) -> Result<Listeners, BindError> {
        let bind = |what, address: Option<SocketAddr>| address.map(|address| bind(what, address)).transpose();
        Ok(Listeners {
            http: bind("http", wanted.http)?,
            grpc: bind("grpc", wanted.grpc)?,
            metrics: bind("metrics", wanted.metrics)?,
            admin: bind("admin", wanted.admin)?,
        })
    }

    /// Where they are, with the ports that the system chose.
    pub fn addresses(&self) -> Addresses {
        let of = |listener: &Option<TcpListener>| listener.as_ref().and_then(|l| l.local_addr().ok());
        Addresses { http: of(&self.http), grpc: of(&self.grpc), metrics: of(&self.metrics), admin: of(&self.admin) }
    }
}

fn bind(what: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Lets a server that was stopped come back at once.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(WAITING)
    };
    listen().map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => BindError::Taken { what, address, holder: holder::of(address) },
        _ => BindError::Other { what, address, cause },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::local;

    #[tokio::test]
    async fn a_taken_port_says_who_has_it_and_what_to_do() {
        let other = std::net::TcpListener::bind(local(0)).expect("a port");
        let address = other.local_addr().expect("an address");
        let wanted = Addresses { grpc: Some(address), ..Addresses::default() };
        let said = Listeners::bind(&wanted).expect_err("taken").to_string();
        let (begin, end) = (format!("grpc {address} is taken"), ". --grpc-port N, or stop it.");
        assert!(said.starts_with(&begin) && said.ends_with(end), "{said}");
        // Whether other processes may be looked into depends on the machine; this process may look into itself.
        assert!(said.contains(&format!("(pid {}, ", std::process::id())), "{said}");
    }

    #[tokio::test]
    async fn port_0_is_reported_as_what_it_became() {
        let wanted = Addresses { http: Some(local(0)), ..Addresses::default() };
        let addresses = Listeners::bind(&wanted).expect("bound").addresses();
        assert_ne!(addresses.http.expect("an address").port(), 0);
        assert_eq!((addresses.grpc, addresses.metrics, addresses.admin), (None, None, None));
    }
}
