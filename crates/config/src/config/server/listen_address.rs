//! The address of a listener: an IP address without a port, which is a setting of its own.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An IP address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ListenAddress(pub IpAddr);

impl ListenAddress {
    pub(super) const EVERY: ListenAddress = ListenAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    pub(super) const THIS_MACHINE: ListenAddress = ListenAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));

    /// Whether only this machine can connect.
    pub(super) fn is_local(self) -> bool {
        self.0.is_loopback()
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(ListenAddress(ip));
        }
        Err(match text.parse::<SocketAddr>() {
            Ok(with_port) => format!(
                "\"{text}\" has a port, which is a setting of its own: write \"{}\" here, and set the port of this listener to {}",
                with_port.ip(),
                with_port.port()
            ),
            Err(_) => format!("\"{text}\" is not an IP address to listen on (as 0.0.0.0, 127.0.0.1 or ::1)"),
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ListenAddress> for String {
    fn from(address: ListenAddress) -> String {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_address_without_a_port() {
        for text in ["0.0.0.0", "127.0.0.1", "::1", "::"] {
            assert_eq!(text.parse::<ListenAddress>().map(String::from), Ok(text.to_owned()));
        }
        for (text, ip) in [("127.0.0.1:9000", "127.0.0.1"), ("[::1]:9000", "::1")] {
            let fault = text.parse::<ListenAddress>().unwrap_err();
            assert!(
                fault.ends_with(&format!("write \"{ip}\" here, and set the port of this listener to 9000")),
                "{fault}"
            );
        }
        for text in ["localhost", "localhost:80", "", "127.0.0.1:high", "1.2.3"] {
            assert!(text.parse::<ListenAddress>().unwrap_err().contains("is not an IP address"), "{text}");
        }
    }
}
