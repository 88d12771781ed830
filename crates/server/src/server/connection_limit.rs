//! Limits the open connections of the listeners: in total, and per peer. A connection above a limit is closed as soon as it is accepted, so
//! that descriptors are left for operators, models and files.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::api::caller::network;
use crate::telemetry::ConnectionClosed;
use crate::telemetry::kinds::Gauge;

/// The open connections of a group of listeners. Clones share the count.
#[derive(Debug, Clone)]
pub(super) struct ConnectionLimit(Arc<Limit>);

#[derive(Debug)]
struct Limit {
    max: AtomicUsize,
    per_peer: AtomicUsize,
    open: Mutex<OpenConnections>,
    shown: Gauge,
}

#[derive(Debug, Default)]
struct OpenConnections {
    total: usize,
    peers: HashMap<IpAddr, usize>,
}

/// The permit of an open connection. Dropping it removes the connection from the count.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limit: ConnectionLimit,
    peer: IpAddr,
}

impl ConnectionLimit {
    /// The gauge `shown` follows the count.
    pub(super) fn new(max: usize, per_peer: usize, shown: Gauge) -> ConnectionLimit {
        let [max, per_peer] = [max, per_peer].map(AtomicUsize::new);
        ConnectionLimit(Arc::new(Limit { max, per_peer, open: Mutex::default(), shown }))
    }

    /// Changes the limits. Open connections stay, even beyond them.
    pub(super) fn set(&self, max: usize, per_peer: usize) {
        self.0.max.store(max, Relaxed);
        self.0.per_peer.store(per_peer, Relaxed);
    }

    /// The limits in total and per peer.
    #[cfg(test)]
    pub(super) fn limits(&self) -> (usize, usize) {
        (self.0.max.load(Relaxed), self.0.per_peer.load(Relaxed))
    }

    /// Counts a connection from this address. The error is the limit that it would exceed.
    pub(super) fn admit(&self, from: SocketAddr) -> Result<ConnectionPermit, ConnectionClosed> {
        let Limit { max, per_peer, open, shown } = &*self.0;
        let peer = network(from.ip());
        let mut open = open.lock();
        if open.total >= max.load(Relaxed) {
            return Err(ConnectionClosed::Max);
        }
        let OpenConnections { total, peers } = &mut *open;
        let count = peers.entry(peer).or_default();
        if *count >= per_peer.load(Relaxed) {
            return Err(ConnectionClosed::PerPeer);
        }
        *count += 1;
        *total += 1;
        shown.add(1);
        Ok(ConnectionPermit { limit: self.clone(), peer })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.limit.0.open.lock();
        open.total = open.total.saturating_sub(1);
        self.limit.0.shown.add(-1);
        if let Some(count) = open.peers.get_mut(&self.peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.peers.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_all_and_by_peer() {
        let limit = ConnectionLimit::new(3, 2, Gauge::default());
        let from = |text: &str| limit.admit(SocketAddr::new(text.parse().unwrap(), 1));
        let (first, second) = (from("10.0.0.1").unwrap(), from("::ffff:10.0.0.1").unwrap());
        assert_eq!(from("10.0.0.1").unwrap_err(), ConnectionClosed::PerPeer);
        let third = from("2001:db8::1").unwrap();
        assert_eq!(from("10.0.0.2").unwrap_err(), ConnectionClosed::Max);
        drop(first);
        let fourth = from("2001:db8::2:0:0:9").unwrap();
        drop((second, third));
        assert!(from("2001:db8::3").is_ok());
        drop(fourth);
        assert_eq!(limit.0.open.lock().peers.len(), 0);
    }

    #[test]
    fn limits_change_while_connections_are_open() {
        let limit = ConnectionLimit::new(2, 2, Gauge::default());
        let from = |text: &str| limit.admit(SocketAddr::new(text.parse().unwrap(), 1));
        let open = (from("10.0.0.1").unwrap(), from("10.0.0.1").unwrap());
        limit.set(1, 1);
        assert_eq!(from("10.0.0.2").unwrap_err(), ConnectionClosed::Max);
        limit.set(3, 2);
        assert_eq!(from("10.0.0.1").unwrap_err(), ConnectionClosed::PerPeer);
        assert!(from("10.0.0.2").is_ok());
        drop(open);
    }
}
