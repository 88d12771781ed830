//! The schema of the server's `sequor.toml`: every setting, once, with its default and its help.

use std::path::PathBuf;
use std::time::Duration;

use super::access::RestrictionTexts;
use super::key::{Key, choice, section};
use super::listen_address::ListenAddress;
use super::store_url::StoreUrl;
use crate::config::units::{Size, Span};

/// Every key, in the order of the reference.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().copied().flatten()
}

const SECTIONS: [&[Key]; 18] = [
    ServerFile::KEYS,
    ModelSection::KEYS,
    Http::KEYS,
    Grpc::KEYS,
    MetricsSection::KEYS,
    AdminSection::KEYS,
    TlsSection::KEYS,
    Auth::KEYS,
    ServerLimits::KEYS,
    CacheSection::KEYS,
    Connections::KEYS,
    SharedMemorySection::KEYS,
    Drain::KEYS,
    Runtime::KEYS,
    LogSection::KEYS,
    PluginsSection::KEYS,
    StateSection::KEYS,
    Otlp::KEYS,
];

const fn seconds(n: u64) -> Span {
    Span(Duration::from_secs(n))
}

section! {
    /// The whole file. A key that is absent has its default.
    pub struct ServerFile, "" {
        /// Name of this server on the status page and in its first line; default: the host name
        pub node: Option<String> = None;
        /// Stop if a model fails to load at the start
        pub exit_on_error: bool = false;
        /// Run every instance on the CPU, also of KIND_GPU; the log has a line for each model that asks for a GPU
        pub cpu_only: bool = false;
        /// Report ready only while every model that should be loaded is ready
        pub strict_readiness: bool = true, reload;
        /// File to record requests in: times, sizes and hashed ids, no tensors (see sequor simulate --trace)
        pub record: PathBuf = PathBuf::new();
        /// Maximum bytes of the recording; beyond it the oldest requests are overwritten
        pub record_max: Size = Size(1 << 30);
        /// execution_count: an instance waits for the resources of its `rate_limiter`; off: it does not
        pub rate_limit: RateLimit = RateLimit::Off;
        /// Capacity of a resource, as NAME:COUNT or NAME:COUNT:DEVICE; default: the largest demand of one instance
        pub rate_limit_resource: Vec<String> = Vec::new();
    }
    with {
        pub schema: u32 = 1;
        pub model: ModelSection = ModelSection::default();
        pub http: Http = Http::default();
        pub grpc: Grpc = Grpc::default();
        pub metrics: MetricsSection = MetricsSection::default();
        pub admin: AdminSection = AdminSection::default();
        pub tls: TlsSection = TlsSection::default();
        pub auth: Auth = Auth::default();
        pub limits: ServerLimits = ServerLimits::default();
        pub cache: CacheSection = CacheSection::default();
        pub connections: Connections = Connections::default();
        pub shared_memory: SharedMemorySection = SharedMemorySection::default();
        pub drain: Drain = Drain::default();
        pub runtime: Runtime = Runtime::default();
        pub log: LogSection = LogSection::default();
        pub plugins: PluginsSection = PluginsSection::default();
        pub state: StateSection = StateSection::default();
        pub otlp: Otlp = Otlp::default();
    }
}

choice! {
    pub enum RateLimit {
        Off = "off",
        /// Instances take turns by their priorities.
        ExecutionCount = "execution_count",
    }
}

section! {
    /// Which models are served, and who controls that.
    pub struct ModelSection, "model." {
        /// Directory of models in Triton's layout
        pub repository: Vec<PathBuf> = Vec::new();
        /// When models are loaded: none (all, at the start), poll (all, and again when files change), explicit (those of --load-model, then on request)
        pub control_mode: ControlMode = ControlMode::None;
        /// Model to load at the start in control mode explicit; * is all
        pub load: Vec<String> = Vec::new();
        /// Interval between two scans of the repository in control mode poll
        pub poll: Span = seconds(15), positive;
        /// Complete a missing or partial config.pbtxt from the ONNX model; if false, refuse the model
        pub auto_complete: bool = true, reload;
        /// max_batch_size of a model that can batch and whose configuration does not say it; 0: such a model does not batch
        pub default_max_batch_size: u32 = 4, reload;
    }
}

choice! {
    pub enum ControlMode {
        /// Everything in the repository, as it is at the start.
        None = "none",
        /// Everything in the repository, looked at again and again.
        Poll = "poll",
        /// What `load` names, and what clients ask for.
        Explicit = "explicit",
    }
}

section! {
    #[allow(rustdoc::bare_urls, reason = "help of flags is plain text")]
    pub struct Http, "http." {
        /// Serve over HTTP
        pub enabled: bool = true;
        /// Address of the HTTP listener
        pub address: ListenAddress = ListenAddress::EVERY;
        /// Port of the HTTP listener
        pub port: u16 = 8000;
        /// Origin whose web pages may open WebSockets, infer and change settings, as https://app.example.org; * is every origin; the server's own address is always allowed
        pub allowed_origins: Vec<String> = Vec::new(), reload;
        /// Groups of endpoints that HTTP requests reach only with the header KEY: VALUE (model-repository,logging:admin-key=VALUE); the value is shown nowhere
        pub restricted_api: RestrictionTexts = RestrictionTexts::default(), reload;
    }
}

section! {
    pub struct Grpc, "grpc." {
        /// Serve over gRPC
        pub enabled: bool = true;
        /// Address of the gRPC listener
        pub address: ListenAddress = ListenAddress::EVERY;
        /// Port of the gRPC listener
        pub port: u16 = 8001;
        /// How long an HTTP/2 or WebSocket connection may be silent before the server sends a ping
        pub keepalive: Span = seconds(30), reload;
        /// The same for gRPC calls, with the metadata triton-grpc-protocol-KEY: VALUE
        pub restricted_protocol: RestrictionTexts = RestrictionTexts::default(), reload;
    }
}

section! {
    pub struct MetricsSection, "metrics." {
        /// Serve metrics
        pub enabled: bool = true;
        /// Address of the metrics listener; that of HTTP if not given
        pub address: Option<ListenAddress> = None;
        /// Port of the metrics listener
        pub port: u16 = 8002;
        /// Publish nv_inference_* beside sequor_*
        pub triton_names: bool = true;
    }
}

section! {
    /// The operators' own listener. An empty path is none.
    pub struct AdminSection, "admin." {
        /// Serve operators: the status page, /admin, /openapi.json
        pub enabled: bool = true;
        /// Address of the admin listener; beyond this machine only with keys or client certificates
        pub address: ListenAddress = ListenAddress::THIS_MACHINE;
        /// Port of the admin listener
        pub port: u16 = 8003;
        /// File of the keys that operators need, a line name:key for each; reloaded
        pub keys_file: PathBuf = PathBuf::new(), reload;
        /// Take plug-ins, states of sequences and files of models over the wire
        pub upload: bool = false, reload;
        /// Let operators see ids that are texts, and states of sequences, which may hold client data
        pub peek: bool = false, reload;
        /// Maximum bytes of a captured sequence, with the states, inputs and outputs that its clients sent and got; 0B captures none
        pub capture: Size = Size(0), reload;
    }
}

section! {
    /// Of the listeners for clients and operators; empty paths are none.
    pub struct TlsSection, "tls." {
        /// Certificate (PEM) of the HTTP, gRPC and admin listeners; reloaded
        pub cert: PathBuf = PathBuf::new();
        /// Its private key (PEM)
        pub key: PathBuf = PathBuf::new();
        /// Certificate (PEM) of the authority whose certificates clients must show; none need to if not given
        pub client_ca: PathBuf = PathBuf::new();
    }
}

section! {
    /// Who may call the listeners for clients. An empty path is none.
    pub struct Auth, "auth." {
        /// File of the keys that clients need over HTTP and gRPC, a line name:key for each; reloaded
        pub keys_file: PathBuf = PathBuf::new(), reload;
        /// Groups of endpoints that need a key: repository, trace, log, or a name of http.restricted_api; all but health if not given
        pub restricted: Option<Vec<String>> = None, reload;
    }
}

section! {
    /// The server's limits on requests, models and memory.
    #[derive(Copy, Eq)]
    pub struct ServerLimits, "limits." {
        /// Maximum bytes of one request
        pub request: Size = Size(64 << 20), positive;
        /// Maximum requests in flight
        pub in_flight: usize = 65_536, positive, reload;
        /// Maximum total size of bodies that arrive, of inputs of requests in flight and of answers that clients have not taken, across all models; if not given, at most a quarter of the memory of the machine or of its control group
        pub queued: Size = Size(4 << 30), reload;
        /// Maximum bytes of sequence state, across all models; if not given, three quarters of the memory of the machine or of its control group, less limits.queued
        pub state: Option<Size> = None, reload;
        /// Maximum bytes of the tensors that ONNX Runtime allocates on the host, all models together; a run that needs more fails; if not given, three quarters of the memory of the machine or of its control group
        pub tensors: Option<Size> = None, positive;
        /// Maximum bytes of answers a client may leave unread on one stream
        pub stream_unread: Size = Size(8 << 20), positive, reload;
        /// Maximum instances of one model
        pub instances: u32 = 256, positive, reload;
        /// Maximum slots of one model, all its instances together
        pub slots: u64 = 1 << 18, positive, reload;
        /// Maximum inputs of one request
        pub inputs: usize = 1000, positive, reload;
        /// Maximum requested outputs of one request
        pub outputs: usize = 1000, positive, reload;
        /// Maximum parameters of one request, those of its inputs and outputs included
        pub parameters: usize = 1000, positive, reload;
        /// Maximum live sequences of one client, all models together; no maximum if not given
        pub sequences_per_peer: Option<u64> = None, positive, reload;
        /// Maximum requests in flight of one client; no maximum if not given
        pub in_flight_per_peer: Option<u64> = None, positive, reload;
        /// Maximum bytes of inputs of one client's requests in flight and of answers it has not taken; no maximum if not given
        pub queued_per_peer: Option<Size> = None, reload;
    }
}

section! {
    /// Answers that are kept for requests with the same inputs.
    #[derive(Copy, Eq)]
    pub struct CacheSection, "cache." {
        /// Maximum bytes of kept answers of models with response_cache, all models together; none are kept if not given
        pub size: Option<Size> = None;
    }
}

section! {
    /// What one client may do with connections.
    #[derive(Copy, Eq)]
    pub struct Connections, "connections." {
        /// Maximum open connections of HTTP and gRPC together; one more is closed at once; lowered if the process may not open as many files
        pub max: usize = 8192, positive, reload;
        /// Maximum open connections of HTTP and gRPC from one address (IPv6: one /64 network); one more is closed at once
        pub per_peer: usize = 4096, positive, reload;
        /// Connections that are kept for the admin and for the metrics listener each, on top of connections.max; one address gets at most half of those for metrics
        pub reserved: usize = 32, positive, reload;
        /// Maximum time for a TLS handshake, and then until the first byte of a connection; then it is closed
        pub first_byte: Span = seconds(10), positive, reload;
        /// Maximum time to receive a request's headers, over HTTP/1.1 also between two requests; then the connection is closed
        pub head: Span = seconds(30), positive, reload;
        /// Maximum time without a byte of a body that has begun, and for which it may arrive at less than 1 KiB a second; then the request is refused; streams may rest between messages
        pub body: Span = seconds(30), positive, reload;
        /// Maximum time in which a client takes no byte of what is sent to it; then the connection is closed; over HTTP/2, an answer that waits for its stream's window this long is given up, and its stream is reset
        pub write: Span = seconds(60), positive, reload;
        /// Time without a request after which a connection is closed; 0s is never
        pub idle: Span = seconds(600), reload;
        /// Maximum concurrent requests on one HTTP/2 connection; clients wait with further ones
        pub streams: u32 = 1000, positive, reload;
    }
}

section! {
    /// Which objects of system shared memory clients may register.
    pub struct SharedMemorySection, "shared_memory." {
        /// Whether clients may register system shared memory; if not given, on where HTTP and gRPC listen on loopback, otherwise off
        pub allow: Option<AllowSharedMemory> = None;
        /// How the keys begin that clients may register, for shared_memory.allow = "prefix"
        pub prefix: String = String::new();
    }
}

choice! {
    pub enum AllowSharedMemory {
        Off = "off",
        /// Objects whose key begins with `prefix`.
        Prefix = "prefix",
        On = "on",
    }
}

section! {
    /// How a stopping server goes out.
    #[derive(Copy, Eq)]
    pub struct Drain, "drain." {
        /// After SIGTERM, report not-ready for this long while still accepting requests, so that load balancers can react
        pub announce: Span = seconds(5), reload;
        /// After that, refuse new sequences for up to this long while live ones finish; ends early if none is live
        pub finish: Span = seconds(20), reload;
        /// Maximum time of a drain; then connections are cut and states are stored
        pub exit_timeout: Span = seconds(30), reload;
    }
}

section! {
    pub struct Runtime, "runtime." {
        /// File of the ONNX Runtime library; looked up if not given
        pub onnxruntime: PathBuf = PathBuf::new();
        /// Threads one run of a model may use
        pub threads_per_instance: u16 = 1, positive;
        /// Let those threads wait busily between operators
        pub spinning: bool = false;
        /// Lowest level of ONNX Runtime's own messages that reach the log, under the target onnxruntime: info at level debug, verbose at level trace
        pub log_level: RuntimeLogLevel = RuntimeLogLevel::Error;
    }
}

choice! {
    /// Levels of ONNX Runtime's messages.
    pub enum RuntimeLogLevel {
        Verbose = "verbose",
        Info = "info",
        Warning = "warning",
        Error = "error",
        Fatal = "fatal",
    }
}

section! {
    pub struct LogSection, "log." {
        /// Form of the log
        pub format: LogFormat = LogFormat::Text;
        /// Log level: error, warn, info, debug, trace, off, or a filter by module (info,sequor=debug)
        pub level: String = "info".to_owned(), reload;
    }
}

choice! {
    pub enum LogFormat {
        Text = "text",
        Json = "json",
    }
}

section! {
    /// What plug-ins may do, and where they are. An empty path is none.
    pub struct PluginsSection, "plugins." {
        /// Directory of plug-ins, NAME.wasm each
        pub dir: PathBuf = PathBuf::new();
        /// Let a plug-in's file that changes take the place of what serves, once it has been tried
        pub watch: bool = true;
        /// Refuse a model whose file names a plug-in without its hash
        pub require_sha256: bool = false;
        /// Maximum requests a scheduler is shown at a time
        pub max_candidates: u32 = 1024, positive;
        /// CPU time a call of a scheduler may take, unless the model says otherwise
        pub time: Span = Span(Duration::from_millis(2)), positive;
        /// Memory an instance of a plug-in may take, unless the model says otherwise; what its language needs if not given
        pub memory: Option<Size> = None, positive;
        /// Maximum `max_wait` that a model may set for its scheduler; at least 1s
        pub max_wait: Span = Span(Duration::from_secs(60)), positive;
        /// Strikes within a minute after which a plug-in is parked
        pub strikes: u32 = 3, positive;
        /// Maximum percent of a core that a scheduler's calls may take at a model; beyond it the built-in policy decides for the rest of that second
        pub cpu_share: Option<u32> = None, positive;
        /// Maximum instances of a plug-in that calls other models, at each model that names it; further calls wait in order
        pub instances: u32 = 64, positive;
        /// Extra permissions for named plug-ins: NAME=clock, NAME=random, NAME=sequence-text, NAME=model:MODEL
        pub grants: Vec<String> = Vec::new();
    }
}

/// The permissions that a plug-in can get beyond its world.
pub const GRANTS: [&str; 4] = ["clock", "random", "sequence-text", "model:MODEL"];
/// The prefix of the permission to call a model, followed by the model's name.
pub const GRANT_MODEL: &str = "model:";

section! {
    /// Where sequences are kept that outlive the process.
    pub struct StateSection, "state." {
        /// Directory of the store of sequences, readable by the server's user only; models with durability need it, or state.url
        pub dir: PathBuf = PathBuf::new();
        /// Maximum bytes of stored states, all models together; the file may take several times as much
        pub disk_limit: Size = Size(16 << 30), positive;
        /// Redis that several servers share instead of a directory: redis://HOST:PORT/DATABASE, or rediss:// with TLS
        pub url: Option<StoreUrl> = None;
        /// Time after which other servers may take over the sequences of a server that they do not hear of; from 200ms to 1m
        pub lease: Span = Span(Duration::from_secs(2)), positive;
        /// Report ready also while this server has no lease on the sequences it shares; false: a proxy sends its requests elsewhere meanwhile
        pub ready_without_lease: bool = true, reload;
    }
}

section! {
    /// Traces of requests, for an OpenTelemetry collector.
    pub struct Otlp, "otlp." {
        /// URL of the OpenTelemetry collector to which spans of requests are sent, as http://HOST:4318; none are made if not given
        pub endpoint: Option<String> = None;
        /// Protocol of the collector
        pub protocol: OtlpProtocol = OtlpProtocol::HttpProtobuf;
        /// Share of requests that are traced, from 0 to 1; a traceparent header decides for its own request
        pub sample: f64 = 0.01, share, reload;
    }
}

choice! {
    /// How spans reach the collector.
    pub enum OtlpProtocol {
        HttpProtobuf = "http/protobuf",
        Grpc = "grpc",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use toml::Value;

    use super::*;
    use crate::config::server::key::ValueKind;

    fn sample(kind: ValueKind) -> &'static str {
        match kind {
            ValueKind::Bool => "true",
            ValueKind::Number => "1",
            ValueKind::Ratio => "0.5",
            ValueKind::Text | ValueKind::Texts | ValueKind::Path | ValueKind::Paths | ValueKind::Restrictions => "x",
            ValueKind::Span => "1s",
            ValueKind::Size => "1MiB",
            ValueKind::Address => "127.0.0.9",
            ValueKind::Choice(choices) => choices[0],
        }
    }

    #[test]
    fn every_declared_key_is_accepted_in_the_settings_file() {
        for key in keys() {
            let mut value = key.kind.read(sample(key.kind)).unwrap();
            for part in key.parts().into_iter().rev() {
                value = Value::Table([(part.to_owned(), value)].into_iter().collect());
            }
            assert!(value.clone().try_into::<ServerFile>().is_ok(), "{value}");
        }
    }

    /// The field names in serde's error about an unknown field.
    fn fields(text: &str) -> BTreeSet<String> {
        let shown = toml::from_str::<ServerFile>(text).unwrap_err().message().to_owned();
        let (_, names) = shown.split_once("expected").unwrap();
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn every_key_of_the_settings_file_is_declared() {
        let sections: BTreeSet<&str> = keys().filter_map(|k| k.path.split_once('.')).map(|(s, _)| s).collect();
        let mut paths: BTreeSet<String> =
            fields("bogus = 1").into_iter().filter(|f| !sections.contains(f.as_str())).collect();
        for section in sections {
            paths.extend(fields(&format!("[{section}]\nbogus = 1")).into_iter().map(|f| format!("{section}.{f}")));
        }
        assert!(paths.remove("schema"), "of the file alone");
        assert_eq!(paths, keys().map(|k| k.path.to_owned()).collect());
    }

    #[test]
    fn flag_and_variable_names_derive_from_the_path_of_the_key() {
        let key = keys().find(|k| k.path == "runtime.threads_per_instance").unwrap();
        assert_eq!(
            (key.flag().as_str(), key.variable().as_str()),
            ("runtime-threads-per-instance", "SEQUOR_RUNTIME_THREADS_PER_INSTANCE")
        );
        assert_eq!(key.default(), Some(Value::Integer(1)));
    }
}
