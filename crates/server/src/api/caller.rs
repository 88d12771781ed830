//! The caller of a request, as the server knows it before an API handler reads the request.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A client, by name and address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of a key, `certificate:` and the head of its SHA-256, or [`Caller::LOCAL`].
    pub name: String,
    pub address: SocketAddr,
}

impl Caller {
    /// The name of every client on a listener that requires neither keys nor certificates.
    pub const LOCAL: &str = "local";

    /// The network of the caller's address.
    pub(crate) fn network(&self) -> IpAddr {
        network(self.address.ip())
    }
}

/// The network of an address: an IPv6 host has a whole /64 network.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_client_is_identified_by_its_network() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::"));
        assert_ne!(of("2001:db8:1:3::"), of("2001:db8:1:2::"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
