//! The load to drive: model, clients, rate and span.

use std::time::Duration;

use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

/// The pace of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Each client keeps `pipeline` requests of its sequence in flight, and sends the next one when an answer arrives.
    Closed { clients: usize, pipeline: usize },
    /// Each stream sends a request every `chunk`, whether or not the answers keep up. It starts at a random time within the first chunk.
    Open { streams: usize, chunk: Duration },
}

impl Pace {
    /// Number of senders.
    pub fn senders(self) -> usize {
        match self {
            Pace::Closed { clients, .. } => clients,
            Pace::Open { streams, .. } => streams,
        }
    }
}

/// The value of the header `authorization`, which shows a key to a server.
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
    /// Whether requests go over bidirectional streams, one a sender, instead of single calls.
    pub streaming: bool,
    pub connections: usize,
    /// Time before the measured span; not counted.
    pub warm_up: Duration,
    /// Maximum length of the measured span.
    pub span: Duration,
    /// Maximum number of counted requests.
    pub requests: Option<u64>,
    /// `host:port` of the metrics, for the mean batch.
    pub metrics: Option<String>,
    /// The server's process, if it runs on this machine.
    pub pid: Option<u32>,
    /// Seed of random data and random times.
    pub seed: u64,
}

impl BenchPlan {
    /// Default number of clients per connection. Six of Triton's own clients share one.
    pub const CLIENTS_A_CONNECTION: usize = 8;

    /// A closed loop of ten seconds against this address.
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
