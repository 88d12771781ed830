//! The limits on requests. A reload of the configuration changes them. Requests read them without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::config::server::file::ServerLimits;
use crate::config::units::Size;

/// The limits of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct LiveLimits(Arc<LimitValues>);

#[derive(Debug)]
struct LimitValues {
    /// The limits at the start. Those without a value below never change.
    start: ServerLimits,
    in_flight: AtomicUsize,
    stream_unread: AtomicU64,
    inputs: AtomicUsize,
    outputs: AtomicUsize,
    parameters: AtomicUsize,
    sequences_per_peer: PeerMaximum,
    in_flight_per_peer: PeerMaximum,
    queued_per_peer: PeerMaximum,
    /// Whether one client has any maximum.
    counts_peers: AtomicBool,
}

/// A maximum of one client. `u64::MAX` is none.
#[derive(Debug)]
struct PeerMaximum(AtomicU64);

impl PeerMaximum {
    fn new(maximum: Option<u64>) -> PeerMaximum {
        PeerMaximum(AtomicU64::new(maximum.unwrap_or(u64::MAX)))
    }

    fn set(&self, maximum: Option<u64>) {
        self.0.store(maximum.unwrap_or(u64::MAX), Relaxed);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|maximum| *maximum != u64::MAX)
    }
}

impl LiveLimits {
    pub fn new(start: ServerLimits) -> LiveLimits {
        let limits = LimitValues {
            in_flight: AtomicUsize::new(start.in_flight),
            stream_unread: AtomicU64::new(start.stream_unread.0),
            inputs: AtomicUsize::new(start.inputs),
            outputs: AtomicUsize::new(start.outputs),
            parameters: AtomicUsize::new(start.parameters),
            sequences_per_peer: PeerMaximum::new(start.sequences_per_peer),
            in_flight_per_peer: PeerMaximum::new(start.in_flight_per_peer),
            queued_per_peer: PeerMaximum::new(start.queued_per_peer.map(|size| size.0)),
            counts_peers: AtomicBool::new(has_peer_maximum(&start)),
            start,
        };
        LiveLimits(Arc::new(limits))
    }

    /// Applies the new limits, except those that never change.
    pub fn set(&self, new: &ServerLimits) {
        let limits = &*self.0;
        limits.in_flight.store(new.in_flight, Relaxed);
        limits.stream_unread.store(new.stream_unread.0, Relaxed);
        limits.inputs.store(new.inputs, Relaxed);
        limits.outputs.store(new.outputs, Relaxed);
        limits.parameters.store(new.parameters, Relaxed);
        limits.sequences_per_peer.set(new.sequences_per_peer);
        limits.in_flight_per_peer.set(new.in_flight_per_peer);
        limits.queued_per_peer.set(new.queued_per_peer.map(|size| size.0));
        limits.counts_peers.store(has_peer_maximum(new), Relaxed);
    }

    /// The limits that decoding needs, as they are now. The others have their values of the start.
    pub fn of_request(&self) -> ServerLimits {
        let LimitValues { start, inputs, outputs, parameters, .. } = &*self.0;
        let [inputs, outputs, parameters] = [inputs, outputs, parameters].map(|limit| limit.load(Relaxed));
        ServerLimits { inputs, outputs, parameters, ..*start }
    }

    /// Maximum bytes of one request. It never changes.
    pub fn request(&self) -> usize {
        self.0.start.request.to_usize()
    }

    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Relaxed)
    }

    pub fn stream_unread(&self) -> usize {
        Size(self.0.stream_unread.load(Relaxed)).to_usize()
    }

    pub fn parameters(&self) -> usize {
        self.0.parameters.load(Relaxed)
    }

    pub(crate) fn sequences_per_peer(&self) -> Option<u64> {
        self.0.sequences_per_peer.get()
    }

    pub(crate) fn in_flight_per_peer(&self) -> Option<u64> {
        self.0.in_flight_per_peer.get()
    }

    pub(crate) fn queued_per_peer(&self) -> Option<u64> {
        self.0.queued_per_peer.get()
    }

    /// Whether one client has any maximum. If not, nothing is counted for clients.
    pub(crate) fn counts_peers(&self) -> bool {
        self.0.counts_peers.load(Relaxed)
    }
}

fn has_peer_maximum(limits: &ServerLimits) -> bool {
    let ServerLimits { sequences_per_peer, in_flight_per_peer, queued_per_peer, .. } = limits;
    sequences_per_peer.is_some() || in_flight_per_peer.is_some() || queued_per_peer.is_some()
}
