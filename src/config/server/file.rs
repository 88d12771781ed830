//! The schema of the server's `sequor.toml`, with the defaults. Sections that are not served yet are here too, so that they parse and can be
//! refused by name.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::model::Bounds;
use crate::config::units::{Size, Span};

/// The whole file. What it does not say is the default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    pub schema: u32,
    pub node: Option<String>,
    pub exit_on_error: bool,
    pub strict_readiness: bool,
    /// The file that requests are recorded in; empty is no recording.
    pub record: PathBuf,
    /// What a recording may take of the disk.
    pub record_max: Size,
    pub model: Model,
    pub http: Http,
    pub grpc: Grpc,
    pub metrics: Metrics,
    pub limits: Limits,
    pub connections: Connections,
    pub shared_memory: SharedMemory,
    pub drain: Drain,
    pub runtime: Runtime,
    pub log: Log,
    pub admin: Admin,
    pub tls: Tls,
    pub(super) auth: Option<Auth>,
    pub(super) state: Option<State>,
    pub plugins: Plugins,
    pub(super) otlp: Option<Otlp>,
}

/// Which models, and who says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    pub repository: Vec<PathBuf>,
    pub control_mode: ControlMode,
    pub load: Vec<String>,
    pub poll: Span,
    pub auto_complete: bool,
    pub default_max_batch_size: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlMode {
    /// Everything in the repository, as it is at the start.
    None,
    /// Everything in the repository, looked at again and again.
    Poll,
    /// What `load` names, and what clients ask for.
    Explicit,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    pub enabled: bool,
    pub address: String,
    pub port: u16,
    pub allowed_origins: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Grpc {
    pub enabled: bool,
    pub address: String,
    pub port: u16,
    pub keepalive: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    pub enabled: bool,
    /// Without it that of `http`.
    pub address: Option<String>,
    pub port: u16,
    /// Whether `nv_inference_*` stand beside `sequor_*`.
    pub triton_names: bool,
}

/// The operators' own listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    pub enabled: bool,
    pub address: String,
    pub port: u16,
    /// Empty is none.
    pub keys_file: PathBuf,
    /// Whether plug-ins may come over the wire.
    pub upload: bool,
    /// Whether texts of ids and states of sequences are shown.
    pub peek: bool,
}

/// Of the listeners for clients and operators; empty paths are none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// With it, clients must show a certificate of this authority.
    pub client_ca: PathBuf,
}

/// What may be held at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// One request.
    pub request: Size,
    pub in_flight: u32,
    /// Inputs of requests in flight.
    pub queued: Size,
    /// States of all models; without it three quarters of the machine's memory.
    pub state: Option<Size>,
    pub stream_unread: Size,
    /// Of one model.
    pub instances: u32,
    /// Of one model, all its instances together.
    pub slots: u64,
    /// Of one request.
    pub inputs: u32,
    pub outputs: u32,
    pub parameters: u32,
    /// Of one client; without them one client has no maximum of its own.
    pub sequences_per_peer: Option<u32>,
    pub in_flight_per_peer: Option<u32>,
    pub queued_per_peer: Option<Size>,
}

/// What one client may do with connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Connections {
    pub max: u32,
    pub per_peer: u32,
    pub reserved: u32,
    pub first_byte: Span,
    pub head: Span,
    pub body: Span,
    pub idle: Span,
    pub streams: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Drain {
    /// Not ready, still takes everything.
    pub announce: Span,
    /// No new sequences, live ones go on.
    pub finish: Span,
    pub exit_timeout: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Runtime {
    /// The library's file; empty leaves it to the look-up order.
    pub onnxruntime: PathBuf,
    pub threads_per_instance: u16,
    pub spinning: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    pub format: LogFormat,
    /// A filter as `tracing` reads it: `info`, `warn,sequor::model=debug`.
    pub level: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// What plug-ins may do, and where they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plugins {
    /// The folder of NAME.wasm; empty is none.
    pub dir: PathBuf,
    /// Whether a file that changes takes the place of what serves.
    pub watch: bool,
    /// Whether a model's file must name the hash of its plug-in.
    pub require_sha256: bool,
    /// Requests a scheduler is shown at most.
    pub max_candidates: u32,
    /// CPU time of a call.
    pub time: Span,
    /// Memory of an instance; without it what its language needs.
    pub memory: Option<Size>,
    /// Strikes within a minute that park a plug-in.
    pub strikes: u32,
    pub grants: Vec<String>,
}

/// What plug-ins may be given beyond their world.
pub const GRANTS: [&str; 3] = ["clock", "random", "sequence-text"];

impl Default for Plugins {
    fn default() -> Self {
        Plugins {
            dir: PathBuf::new(),
            watch: true,
            require_sha256: false,
            max_candidates: 1024,
            time: Span(Duration::from_millis(2)),
            memory: None,
            strikes: 3,
            grants: Vec::new(),
        }
    }
}

impl Default for File {
    fn default() -> Self {
        File {
            schema: 1,
            node: None,
            exit_on_error: false,
            strict_readiness: true,
            record: PathBuf::new(),
            record_max: Size(1 << 30),
            model: Model::default(),
            http: Http::default(),
            grpc: Grpc::default(),
            metrics: Metrics::default(),
            limits: Limits::default(),
            connections: Connections::default(),
            shared_memory: SharedMemory::default(),
            drain: Drain::default(),
            runtime: Runtime::default(),
            log: Log::default(),
            admin: Admin::default(),
            tls: Tls::default(),
            auth: None,
            state: None,
            plugins: Plugins::default(),
            otlp: None,
        }
    }
}

const fn seconds(n: u64) -> Span {
    Span(Duration::from_secs(n))
}

impl Default for Model {
    fn default() -> Self {
        Model {
            repository: Vec::new(),
            control_mode: ControlMode::None,
            load: Vec::new(),
            poll: seconds(15),
            auto_complete: true,
            default_max_batch_size: 4,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Http { enabled: true, address: "0.0.0.0".to_owned(), port: 8000, allowed_origins: Vec::new() }
    }
}

impl Default for Grpc {
    fn default() -> Self {
        Grpc { enabled: true, address: "0.0.0.0".to_owned(), port: 8001, keepalive: seconds(30) }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics { enabled: true, address: None, port: 8002, triton_names: true }
    }
}

impl Default for Admin {
    fn default() -> Self {
        let address = "127.0.0.1".to_owned();
        Admin { enabled: true, address, port: 8003, keys_file: PathBuf::new(), upload: false, peek: false }
    }
}

/// Which objects of system shared memory clients may register.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SharedMemory {
    /// Without it `on` where HTTP and gRPC listen on loopback alone, otherwise `off`.
    pub allow: Option<AllowSharedMemory>,
    /// How a key must begin, for `prefix`.
    pub prefix: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AllowSharedMemory {
    Off,
    /// Objects whose key begins with `prefix`.
    Prefix,
    On,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request: Size(64 << 20),
            in_flight: 65536,
            queued: Size(4 << 30),
            state: None,
            stream_unread: Size(8 << 20),
            instances: Bounds::default().instances,
            slots: Bounds::default().slots,
            inputs: 1000,
            outputs: 1000,
            parameters: 1000,
            sequences_per_peer: None,
            in_flight_per_peer: None,
            queued_per_peer: None,
        }
    }
}

impl Default for Connections {
    fn default() -> Self {
        Connections {
            max: 8192,
            per_peer: 4096,
            reserved: 32,
            first_byte: seconds(10),
            head: seconds(30),
            body: seconds(30),
            idle: seconds(600),
            streams: 1000,
        }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Drain { announce: seconds(5), finish: seconds(20), exit_timeout: seconds(30) }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Runtime { onnxruntime: PathBuf::new(), threads_per_instance: 1, spinning: false }
    }
}

impl Default for Log {
    fn default() -> Self {
        Log { format: LogFormat::Text, level: "info".to_owned() }
    }
}

// === not served yet ===

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Auth {
    keys_file: Option<PathBuf>,
    restricted: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct State {
    dir: Option<PathBuf>,
    url: Option<String>,
    lease: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Otlp {
    endpoint: Option<String>,
    sample: Option<f64>,
}
