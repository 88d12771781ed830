//! The load to drive: model, clients, rate and span.

use std::time::Duration;

use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

/// How requests follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Each client keeps so many requests of its sequence in flight, and sends the next when an answer is here.
    Closed { clients: usize, pipeline: usize },
    /// Each stream sends a request every `chunk`, begun at a random time within it, whether or not the answers keep up.
    Open { streams: usize, chunk: Duration },
}

impl Pace {
    /// Those who send.
    pub fn senders(self) -> usize {
        match self {
            Pace::Closed { clients, .. } => clients,
            Pace::Open { streams, .. } => streams,
        }
    }
}

/// What shows a key to a server: the value of `authorization`.
#[derive(Debug, Clone)]
pub struct ClientKey(MetadataValue<Ascii>);

impl ClientKey {
    /// `None` if no header can hold the key.
    pub fn new(key: &str) -> Option<ClientKey> {
        let mut value: MetadataValue<Ascii> = format!("Bearer {key}").parse().ok()?;
        value.set_sensitive(true);
        Some(ClientKey(value))
    }

    /// A request that shows the key, if there is one.
    pub(super) fn shown<T>(key: Option<&ClientKey>, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(ClientKey(value)) = key {
            request.metadata_mut().insert("authorization", value.clone());
        }
        request
    }
}

/// A run of the load generator against one server.
#[derive(Debug, Clone)]
pub struct BenchPlan {
    /// `host:port` of the gRPC service.
    pub address: String,
    pub key: Option<ClientKey>,
    pub pace: Pace,
    /// On bidirectional streams, one a sender, rather than call by call.
    pub streaming: bool,
    pub connections: usize,
    /// Driven, but not counted.
    pub warm_up: Duration,
    /// The longest that is counted.
    pub span: Duration,
    /// The most requests that are counted.
    pub requests: Option<u64>,
    /// `host:port` of the metrics, for the mean batch.
    pub metrics: Option<String>,
    /// The server's process, if it runs on this machine.
    pub pid: Option<u32>,
    /// What random data and random times are made from.
    pub seed: u64,
}

impl BenchPlan {
    /// One connection for so many clients, unless told otherwise; Triton's own clients share one among six.
    pub const CLIENTS_A_CONNECTION: usize = 8;

    /// A closed loop for ten seconds against this address.
    pub fn closed(address: impl Into<String>, clients: usize) -> BenchPlan {
        BenchPlan {
            address: address.into(),
            key: None,
            pace: Pace::Closed { clients, pipeline: 1 },
            streaming: false,
            connections: clients.div_ceil(BenchPlan::CLIENTS_A_CONNECTION),
            warm_up: Duration::from_secs(1),
            span: Duration::from_secs(10),
            requests: None,
            metrics: None,
            pid: None,
            seed: 1,
        }
    }
}
