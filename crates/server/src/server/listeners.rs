//! The listeners. They are bound before anything else, so that an occupied port is reported at once, not after a long start.

use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpSocket};

use super::holder::{self, Holder};

/// Length of the queue of connections to accept. Many clients reconnect at once after a restart.
const WAITING: u32 = 4096;

/// The addresses of the listeners. `None` disables a listener. Port 0 lets the system choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Addresses {
    pub http: Option<SocketAddr>,
    pub grpc: Option<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
}

/// The bound listeners of a server.
#[derive(Debug)]
pub struct Listeners {
    pub http: Option<TcpListener>,
    pub grpc: Option<TcpListener>,
    pub metrics: Option<TcpListener>,
    pub admin: Option<TcpListener>,
    /// Whether the service manager passed client sockets. Connections then wait in them until [`super::RunningServer::open`].
    pub(super) waits: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{what} {address} is taken{}. --{what}-port N, or stop it.", .holder.as_ref().map(|h| format!(" ({h})")).unwrap_or_default())]
    Taken { what: &'static str, address: SocketAddr, holder: Option<Holder> },
    #[error("{what} {address} cannot be served on: {cause}")]
    Other { what: &'static str, address: SocketAddr, cause: io::Error },
    #[error("the service manager passed sockets that are no TCP listeners (LISTEN_FDS): {cause}")]
    Passed { cause: io::Error },
    #[error(
        "the service manager passed a socket for {address} (LISTEN_FDS), where nothing is served. Make its address and port equal to those of http, grpc, metrics or admin."
    )]
    NotWanted { address: SocketAddr },
    #[error(
        "the service manager passed a socket for {address} (LISTEN_FDS), but {what}.address is {}: the server would be open to more clients than its settings say. Let the socket unit listen on {wanted}, or set {what}.address = \"{}\".",
        .wanted.ip(),
        .address.ip()
    )]
    Wider { what: &'static str, wanted: SocketAddr, address: SocketAddr },
}

impl Listeners {
    /// Binds all addresses or none. Call it in a runtime.
    pub fn bind(wanted: &Addresses) -> Result<Listeners, BindError> {
        Listeners::bind_with(wanted, Vec::new())
    }

    /// Like [`Listeners::bind`], with sockets from the service manager, which stay open after this process ends. They are matched by
    /// address and port.
    pub fn bind_with(wanted: &Addresses, mut passed: Vec<std::net::TcpListener>) -> Result<Listeners, BindError> {
        let mut waits = false;
        let mut listen = |what, address: Option<SocketAddr>| {
            let Some(address) = address else { return Ok(None) };
            match passed.iter().position(|socket| serves(socket, address)) {
                Some(at) => {
                    waits |= matches!(what, "http" | "grpc");
                    TcpListener::from_std(passed.swap_remove(at)).map(Some).map_err(|cause| BindError::Passed { cause })
                }
                None => {
                    match passed.iter().filter_map(|socket| socket.local_addr().ok()).find(|at| is_wider(*at, address))
                    {
                        Some(wider) => Err(BindError::Wider { what, wanted: address, address: wider }),
                        None => bind(what, address).map(Some),
                    }
                }
            }
        };
        let http = listen("http", wanted.http)?;
        let grpc = listen("grpc", wanted.grpc)?;
        let metrics = listen("metrics", wanted.metrics)?;
        let admin = listen("admin", wanted.admin)?;
        match passed.first().and_then(|socket| socket.local_addr().ok()) {
            Some(address) => Err(BindError::NotWanted { address }),
            None => Ok(Listeners { http, grpc, metrics, admin, waits }),
        }
    }

    /// The actual addresses, with the ports that the system chose.
    pub fn addresses(&self) -> Addresses {
        let of = |listener: &Option<TcpListener>| listener.as_ref().and_then(|l| l.local_addr().ok());
        Addresses { http: of(&self.http), grpc: of(&self.grpc), metrics: of(&self.metrics), admin: of(&self.admin) }
    }
}

/// The sockets that the service manager passed to this process (`LISTEN_FDS`), if any.
pub fn passed() -> Result<Vec<std::net::TcpListener>, BindError> {
    let mut given = ListenFd::from_env();
    let places = 0..given.len();
    let take = |at: usize| {
        let socket = given.take_tcp_listener(at)?;
        socket.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        Ok(socket)
    };
    let all: io::Result<Vec<_>> = places.map(take).collect();
    Ok(all.map_err(|cause| BindError::Passed { cause })?.into_iter().flatten().collect())
}

/// Whether this socket serves the wanted address: the port is the same, and the address is the same or covered by it.
fn serves(socket: &std::net::TcpListener, wanted: SocketAddr) -> bool {
    let Ok(at) = socket.local_addr() else { return false };
    at.port() == wanted.port() && (wanted.ip().is_unspecified() || at.ip() == wanted.ip())
}

/// Whether a socket accepts connections from addresses that the settings do not include.
fn is_wider(at: SocketAddr, wanted: SocketAddr) -> bool {
    at.port() == wanted.port() && at.ip().is_unspecified() && !wanted.ip().is_unspecified()
}

fn bind(what: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Lets a restarted server bind at once.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(WAITING)
    };
    listen().map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => BindError::Taken { what, address, holder: holder::find_listener(address) },
        _ => BindError::Other { what, address, cause },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::local;

    #[tokio::test]
    async fn the_error_of_a_taken_port_names_its_process_and_what_to_do() {
        let other = std::net::TcpListener::bind(local(0)).expect("a port");
        let address = other.local_addr().expect("an address");
        let wanted = Addresses { grpc: Some(address), ..Addresses::default() };
        let message = Listeners::bind(&wanted).expect_err("taken").to_string();
        let (begin, end) = (format!("grpc {address} is taken"), ". --grpc-port N, or stop it.");
        assert!(message.starts_with(&begin) && message.ends_with(end), "{message}");
        // Inspecting other processes may be forbidden on this machine. A process may always inspect itself.
        assert!(message.contains(&format!("(pid {}, ", std::process::id())), "{message}");
    }

    #[tokio::test]
    async fn port_0_is_reported_as_the_bound_port() {
        let wanted = Addresses { http: Some(local(0)), ..Addresses::default() };
        let addresses = Listeners::bind(&wanted).expect("bound").addresses();
        assert_ne!(addresses.http.expect("an address").port(), 0);
        assert_eq!((addresses.grpc, addresses.metrics, addresses.admin), (None, None, None));
    }

    #[tokio::test]
    async fn sockets_that_were_opened_before_are_taken_by_their_ports() {
        let open = || {
            let socket = std::net::TcpListener::bind(local(0)).expect("a port");
            socket.set_nonblocking(true).expect("nonblocking");
            socket
        };
        let (http, other) = (open(), open());
        let [at, unknown] = [&http, &other].map(|socket| socket.local_addr().expect("an address"));
        let wanted = Addresses { http: Some(at), grpc: Some(local(0)), ..Addresses::default() };
        let bound = Listeners::bind_with(&wanted, vec![http]).expect("bound");
        assert_eq!((bound.addresses().http, bound.waits), (Some(at), true));
        let refused = Listeners::bind_with(&Addresses::default(), vec![other]).expect_err("nothing is served there");
        assert!(matches!(refused, BindError::NotWanted { address } if address == unknown), "{refused}");
        assert!(!Listeners::bind(&Addresses::default()).expect("bound").waits);
    }

    #[tokio::test]
    async fn a_socket_wider_than_the_configured_address_is_refused() {
        let open = |address: [u8; 4]| {
            let socket = std::net::TcpListener::bind(SocketAddr::from((address, 0))).expect("a port");
            socket.set_nonblocking(true).expect("nonblocking");
            let port = socket.local_addr().expect("an address").port();
            (socket, port)
        };
        let wanted = |address: [u8; 4], port| Addresses { admin: Some((address, port).into()), ..Addresses::default() };
        let (any, own) = ([0; 4], [127, 0, 0, 1]);
        let (socket, port) = open(any);
        let refused = Listeners::bind_with(&wanted(own, port), vec![socket]).expect_err("it is open to everyone");
        assert!(matches!(refused, BindError::Wider { what: "admin", address, .. } if address == (any, port).into()));
        for (at, settings) in [(any, any), (own, any), (own, own)] {
            let (socket, port) = open(at);
            let bound = Listeners::bind_with(&wanted(settings, port), vec![socket]).expect("bound").addresses();
            assert_eq!(bound.admin, Some((at, port).into()));
        }
    }
}
