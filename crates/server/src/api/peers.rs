//! Accounts of peers: live sequences, requests in flight, and queued bytes of requests and answers, against the maximum per peer.
//!
//! A peer is identified by its key or certificate name. Without a name, its address identifies it (for IPv6, the /64 network). Without a
//! maximum, nothing is counted or looked up. A reload of the configuration may set the first maximum: then requests count from the next one of each
//! connection, stream and WebSocket on, and sequences from their START.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{Caller, LiveLimits};
use crate::error::ExceededLimit;
use crate::model::SequenceOwner;
use crate::telemetry::{Metrics, PeerLimit};

/// The peers that are connected or hold something. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Peers(Arc<Accounts>);

/// One peer. Clones share its account; the default has no maximum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer(PeerAccount);

#[derive(Debug, Clone, Default)]
enum PeerAccount {
    #[default]
    Uncounted,
    Counted(Arc<Account>),
    /// The peer of a stream or WebSocket that was opened while no client had a maximum. Its account is looked up for each request.
    Later(Arc<(Peers, Arc<Caller>)>),
}

/// A request in flight, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct PeerRequest(Peer);

#[derive(Debug)]
struct Accounts {
    limits: LiveLimits,
    metrics: Metrics,
    by_key: Mutex<HashMap<PeerKey, Weak<Account>>>,
}

/// The identity of a peer: its name, or the network of its address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PeerKey {
    Name(String),
    Network(IpAddr),
}

impl PeerKey {
    pub(crate) fn of(caller: &Caller) -> PeerKey {
        match caller.name.as_str() {
            Caller::LOCAL => PeerKey::Network(caller.network()),
            name => PeerKey::Name(name.to_owned()),
        }
    }
}

/// The account of one peer. It is removed with the peer's last connection, request and sequence.
#[derive(Debug)]
struct Account {
    key: PeerKey,
    accounts: Arc<Accounts>,
    sequences: AtomicU64,
    in_flight: AtomicU64,
    queued: AtomicU64,
}

impl Peers {
    pub(crate) fn new(limits: LiveLimits, metrics: &Metrics) -> Peers {
        Peers(Arc::new(Accounts { limits, metrics: metrics.clone(), by_key: Mutex::default() }))
    }

    /// Whether a client has any maximum.
    pub(crate) fn is_limited(&self) -> bool {
        self.0.limits.counts_peers()
    }

    pub(crate) fn find(&self, caller: &Caller) -> Peer {
        if !self.is_limited() {
            return Peer::default();
        }
        let accounts = &self.0;
        let key = PeerKey::of(caller);
        let mut by_key = accounts.by_key.lock();
        if let Some(account) = by_key.get(&key).and_then(Weak::upgrade) {
            return Peer(PeerAccount::Counted(account));
        }
        let account = Arc::new(Account {
            key: key.clone(),
            accounts: Arc::clone(accounts),
            sequences: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            queued: AtomicU64::new(0),
        });
        by_key.insert(key, Arc::downgrade(&account));
        Peer(PeerAccount::Counted(account))
    }

    /// The peer of a stream or WebSocket. A maximum that is set later holds for it too.
    pub(crate) fn find_for_stream(&self, caller: &Arc<Caller>) -> Peer {
        match self.find(caller) {
            Peer(PeerAccount::Uncounted) => Peer(PeerAccount::Later(Arc::new((self.clone(), Arc::clone(caller))))),
            counted => counted,
        }
    }

    /// Updates the metrics: the number of peers, and the largest amounts that one peer holds.
    pub(crate) fn observe(&self) {
        let accounts = &self.0;
        // Dropping an account takes the lock, so none may be dropped while it is held.
        let all: Vec<Arc<Account>> = accounts.by_key.lock().values().filter_map(Weak::upgrade).collect();
        let most = |of: fn(&Account) -> &AtomicU64| all.iter().map(|one| of(one).load(Ordering::Relaxed)).max();
        let held = [most(|one| &one.sequences), most(|one| &one.in_flight), most(|one| &one.queued)];
        accounts.metrics.set_peers(all.len(), held.map(Option::unwrap_or_default));
    }
}

impl Peer {
    /// Whether its holdings are counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.account().is_some()
    }

    /// The account, if its holdings are counted.
    fn account(&self) -> Option<&Arc<Account>> {
        match &self.0 {
            PeerAccount::Counted(account) => Some(account),
            PeerAccount::Uncounted | PeerAccount::Later(_) => None,
        }
    }

    /// The peer as it is counted now. Callers take from this value what they have added to it.
    pub(crate) fn now(&self) -> Peer {
        match &self.0 {
            PeerAccount::Later(later) => later.0.find(&later.1),
            _ => self.clone(),
        }
    }

    /// Finds the account, if there is a maximum by now. A holder of counted bytes must not call it.
    pub(super) fn update(&mut self) {
        if let PeerAccount::Later(later) = &self.0
            && later.0.is_limited()
        {
            *self = later.0.find(&later.1);
        }
    }

    /// Counts a request in flight, or refuses it.
    pub(crate) fn request(&self) -> Result<PeerRequest, ExceededLimit> {
        let peer = self.now();
        if let Some(account) = peer.account() {
            let limit = account.limits().in_flight_per_peer();
            account.add(&account.in_flight, 1, limit).map_err(|_| {
                account.refuse(PeerLimit::InFlight);
                ExceededLimit::PeerInFlight { limit: limit.unwrap_or_default() }
            })?;
        }
        Ok(PeerRequest(peer))
    }

    /// Counts more bytes of a request that already holds `held` bytes, or refuses it. Zero bytes always fit.
    pub(super) fn add_queued(&self, bytes: u64, held: u64) -> Result<(), ExceededLimit> {
        let Some(account) = self.account().filter(|_| bytes > 0) else { return Ok(()) };
        let limit = account.limits().queued_per_peer();
        account.add(&account.queued, bytes, limit).map_err(|used| {
            account.refuse(PeerLimit::Queued);
            let (needed, used) = (bytes.saturating_add(held), used.saturating_sub(held));
            ExceededLimit::PeerQueuedBytes { needed, used, limit: limit.unwrap_or_default() }
        })
    }

    /// Counts bytes of an answer, even beyond the maximum.
    pub(crate) fn add_answer(&self, bytes: u64) {
        if let Some(account) = self.account() {
            account.queued.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove_answer(&self, bytes: u64) {
        self.remove_queued(bytes);
    }

    pub(super) fn remove_queued(&self, bytes: u64) {
        if let Some(account) = self.account() {
            account.queued.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The owner of the sequences that this peer starts, if they are counted.
    pub(super) fn owner(&self) -> Option<Arc<dyn SequenceOwner>> {
        match self.now().0 {
            PeerAccount::Counted(account) => Some(account),
            _ => None,
        }
    }
}

impl Drop for PeerRequest {
    fn drop(&mut self) {
        if let Some(account) = self.0.account() {
            account.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Account {
    fn limits(&self) -> &LiveLimits {
        &self.accounts.limits
    }

    /// Adds to a count. If the sum exceeds the limit, returns the current count.
    fn add(&self, count: &AtomicU64, more: u64, limit: Option<u64>) -> Result<(), u64> {
        let limit = limit.unwrap_or(u64::MAX);
        let sum = |used: u64| used.checked_add(more).filter(|sum| *sum <= limit);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).map(|_| ())
    }

    fn refuse(&self, limit: PeerLimit) {
        let peer = match &self.key {
            PeerKey::Name(name) => name.clone(),
            PeerKey::Network(address) => address.to_string(),
        };
        tracing::debug!(peer, limit = limit.name(), "request refused: its client is at a maximum of one client");
        self.accounts.metrics.peer_refused(limit);
    }
}

impl SequenceOwner for Account {
    fn try_add(&self) -> Result<(), u64> {
        let limit = self.limits().sequences_per_peer();
        self.add(&self.sequences, 1, limit).map_err(|_| {
            // Called under the model's lock, where nothing may be logged.
            self.accounts.metrics.peer_refused(PeerLimit::Sequences);
            limit.unwrap_or_default()
        })
    }

    fn add(&self) {
        self.sequences.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self) {
        self.sequences.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut by_key = self.accounts.by_key.lock();
        // The map may already hold a newer account of the same peer.
        if by_key.get(&self.key).is_some_and(|account| account.strong_count() == 0) {
            by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::queued::QueuedBytes;
    use crate::config::server::file::ServerLimits;
    use crate::config::units::Size;
    use crate::telemetry::kinds::Gauge;

    fn peers(limits: ServerLimits) -> Peers {
        Peers::new(LiveLimits::new(limits), &Metrics::new(false))
    }

    fn caller(name: &str, address: &str) -> Caller {
        Caller { name: name.to_owned(), address: (address.parse::<IpAddr>().unwrap(), 1).into() }
    }

    fn from(peers: &Peers, address: &str) -> Peer {
        peers.find(&caller(Caller::LOCAL, address))
    }

    fn accounts(peers: &Peers) -> usize {
        peers.0.by_key.lock().len()
    }

    #[test]
    fn requests_are_counted_by_network_or_name() {
        let peers = peers(ServerLimits { in_flight_per_peer: Some(2), ..ServerLimits::default() });
        let (one, same, other) = (from(&peers, "2001:db8::1"), from(&peers, "2001:db8::2"), from(&peers, "10.0.0.1"));
        let kept = (one.request().unwrap(), same.request().unwrap());
        let refused = from(&peers, "2001:db8::3").request().unwrap_err();
        assert_eq!(refused, ExceededLimit::PeerInFlight { limit: 2 });
        let named = peers.find(&caller("anna", "2001:db8::1"));
        let more = (other.request().unwrap(), named.request().unwrap());
        drop(kept);
        assert!(one.request().is_ok());
        drop((one, same, other, named));
        assert_eq!(accounts(&peers), 2, "requests keep the account");
        drop(more);
        assert_eq!(accounts(&peers), 0);
    }

    #[test]
    fn bytes_are_counted_and_given_back() {
        let peers = peers(ServerLimits { queued_per_peer: Some(Size(10)), ..ServerLimits::default() });
        let (one, other) = (from(&peers, "127.0.0.1"), from(&peers, "127.0.0.2"));
        one.add_queued(8, 0).unwrap();
        let refused = one.add_queued(3, 8).unwrap_err();
        assert_eq!(refused, ExceededLimit::PeerQueuedBytes { needed: 11, used: 0, limit: 10 });
        assert!(one.add_queued(0, 8).is_ok() && other.add_queued(10, 0).is_ok());
        one.remove_queued(8);
        assert!(one.add_queued(10, 0).is_ok());
        // An answer counts even beyond the maximum.
        one.add_answer(5);
        one.remove_queued(10);
        assert!(one.add_queued(6, 0).is_err() && one.add_queued(5, 0).is_ok());
    }

    #[test]
    fn sequences_are_counted_as_long_as_they_live() {
        let peers = peers(ServerLimits { sequences_per_peer: Some(1), ..ServerLimits::default() });
        let owner = from(&peers, "127.0.0.1").owner().unwrap();
        owner.try_add().unwrap();
        assert_eq!(from(&peers, "127.0.0.1").owner().unwrap().try_add(), Err(1));
        owner.remove();
        assert_eq!(owner.try_add(), Ok(()));
        drop(owner);
        assert_eq!(accounts(&peers), 0);
    }

    #[test]
    fn maxima_change_while_clients_hold_something() {
        let limits = LiveLimits::new(ServerLimits::default());
        let peers = Peers::new(limits.clone(), &Metrics::new(false));
        assert!(!from(&peers, "127.0.0.1").is_counted());
        limits.set(&ServerLimits { in_flight_per_peer: Some(1), ..ServerLimits::default() });
        let peer = from(&peers, "127.0.0.1");
        let first = peer.request().unwrap();
        assert_eq!(peer.request().unwrap_err(), ExceededLimit::PeerInFlight { limit: 1 });
        limits.set(&ServerLimits::default());
        assert!(peer.request().is_ok() && !from(&peers, "127.0.0.1").is_counted());
        drop((first, peer));
        assert_eq!(accounts(&peers), 0);
    }

    #[test]
    fn the_first_maximum_holds_for_streams_that_are_open() {
        let limits = LiveLimits::new(ServerLimits::default());
        let peers = Peers::new(limits.clone(), &Metrics::new(false));
        let stream = peers.find_for_stream(&Arc::new(caller(Caller::LOCAL, "127.0.0.1")));
        let queued = QueuedBytes::new(u64::MAX, Gauge::default());
        let (uncounted, mut body) = (stream.request().unwrap(), queued.permit(&stream));
        let mut meter = queued.permit(&stream);
        body.grow(7).unwrap();
        assert!(stream.owner().is_none() && accounts(&peers) == 0);
        limits.set(&ServerLimits {
            sequences_per_peer: Some(1),
            in_flight_per_peer: Some(1),
            queued_per_peer: Some(Size(10)),
            ..ServerLimits::default()
        });
        let first = stream.request().unwrap();
        assert_eq!(stream.request().unwrap_err(), ExceededLimit::PeerInFlight { limit: 1 });
        drop((uncounted, first));
        assert!(stream.request().is_ok(), "what was not counted is not given back either");
        let owner = stream.owner().unwrap();
        owner.try_add().unwrap();
        assert_eq!(stream.owner().unwrap().try_add(), Err(1));
        body.grow(7).unwrap();
        body.resize(0).unwrap();
        body.grow(7).unwrap();
        assert!(meter.grow(4).is_err() && meter.grow(3).is_ok());
        drop((queued.answer(&stream, 5), body, meter, owner, stream));
        assert_eq!(accounts(&peers), 0);
    }

    #[test]
    fn without_a_maximum_nothing_is_counted() {
        let peers = peers(ServerLimits::default());
        let peer = from(&peers, "127.0.0.1");
        assert!(accounts(&peers) == 0 && !peer.is_counted() && peer.owner().is_none());
        assert!(peer.request().is_ok() && peer.add_queued(u64::MAX, 0).is_ok());
    }
}
