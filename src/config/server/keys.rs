//! Every key of the server's settings, once. `http.port` in the file is `--http-port` as a flag and `SEQUOR_HTTP_PORT` in the environment.

use std::str::FromStr as _;

use toml::Value;

use super::file::File;
use crate::config::units::{Size, Span};

#[derive(Debug)]
pub struct Key {
    /// Section and name.
    pub path: &'static str,
    pub kind: Kind,
    /// One sentence for `--help` and the reference; empty for what is not served yet.
    pub help: &'static str,
}

/// How text becomes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Number,
    Ratio,
    Text,
    Path,
    /// Repeatable as a flag, separated by commas in one text.
    Texts,
    Paths,
    Span,
    Size,
    Choice(&'static [&'static str]),
}

const fn key(path: &'static str, kind: Kind, help: &'static str) -> Key {
    Key { path, kind, help }
}

/// A key that parses and is refused.
const fn later(path: &'static str, kind: Kind) -> Key {
    key(path, kind, "")
}

pub const KEYS: &[Key] = &[
    key("node", Kind::Text, "Name of this server in what it says of itself; the host's name if not given"),
    key("exit_on_error", Kind::Bool, "Stop if a model fails to load at the start"),
    key("strict_readiness", Kind::Bool, "Be ready only when every wanted model is"),
    key(
        "record",
        Kind::Path,
        "File to record requests in: times, sizes and hashed ids, no tensors (see sequor simulate --trace)",
    ),
    key("record_max", Kind::Size, "Most bytes of the recording; the oldest requests give way"),
    key("model.repository", Kind::Paths, "Directory of models in Triton's layout"),
    key(
        "model.control_mode",
        Kind::Choice(&["none", "poll", "explicit"]),
        "Who says which models are loaded: the repository at the start, the repository at any time, or load and unload requests",
    ),
    key("model.load", Kind::Texts, "Model to load at the start in control mode explicit; * is all"),
    key("model.poll", Kind::Span, "How often the repository is looked at in control mode poll"),
    key(
        "model.auto_complete",
        Kind::Bool,
        "Take what a configuration leaves out from the model; without it, what is missing is refused",
    ),
    key(
        "model.default_max_batch_size",
        Kind::Number,
        "max_batch_size of a model that can batch and whose configuration does not say it",
    ),
    key("http.enabled", Kind::Bool, "Serve over HTTP"),
    key("http.address", Kind::Text, "Address of the HTTP listener"),
    key("http.port", Kind::Number, "Port of the HTTP listener"),
    key(
        "http.allowed_origins",
        Kind::Texts,
        "Origin whose web pages may open WebSockets, infer and change settings, as https://app.example.org; * is every origin; the server's own address is always allowed",
    ),
    key("grpc.enabled", Kind::Bool, "Serve over gRPC"),
    key("grpc.address", Kind::Text, "Address of the gRPC listener"),
    key("grpc.port", Kind::Number, "Port of the gRPC listener"),
    key("grpc.keepalive", Kind::Span, "How long a gRPC connection may be silent before it is asked for a sign of life"),
    key("metrics.enabled", Kind::Bool, "Serve metrics"),
    key("metrics.address", Kind::Text, "Address of the metrics listener; that of HTTP if not given"),
    key("metrics.port", Kind::Number, "Port of the metrics listener"),
    key("metrics.triton_names", Kind::Bool, "Publish nv_inference_* beside sequor_*"),
    key("admin.enabled", Kind::Bool, "Serve operators: the status page, /admin, /openapi.json"),
    key(
        "admin.address",
        Kind::Text,
        "Address of the operators' listener; beyond this machine only with keys or client certificates",
    ),
    key("admin.port", Kind::Number, "Port of the operators' listener"),
    key("admin.keys_file", Kind::Path, "File of the keys that operators need, a line name:key for each; reloaded"),
    key("admin.upload", Kind::Bool, "Take plug-ins and states of sequences over the wire"),
    key("admin.peek", Kind::Bool, "Show operators the ids that are texts, and states of sequences"),
    key("tls.cert", Kind::Path, "Certificate (PEM) of the HTTP, gRPC and operators' listeners; reloaded"),
    key("tls.key", Kind::Path, "Its private key (PEM)"),
    key(
        "tls.client_ca",
        Kind::Path,
        "Certificate (PEM) of the authority whose certificates clients must show; none need to if not given",
    ),
    key("limits.request", Kind::Size, "Most bytes of one request"),
    key("limits.in_flight", Kind::Number, "Most requests in flight"),
    key("limits.queued", Kind::Size, "Most bytes of inputs of requests in flight, all models together"),
    key(
        "limits.state",
        Kind::Size,
        "Most bytes of sequence state, all models together; three quarters of the memory if not given",
    ),
    key("limits.stream_unread", Kind::Size, "Most bytes of answers a client may leave unread on one stream"),
    key("limits.instances", Kind::Number, "Maximum instances of one model"),
    key("limits.slots", Kind::Number, "Maximum slots of one model, all its instances together"),
    key(
        "connections.max",
        Kind::Number,
        "Maximum open connections of HTTP and gRPC together; one more is closed at once; lowered if the process may not open as many files",
    ),
    key(
        "connections.per_peer",
        Kind::Number,
        "Maximum open connections of HTTP and gRPC from one address (IPv6: one /64 network); one more is closed at once",
    ),
    key(
        "connections.reserved",
        Kind::Number,
        "Connections that are kept for the operators' and for the metrics listener each, on top of connections.max",
    ),
    key(
        "connections.first_byte",
        Kind::Span,
        "Maximum time for a TLS handshake, and then until the first byte of a connection; then it is closed",
    ),
    key(
        "connections.head",
        Kind::Span,
        "Maximum time for the head of a request; over HTTP/1.1 also between two requests; then the connection is closed",
    ),
    key(
        "connections.body",
        Kind::Span,
        "Maximum time without a byte of a body that has begun; then the request is refused; streams may rest between messages",
    ),
    key("connections.idle", Kind::Span, "Time without a request after which a connection is closed; 0s is never"),
    key(
        "connections.streams",
        Kind::Number,
        "Maximum concurrent requests on one HTTP/2 connection; clients wait with further ones",
    ),
    key("limits.inputs", Kind::Number, "Maximum inputs of one request"),
    key("limits.outputs", Kind::Number, "Maximum requested outputs of one request"),
    key(
        "limits.parameters",
        Kind::Number,
        "Maximum parameters of one request, those of its inputs and outputs included",
    ),
    key(
        "limits.sequences_per_peer",
        Kind::Number,
        "Maximum live sequences of one client, all models together; no maximum if not given",
    ),
    key("limits.in_flight_per_peer", Kind::Number, "Maximum requests in flight of one client; no maximum if not given"),
    key(
        "limits.queued_per_peer",
        Kind::Size,
        "Maximum bytes of inputs of one client's requests in flight; no maximum if not given",
    ),
    key(
        "shared_memory.allow",
        Kind::Choice(&["off", "prefix", "on"]),
        "Whether clients may register system shared memory; if not given, on where HTTP and gRPC listen on loopback, otherwise off",
    ),
    key(
        "shared_memory.prefix",
        Kind::Text,
        "How the keys begin that clients may register, for shared_memory.allow = \"prefix\"",
    ),
    key("drain.announce", Kind::Span, "How long a stopping server is not ready but still takes everything"),
    key("drain.finish", Kind::Span, "How long it then takes no new sequences while live ones go on"),
    key("drain.exit_timeout", Kind::Span, "How long stopping may take in all"),
    key("runtime.onnxruntime", Kind::Path, "File of the ONNX Runtime library; looked up if not given"),
    key("runtime.threads_per_instance", Kind::Number, "Threads one run of a model may use"),
    key("runtime.spinning", Kind::Bool, "Let those threads wait busily between operators"),
    key("log.format", Kind::Choice(&["text", "json"]), "Form of the log"),
    key("log.level", Kind::Text, "Log level: error, warn, info, debug, trace, or a filter by module"),
    later("auth.keys_file", Kind::Path),
    later("auth.restricted", Kind::Texts),
    later("state.dir", Kind::Path),
    later("state.url", Kind::Text),
    later("state.lease", Kind::Span),
    key("plugins.dir", Kind::Path, "Directory of plug-ins, NAME.wasm each"),
    key(
        "plugins.watch",
        Kind::Bool,
        "Let a plug-in's file that changes take the place of what serves, once it has been tried",
    ),
    key("plugins.require_sha256", Kind::Bool, "Refuse a model whose file names a plug-in without its hash"),
    key("plugins.max_candidates", Kind::Number, "Most requests a scheduler is shown at a time"),
    key("plugins.time", Kind::Span, "CPU time a call of a plug-in may take, unless the model says otherwise"),
    key(
        "plugins.memory",
        Kind::Size,
        "Memory an instance of a plug-in may take, unless the model says otherwise; what its language needs if not given",
    ),
    key("plugins.strikes", Kind::Number, "Strikes within a minute after which a plug-in is parked"),
    key("plugins.grants", Kind::Texts, "What plug-ins are given beyond their world: clock, random, sequence-text"),
    later("otlp.endpoint", Kind::Text),
    later("otlp.sample", Kind::Ratio),
];

impl Key {
    pub fn is_served(&self) -> bool {
        !self.help.is_empty()
    }

    /// `http-port`.
    pub fn flag(&self) -> String {
        self.path.replace(['.', '_'], "-")
    }

    /// `SEQUOR_HTTP_PORT`.
    pub fn variable(&self) -> String {
        format!("SEQUOR_{}", self.path.replace('.', "_").to_ascii_uppercase())
    }

    /// Section (empty at the top) and name.
    pub fn parts(&self) -> Vec<&'static str> {
        self.path.split('.').collect()
    }

    /// The default, as the file would write it; `None` if there is none.
    pub fn default(&self) -> Option<Value> {
        let defaults = toml::Table::try_from(File::default()).ok()?;
        let mut value = Value::Table(defaults);
        for part in self.parts() {
            value = value.as_table_mut()?.remove(part)?;
        }
        Some(value)
    }
}

impl Kind {
    /// The value this text stands for.
    pub fn read(self, text: &str) -> Result<Value, String> {
        match self {
            Kind::Bool => match text.to_ascii_lowercase().as_str() {
                "true" | "1" => Ok(Value::Boolean(true)),
                "false" | "0" => Ok(Value::Boolean(false)),
                _ => Err(format!("\"{text}\" is neither true nor false")),
            },
            Kind::Number => text.parse().map(Value::Integer).map_err(|_| format!("\"{text}\" is not a number")),
            Kind::Ratio => text.parse().map(Value::Float).map_err(|_| format!("\"{text}\" is not a number")),
            Kind::Text | Kind::Path => Ok(Value::String(text.to_owned())),
            Kind::Texts | Kind::Paths => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Ok(Value::Array(parts.map(|part| Value::String(part.to_owned())).collect()))
            }
            Kind::Span => Span::from_str(text).map(|_| Value::String(text.to_owned())),
            Kind::Size => Size::from_str(text).map(|_| Value::String(text.to_owned())),
            Kind::Choice(choices) if choices.contains(&text) => Ok(Value::String(text.to_owned())),
            Kind::Choice(choices) => Err(format!("\"{text}\" is none of {}", choices.join(", "))),
        }
    }

    /// What help calls the value.
    pub fn placeholder(self) -> String {
        match self {
            Kind::Bool => "BOOL".to_owned(),
            Kind::Number => "N".to_owned(),
            Kind::Ratio => "RATIO".to_owned(),
            Kind::Text | Kind::Texts => "TEXT".to_owned(),
            Kind::Path | Kind::Paths => "PATH".to_owned(),
            Kind::Span => "DURATION".to_owned(),
            Kind::Size => "SIZE".to_owned(),
            Kind::Choice(choices) => choices.join("|"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn sample(kind: Kind) -> &'static str {
        match kind {
            Kind::Bool => "true",
            Kind::Number => "1",
            Kind::Ratio => "0.5",
            Kind::Text | Kind::Texts | Kind::Path | Kind::Paths => "x",
            Kind::Span => "1s",
            Kind::Size => "1MiB",
            Kind::Choice(choices) => choices[0],
        }
    }

    #[test]
    fn every_key_is_one_of_the_file() {
        for key in KEYS {
            let mut value = key.kind.read(sample(key.kind)).unwrap();
            for part in key.parts().into_iter().rev() {
                value = Value::Table([(part.to_owned(), value)].into_iter().collect());
            }
            assert!(value.clone().try_into::<File>().is_ok(), "{value}");
        }
    }

    /// What serde says it expects instead of a field that does not exist.
    fn fields(text: &str) -> BTreeSet<String> {
        let said = toml::from_str::<File>(text).unwrap_err().message().to_owned();
        let (_, names) = said.split_once("expected").unwrap();
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn every_key_of_the_file_is_here() {
        let sections: BTreeSet<&str> = KEYS.iter().filter_map(|k| k.path.split_once('.')).map(|(s, _)| s).collect();
        let mut paths: BTreeSet<String> =
            fields("bogus = 1").into_iter().filter(|f| !sections.contains(f.as_str())).collect();
        for section in sections {
            paths.extend(fields(&format!("[{section}]\nbogus = 1")).into_iter().map(|f| format!("{section}.{f}")));
        }
        assert!(paths.remove("schema"), "of the file alone");
        assert_eq!(paths, KEYS.iter().map(|k| k.path.to_owned()).collect());
    }

    #[test]
    fn names_are_made_from_the_path() {
        let key = KEYS.iter().find(|k| k.path == "runtime.threads_per_instance").unwrap();
        assert_eq!(
            (key.flag().as_str(), key.variable().as_str()),
            ("runtime-threads-per-instance", "SEQUOR_RUNTIME_THREADS_PER_INSTANCE")
        );
        assert_eq!(key.default(), Some(Value::Integer(1)));
    }
}
