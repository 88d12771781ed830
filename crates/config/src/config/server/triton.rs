//! All flags of `tritonserver`, so that its command lines keep working. A flag sets a key of Sequor, is accepted without effect (with one
//! notice), or is refused with a remedy. A flag that changes answers or access is never ignored silently.

use super::key::ValueKind;

/// A flag of `tritonserver`, and how Sequor handles it.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    pub name: &'static str,
    pub support: FlagSupport,
}

#[derive(Debug, Clone, Copy)]
pub enum FlagSupport {
    /// Sequor has this flag with the same meaning.
    Own,
    /// The flag sets this key.
    Sets { key: &'static str, how: FlagConversion },
    /// The flag has no effect; the reason.
    Nothing(&'static str),
    /// The flag is refused; `instead` is the remedy. With one of the values in `unless` it requests nothing and is accepted.
    Refused { unless: &'static [&'static str], instead: &'static str },
    /// The flag asks for traces. In OpenTelemetry's form it sets keys of `otlp`; `instead` is the remedy for the other form.
    Traces { instead: &'static str },
}

/// The conversion of the flag's value to that of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagConversion {
    AsIs,
    /// Adds this unit: `--exit-timeout-secs 30` becomes `"30s"`.
    Unit(&'static str),
    /// Negates the value.
    Not,
    /// `true` becomes `on`, `false` becomes `off`.
    OnOff,
    /// The flag has no value, and means `false`.
    Off,
    /// 0 changes nothing; a higher value becomes [`VERBOSE`].
    Verbosity,
    /// `true` changes nothing; `false` sets this level.
    Quiet(&'static str),
    /// Parses `local,size=BYTES`.
    LocalCache,
    /// Parses `default-max-batch-size`, a setting of ONNX Runtime or of all backends. [`ort_log_level`] parses another setting; all others
    /// have no effect.
    DefaultBatch,
}

/// The level of `--log-verbose`: the debug lines of libraries are about frames of HTTP/2, and are left out.
const VERBOSE: &str = "info,sequor=debug";

use FlagSupport::{Nothing, Own, Refused, Sets, Traces};

const fn flag(name: &'static str, support: FlagSupport) -> Flag {
    Flag { name, support }
}

const fn sets(name: &'static str, key: &'static str, how: FlagConversion) -> Flag {
    flag(name, Sets { key, how })
}

const fn nothing(name: &'static str, why: &'static str) -> Flag {
    flag(name, Nothing(why))
}

const fn refused(name: &'static str, instead: &'static str) -> Flag {
    flag(name, Refused { unless: &[], instead })
}

const fn refused_unless(name: &'static str, unless: &'static [&'static str], instead: &'static str) -> Flag {
    flag(name, Refused { unless, instead })
}

const NO: &[&str] = &["false", "0"];
const NO_TLS: &str = "TLS is set for gRPC and HTTP together: --tls-cert, --tls-key, --tls-client-ca";
const NO_PINGS: &str =
    "the server closes no connection for its pings; --grpc-keepalive sets when it pings a silent one";
const NO_TRACE: &str =
    "spans go to an OpenTelemetry collector (--otlp-endpoint URL), and requests are recorded with --record FILE";
const NO_SHARING: &str = "a port belongs to one server; put a proxy in front of several";
const NO_HEADERS: &str = "headers are not forwarded to models; send request parameters";
const NO_GPU: &str = "instances take GPU memory as they need it; a model's instance_group names its GPUs";
const NO_CLOUD: &str = "this platform's protocol is not served";
const NO_BACKENDS: &str = "the one backend, ONNX Runtime, is built in; --runtime-onnxruntime names its library";
const NO_THREADS: &str = "the number of threads is not a setting";
const NO_TENSORFLOW: &str = "TensorFlow is not served";

pub const FLAGS: &[Flag] = &[
    // === server and models ===
    flag("help", Own),
    sets("id", "node", FlagConversion::AsIs),
    sets("exit-timeout-secs", "drain.exit_timeout", FlagConversion::Unit("s")),
    flag("model-repository", Own),
    sets("model-store", "model.repository", FlagConversion::AsIs),
    flag("exit-on-error", Own),
    sets("disable-auto-complete-config", "model.auto_complete", FlagConversion::Off),
    sets("strict-model-config", "model.auto_complete", FlagConversion::Not),
    flag("strict-readiness", Own),
    flag("model-control-mode", Own),
    sets("repository-poll-secs", "model.poll", FlagConversion::Unit("s")),
    sets("load-model", "model.load", FlagConversion::AsIs),
    nothing("model-load-thread-count", "each model is loaded on a thread of its own"),
    nothing(
        "model-load-retry-count",
        "a model that failed is loaded again when it is asked for, or when the server starts",
    ),
    refused_unless("model-namespacing", NO, "model names are one name space; rename one of the models"),
    refused("model-config-name", "config.pbtxt is the one configuration of a model"),
    // === HTTP ===
    sets("allow-http", "http.enabled", FlagConversion::AsIs),
    flag("http-address", Own),
    flag("http-port", Own),
    refused_unless("reuse-http-port", NO, NO_SHARING),
    refused("http-header-forward-pattern", NO_HEADERS),
    nothing("http-thread-count", NO_THREADS),
    flag("http-restricted-api", Own),
    sets("http-max-input-size", "limits.request", FlagConversion::Unit("B")),
    // === gRPC ===
    sets("allow-grpc", "grpc.enabled", FlagConversion::AsIs),
    flag("grpc-address", Own),
    flag("grpc-port", Own),
    refused_unless("reuse-grpc-port", NO, NO_SHARING),
    refused("grpc-header-forward-pattern", NO_HEADERS),
    nothing("grpc-infer-allocation-pool-size", "requests are not pooled"),
    nothing("grpc-infer-thread-count", NO_THREADS),
    nothing("grpc-stream-infer-thread-count", NO_THREADS),
    refused_unless("grpc-use-ssl", NO, NO_TLS),
    refused_unless("grpc-use-ssl-mutual", NO, NO_TLS),
    refused("grpc-server-cert", NO_TLS),
    refused("grpc-server-key", NO_TLS),
    refused("grpc-root-cert", NO_TLS),
    nothing("grpc-infer-response-compression-level", "answers over gRPC are not compressed"),
    sets("grpc-keepalive-time", "grpc.keepalive", FlagConversion::Unit("ms")),
    nothing("grpc-keepalive-timeout", NO_PINGS),
    nothing("grpc-keepalive-permit-without-calls", NO_PINGS),
    nothing("grpc-http2-max-pings-without-data", NO_PINGS),
    nothing("grpc-http2-min-recv-ping-interval-without-data", NO_PINGS),
    nothing("grpc-http2-max-ping-strikes", NO_PINGS),
    nothing("grpc-max-connection-age", "connections have no maximum age; a proxy can balance them"),
    nothing("grpc-max-connection-age-grace", "connections have no maximum age; a proxy can balance them"),
    flag("grpc-restricted-protocol", Own),
    // === logs ===
    sets("log-verbose", "log.level", FlagConversion::Verbosity),
    sets("log-info", "log.level", FlagConversion::Quiet("warn")),
    sets("log-warning", "log.level", FlagConversion::Quiet("error")),
    sets("log-error", "log.level", FlagConversion::Quiet("off")),
    flag("log-format", Own),
    refused("log-file", "logs go to standard error; redirect it"),
    // === other surfaces ===
    refused_unless("allow-sagemaker", NO, NO_CLOUD),
    nothing("sagemaker-port", NO_CLOUD),
    nothing("sagemaker-safe-port-range", NO_CLOUD),
    nothing("sagemaker-thread-count", NO_CLOUD),
    refused_unless("allow-vertex-ai", NO, NO_CLOUD),
    nothing("vertex-ai-port", NO_CLOUD),
    nothing("vertex-ai-thread-count", NO_CLOUD),
    nothing("vertex-ai-default-model", NO_CLOUD),
    sets("allow-client-shm", "shared_memory.allow", FlagConversion::OnOff),
    // === metrics and traces ===
    sets("allow-metrics", "metrics.enabled", FlagConversion::AsIs),
    nothing("allow-gpu-metrics", "metrics of the GPUs that instances run on are always published"),
    nothing("allow-cpu-metrics", "the machine's own metrics are left to its own exporters"),
    flag("metrics-address", Own),
    flag("metrics-port", Own),
    nothing("metrics-interval-ms", "metrics are current at every scrape"),
    nothing(
        "metrics-config",
        "the metrics of docs/reference/metrics.md are always there; summaries and first-response histograms are not served",
    ),
    flag("trace-config", Traces { instead: NO_TRACE }),
    refused("trace-file", NO_TRACE),
    refused_unless("trace-level", &["OFF"], NO_TRACE),
    nothing("trace-rate", NO_TRACE),
    nothing("trace-count", NO_TRACE),
    nothing("trace-log-frequency", NO_TRACE),
    // === cache, rates, devices, backends ===
    sets("cache-config", "cache.size", FlagConversion::LocalCache),
    sets("response-cache-byte-size", "cache.size", FlagConversion::Unit("B")),
    nothing("cache-directory", "the one cache, `local`, is built in"),
    flag("rate-limit", Own),
    flag("rate-limit-resource", Own),
    nothing("pinned-memory-pool-byte-size", NO_GPU),
    nothing("cuda-memory-pool-byte-size", NO_GPU),
    nothing(
        "cuda-virtual-address-size",
        "growing states reserve no address range; --limits-state limits all states together",
    ),
    nothing("min-supported-compute-capability", NO_GPU),
    nothing("enable-peer-access", NO_GPU),
    nothing("buffer-manager-thread-count", "an instance's own thread copies its inputs"),
    nothing("host-policy", "threads are left to the operating system; taskset and numactl bind the whole server"),
    nothing("model-load-gpu-limit", NO_GPU),
    nothing("backend-directory", NO_BACKENDS),
    sets("backend-config", "model.default_max_batch_size", FlagConversion::DefaultBatch),
    nothing("repoagent-directory", "repository agents are not served; a model that asks for one is refused"),
    // === deprecated flags ===
    nothing("allow-poll-model-repository", "--model-control-mode sets when models are loaded"),
    nothing("tf-allow-soft-placement", NO_TENSORFLOW),
    nothing("tf-gpu-memory-fraction", NO_TENSORFLOW),
    nothing("tf-add-vgpu", NO_TENSORFLOW),
];

impl Flag {
    /// The flags that set this key.
    pub fn of_key(key: &str) -> impl Iterator<Item = (&'static str, FlagConversion)> {
        FLAGS.iter().filter_map(move |flag| match flag.support {
            Sets { key: of, how } if of == key => Some((flag.name, how)),
            _ => None,
        })
    }

    /// Whether a refused flag requests nothing with this value.
    pub fn asks_for_nothing(&self, value: &str) -> bool {
        match self.support {
            Refused { unless, .. } => unless.iter().any(|u| u.eq_ignore_ascii_case(value)),
            _ => false,
        }
    }
}

/// Parses the stateful backend's setting of ONNX Runtime's log level, a number from 0 to 4. Returns the key and its value; `None` for
/// another setting.
pub fn ort_log_level(value: &str) -> Option<(&'static str, Result<&'static str, String>)> {
    let number = value.strip_prefix("stateful,ort-logging-level=")?;
    let level = match number {
        "0" => Ok("verbose"),
        "1" => Ok("info"),
        "2" => Ok("warning"),
        "3" => Ok("error"),
        "4" => Ok("fatal"),
        other => Err(format!("ort-logging-level is a number from 0 (verbose) to 4 (fatal), not \"{other}\"")),
    };
    Some(("runtime.log_level", level))
}

/// Translates another server's value of one of our own flags.
pub fn own_value(flag: &str, value: String) -> String {
    match (flag, value.as_str()) {
        ("log-format", "default" | "ISO8601") => "text".to_owned(),
        _ => value,
    }
}

/// Sorts settings of ONNX Runtime behind those of all backends, because the last value counts.
pub fn order_backend_settings(values: &mut [String]) {
    values.sort_by_key(|value| value.starts_with("onnxruntime,"));
}

/// The number in `onnxruntime,default-max-batch-size=N`, or in the same setting without a backend.
fn default_batch(value: &str) -> Option<&str> {
    let (backend, setting) = value.split_once(',').unwrap_or(("", value));
    let number = setting.strip_prefix("default-max-batch-size=")?;
    matches!(backend, "" | "onnxruntime").then_some(number)
}

/// The number of bytes in `local,size=BYTES`.
fn local_cache(value: &str) -> Result<u64, String> {
    let bytes = value.strip_prefix("local,").and_then(|setting| setting.strip_prefix("size="));
    bytes.and_then(|bytes| bytes.parse().ok()).ok_or_else(|| {
        format!("\"{value}\" is not served: the one cache is `local`, in the server's memory; write local,size=BYTES")
    })
}

impl FlagConversion {
    /// The key's value in Sequor's syntax; `None` if there is nothing to set.
    pub fn translate(self, value: &str) -> Result<Option<String>, String> {
        let truth = || ValueKind::Bool.read(value).map(|v| v.as_bool() == Some(true));
        Ok(match self {
            FlagConversion::AsIs => Some(value.to_owned()),
            FlagConversion::Unit(unit) => Some(format!("{value}{unit}")),
            FlagConversion::Not => Some((!truth()?).to_string()),
            FlagConversion::OnOff => Some(if truth()? { "on" } else { "off" }.to_owned()),
            FlagConversion::Off => Some("false".to_owned()),
            FlagConversion::Quiet(level) => (!truth()?).then(|| level.to_owned()),
            FlagConversion::Verbosity => match value.parse::<i64>() {
                Ok(n) => (n > 0).then(|| VERBOSE.to_owned()),
                Err(_) => truth().map_err(|_| format!("\"{value}\" is not a number"))?.then(|| VERBOSE.to_owned()),
            },
            FlagConversion::LocalCache => Some(format!("{}B", local_cache(value)?)),
            FlagConversion::DefaultBatch => default_batch(value).map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::server::file::keys;
    use crate::config::server::key::Key;
    use std::collections::BTreeSet;

    #[test]
    fn every_flag_is_here_once_and_leads_to_a_key() {
        let names: BTreeSet<&str> = FLAGS.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), FLAGS.len(), "one is here twice");
        assert!(FLAGS.len() >= 90, "{} flags", FLAGS.len());
        let ours: BTreeSet<String> = keys().map(Key::flag).collect();
        for flag in FLAGS.iter().filter(|f| f.name != "help") {
            match flag.support {
                Own => assert!(ours.contains(flag.name), "--{} is no flag of ours", flag.name),
                Sets { key, .. } => assert!(keys().any(|k| k.path == key), "no key {key}"),
                Nothing(text) | Refused { instead: text, .. } | Traces { instead: text } => {
                    assert!(!text.is_empty() && !text.ends_with('.'));
                }
            }
            assert!(matches!(flag.support, Own) || !ours.contains(flag.name), "--{} is ours", flag.name);
        }
    }

    #[test]
    fn triton_flag_values_are_translated() {
        let translated = |how: FlagConversion, value: &str| how.translate(value);
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(translated(FlagConversion::Unit("s"), "30"), some("30s"));
        assert_eq!(
            (translated(FlagConversion::Not, "False"), translated(FlagConversion::Not, "1")),
            (some("true"), some("false"))
        );
        assert_eq!(
            (translated(FlagConversion::OnOff, "true"), translated(FlagConversion::OnOff, "0")),
            (some("on"), some("off"))
        );
        assert_eq!(
            (translated(FlagConversion::Verbosity, "0"), translated(FlagConversion::Verbosity, "2")),
            (Ok(None), some(VERBOSE))
        );
        assert_eq!(
            (translated(FlagConversion::Verbosity, "true"), translated(FlagConversion::Quiet("warn"), "true")),
            (some(VERBOSE), Ok(None))
        );
        assert_eq!(translated(FlagConversion::Quiet("warn"), "false"), some("warn"));
        let mode = keys().find(|key| key.path == "model.control_mode").unwrap();
        assert_eq!(mode.kind.read("Explicit"), Ok(toml::Value::String("explicit".to_owned())));
        assert!(mode.kind.read("explicitly").is_err());
        assert_eq!(translated(FlagConversion::DefaultBatch, "onnxruntime,default-max-batch-size=8"), some("8"));
        assert_eq!(translated(FlagConversion::DefaultBatch, "default-max-batch-size=8"), some("8"));
        for other in
            ["tensorflow,version=2", "tensorflow,default-max-batch-size=8", "stateful,default-max-batch-size=8"]
        {
            assert_eq!(translated(FlagConversion::DefaultBatch, other), Ok(None), "{other}");
        }
        assert_eq!(translated(FlagConversion::LocalCache, "local,size=1048576"), some("1048576B"));
        assert!(translated(FlagConversion::LocalCache, "redis,host=r").is_err());
        assert!(
            translated(FlagConversion::Not, "maybe").is_err() && translated(FlagConversion::Verbosity, "loud").is_err()
        );
    }
}
