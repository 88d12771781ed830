//! The settings of the export of traces: the keys under `otlp`, and the variables that every OpenTelemetry program knows (`OTEL_*`).

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use percent_encoding::percent_decode_str;

use super::file::{Otlp, OtlpProtocol};
use super::layers::Origin;
use super::otlp_variables::{SAMPLER, TRACES_ENDPOINT, sampler};
use crate::config::fault::{Fault, code};

/// The path of a collector's traces over HTTP.
const TRACES: &str = "/v1/traces";
/// Maximum time of one export, unless `OTEL_EXPORTER_OTLP_TIMEOUT` says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where and how traces are exported. The headers of exports may be secrets: only the exporter's library reads them, from the environment.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpSettings {
    /// The URL of the collector; over HTTP with the path of its traces.
    pub endpoint: String,
    pub is_tls: bool,
    pub protocol: OtlpProtocol,
    /// The share of requests that are traced if their clients do not decide.
    pub sample: f64,
    /// Whether clients decide for the requests that they send.
    pub follows_parent: bool,
    /// Maximum time of one export, with all its attempts.
    pub timeout: Duration,
    /// The authority that the collector's certificate comes from; `None` for those of the system.
    pub authority: Option<PathBuf>,
    /// The attributes of this server, by their names.
    pub resource: Vec<(String, String)>,
    pub pace: ExportPace,
}

/// How finished requests gather for an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportPace {
    /// Maximum number of requests that wait.
    pub waiting: usize,
    /// Maximum number of requests in one export.
    pub batch: usize,
    /// Time between two exports, unless the queue fills.
    pub every: Duration,
}

impl Default for ExportPace {
    fn default() -> Self {
        ExportPace { waiting: 8192, batch: 512, every: Duration::from_secs(1) }
    }
}

/// Number of spans of most requests. OpenTelemetry's limits count spans.
const SPANS: usize = 3;

impl ExportPace {
    /// The pace that the variables ask for. A value that is no positive number has no effect.
    fn new(set: &dyn Fn(&str) -> Option<String>) -> ExportPace {
        let number = |name: &str| set(name)?.trim().parse::<u32>().ok().filter(|number| *number > 0);
        let requests = |name: &str| Some((usize::try_from(number(name)?).ok()? / SPANS).max(1));
        let default = ExportPace::default();
        let waiting = requests("OTEL_BSP_MAX_QUEUE_SIZE").unwrap_or(default.waiting);
        let batch = requests("OTEL_BSP_MAX_EXPORT_BATCH_SIZE").unwrap_or(default.batch).min(waiting);
        let every = number("OTEL_BSP_SCHEDULE_DELAY").map(|millis| Duration::from_millis(millis.into()));
        ExportPace { waiting, batch, every: every.unwrap_or(default.every) }
    }
}

/// The URL of a collector as the exporter needs it, and whether it asks for TLS. `names_traces`: its path is that of traces already.
fn collector_url(text: &str, protocol: OtlpProtocol, names_traces: bool) -> Option<(String, bool)> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Uri = text.parse().ok()?;
    let (scheme, authority) = (url.scheme_str()?, url.authority()?);
    let rest = authority.as_str().strip_prefix(authority.host())?;
    let is_host =
        !authority.host().is_empty() && (rest.is_empty() || authority.port_u16().is_some_and(|port| port > 0));
    let is_plain = matches!(scheme, "http" | "https") && url.query().is_none() && !text.contains('#');
    let path = url.path().trim_end_matches('/');
    let path = match protocol {
        OtlpProtocol::Grpc => "",
        OtlpProtocol::HttpProtobuf => path,
    };
    let traces = match protocol {
        OtlpProtocol::HttpProtobuf if !names_traces && !path.ends_with(TRACES) => TRACES,
        _ => "",
    };
    (is_host && is_plain).then(|| (format!("{scheme}://{authority}{path}{traces}"), scheme == "https"))
}

/// The settings, if traces are exported. `node` is the name of this server.
pub(super) fn resolve(
    section: &Otlp,
    origin: &dyn Fn(&str) -> Origin,
    variable: &dyn Fn(&str) -> Option<String>,
    node: &str,
) -> Result<Option<OtlpSettings>, Fault> {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let is_disabled = set("OTEL_SDK_DISABLED").is_some_and(|value| value.trim().eq_ignore_ascii_case("true"));
    let Some(endpoint) = section.endpoint.as_deref().filter(|endpoint| !endpoint.is_empty() && !is_disabled) else {
        return Ok(None);
    };
    let endpoint_origin = origin("otlp.endpoint");
    let names_traces = endpoint_origin == Origin::Environment(TRACES_ENDPOINT.to_owned());
    // A user or password of the URL would be a secret in the settings, so the fault does not repeat it.
    let wrong = |what: String| Fault { at: endpoint_origin.at(), code: code::VALUE, what };
    if endpoint.contains('@') {
        return Err(wrong("otlp.endpoint may hold no password; set OTEL_EXPORTER_OTLP_HEADERS".to_owned()));
    }
    let (endpoint, is_tls) = collector_url(endpoint, section.protocol, names_traces).ok_or_else(|| {
        wrong(format!("\"{endpoint}\" is no URL of a collector; write http://HOST:PORT or https://HOST:PORT"))
    })?;
    let of_variables = |names: &[&str]| -> Result<Vec<(String, String)>, Fault> {
        let Some((name, text)) = names.iter().find_map(|name| Some(((*name).to_owned(), set(name)?))) else {
            return Ok(Vec::new());
        };
        // The text may hold a secret, so the fault does not repeat it.
        let what = || format!("{name} is no list of NAME=VALUE, separated by commas");
        pairs(&text).ok_or_else(|| Fault {
            at: Origin::Environment(name.clone()).at(),
            code: code::VALUE,
            what: what(),
        })
    };
    // The library would leave out what it cannot parse.
    of_variables(&["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"])?;
    let attributes = of_variables(&["OTEL_RESOURCE_ATTRIBUTES"])?;
    let timeout = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"].into_iter().find_map(&set);
    let milliseconds = timeout.and_then(|text| text.trim().parse().ok()).filter(|milliseconds| *milliseconds > 0);
    let authority =
        ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"].into_iter().find_map(&set);
    // A flag or a variable of ours says nothing of parents.
    let is_sampler = origin("otlp.sample") == Origin::Environment(SAMPLER.to_owned());
    let sampler = sampler(variable).and_then(Result::ok).filter(|_| is_sampler);
    Ok(Some(OtlpSettings {
        pace: ExportPace::new(&set),
        follows_parent: sampler.is_none_or(|sampler| sampler.follows_parent),
        endpoint,
        is_tls,
        protocol: section.protocol,
        sample: section.sample,
        timeout: milliseconds.map_or(TIMEOUT, Duration::from_millis),
        authority: authority.map(PathBuf::from),
        resource: resource(attributes, set("OTEL_SERVICE_NAME"), node),
    }))
}

/// The attributes of this server. Those of the environment win over ours, and `OTEL_SERVICE_NAME` over both.
fn resource(of_environment: Vec<(String, String)>, service: Option<String>, node: &str) -> Vec<(String, String)> {
    let ours =
        [("service.name", "sequor"), ("service.instance.id", node), ("service.version", env!("CARGO_PKG_VERSION"))];
    let ours = ours.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let named = service.map(|name| ("service.name".to_owned(), name));
    let mut all: Vec<(String, String)> = Vec::new();
    for (name, value) in ours.into_iter().chain(of_environment).chain(named) {
        all.retain(|(other, _)| *other != name);
        all.push((name, value));
    }
    all
}

/// Parses `NAME=VALUE,NAME=VALUE`. Values may be percent-encoded.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let pair = |entry: &str| {
        let (name, value) = entry.split_once('=')?;
        let name = name.trim();
        (!name.is_empty()).then(|| Some((name.to_owned(), percent_decoded(value.trim())?)))?
    };
    entries.map(pair).collect()
}

fn percent_decoded(text: &str) -> Option<String> {
    // The crate keeps a sign that begins no byte; here it is a fault.
    let is_byte =
        |rest: &str| rest.get(..2).is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let is_encoded = text.split('%').skip(1).all(is_byte);
    is_encoded.then(|| percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned))?
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::server::flags::GivenFlags;
    use crate::config::server::settings::{HostInfo, Settings, load};

    fn settings(file: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
        let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let host = HostInfo { name: "here".to_owned(), memory: None };
        let file = Some((Path::new("sequor.toml"), file));
        load(file, &variable, &GivenFlags::default(), &host)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    fn otlp(file: &str, variables: &[(&str, &str)]) -> OtlpSettings {
        settings(file, variables).expect("settings").otlp.expect("traces are exported")
    }

    #[test]
    fn a_collector_url_may_leave_out_scheme_and_path() {
        let parse = |text: &str| collector_url(text, OtlpProtocol::HttpProtobuf, false);
        let url = |text: &str| Some((text.to_owned(), text.starts_with("https")));
        assert_eq!(parse("http://c:4318"), url("http://c:4318/v1/traces"));
        assert_eq!(parse("https://c"), url("https://c/v1/traces"));
        assert_eq!(parse("localhost:4318/v1/traces"), url("http://localhost:4318/v1/traces"));
        assert_eq!(parse("https://c/otlp/"), url("https://c/otlp/v1/traces"));
        assert_eq!(parse("http://[::1]:9"), url("http://[::1]:9/v1/traces"));
        for wrong in [
            "",
            "http://",
            "ftp://c",
            "http://c:x",
            "http://c:0",
            "http://c:",
            "http://a b",
            "http://::1:9",
            "http://c?k=v",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(collector_url("http://c/x", OtlpProtocol::HttpProtobuf, true), url("http://c/x"));
        assert_eq!(collector_url("https://c:4317/v1/traces", OtlpProtocol::Grpc, false), url("https://c:4317"));
    }

    #[test]
    fn without_an_endpoint_nothing_is_exported() {
        assert_eq!(settings("[otlp]\nsample = 1.0\n", &[]).map(|settings| settings.otlp), Ok(None));
        let disabled = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_SDK_DISABLED", "true")];
        assert_eq!(settings("", &disabled).map(|settings| settings.otlp), Ok(None));
        let defaults = otlp("[otlp]\nendpoint = \"http://c\"\n", &[]);
        assert_eq!((defaults.protocol, defaults.sample), (OtlpProtocol::HttpProtobuf, 0.01));
        assert_eq!(defaults.timeout, Duration::from_secs(10));
    }

    #[test]
    fn variables_of_opentelemetry_are_below_ours_and_above_the_file() {
        let file = "[otlp]\nendpoint = \"http://file\"\n";
        let host = |variables: &[(&str, &str)]| {
            let endpoint = otlp(file, variables).endpoint;
            endpoint.trim_start_matches("http://").trim_end_matches("/v1/traces").to_owned()
        };
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/as/it/is");
        let ours = ("SEQUOR_OTLP_ENDPOINT", "http://ours");
        assert_eq!((host(&[]), host(&[general])), ("file".to_owned(), "general".to_owned()));
        assert_eq!(
            (host(&[general, traces]), host(&[general, traces, ours])),
            ("traces/as/it/is".to_owned(), "ours".to_owned())
        );
        assert_eq!(host(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), "file", "an empty variable is none");
        let grpc = otlp(file, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert_eq!((grpc.protocol, grpc.endpoint.as_str()), (OtlpProtocol::Grpc, "http://file"));
        let shown = settings(file, &[general]).expect("settings").shown;
        let row = shown.iter().find(|row| row.key == "otlp.endpoint").expect("a row");
        assert_eq!(row.origin, "OTEL_EXPORTER_OTLP_ENDPOINT");
    }

    #[test]
    fn attributes_and_limits_come_from_the_environment() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret, x-tenant=a"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod,service.name=other,service.instance.id=pod-1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ];
        let file = "node = \"n1\"\n[otlp]\nendpoint = \"http://c\"\n";
        let settings = otlp(file, &variables);
        assert!(!format!("{settings:?}").contains("s3cret"));
        assert_eq!((settings.timeout, settings.authority), (Duration::from_millis(250), Some("/ca.pem".into())));
        let of = |variables: &[(&str, &str)], name: &str| {
            otlp(file, variables).resource.into_iter().find(|(other, _)| other == name).map(|(_, value)| value)
        };
        assert_eq!(of(&variables, "service.name").as_deref(), Some("other"));
        assert_eq!(of(&variables, "service.instance.id").as_deref(), Some("pod-1"));
        assert_eq!(of(&[], "service.name").as_deref(), Some("sequor"));
        assert_eq!(of(&[], "service.instance.id").as_deref(), Some("n1"));
        let named = [variables[1], ("OTEL_SERVICE_NAME", "asr")];
        assert_eq!(of(&named, "service.name").as_deref(), Some("asr"));
    }

    #[test]
    fn samplers_and_limits_of_opentelemetry_are_served() {
        let file = "[otlp]\nendpoint = \"http://c\"\nsample = 0.5\n";
        let of = |variables: &[(&str, &str)]| {
            let settings = otlp(file, variables);
            (settings.sample, settings.follows_parent)
        };
        let sampler = |name: &'static str| ("OTEL_TRACES_SAMPLER", name);
        let share = ("OTEL_TRACES_SAMPLER_ARG", "0.25");
        assert_eq!((of(&[]), of(&[share])), ((0.5, true), (0.5, true)), "a share without a sampler says nothing");
        assert_eq!((of(&[sampler("always_on")]), of(&[sampler("parentbased_always_on")])), ((1.0, false), (1.0, true)));
        assert_eq!(
            (of(&[sampler("always_off")]), of(&[sampler("parentbased_always_off")])),
            ((0.0, false), (0.0, true))
        );
        assert_eq!(of(&[sampler("traceidratio"), share]), (0.25, false));
        assert_eq!(of(&[sampler("parentbased_traceidratio"), share]), (0.25, true));
        assert_eq!(of(&[sampler("traceidratio")]), (1.0, false));
        let ours = ("SEQUOR_OTLP_SAMPLE", "0.75");
        assert_eq!(of(&[sampler("always_off"), ours]), (0.75, true), "ours wins");
        let refused = |variables: &[(&str, &str)]| settings(file, variables).map(|_| ()).expect_err("refused");
        assert!(refused(&[sampler("xray")]).starts_with("OTEL_TRACES_SAMPLER: \"xray\" is none of always_on"));
        let wrong = refused(&[sampler("traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "1.5")]);
        assert!(wrong.starts_with("OTEL_TRACES_SAMPLER: "), "{wrong}");

        let pace = |variables: &[(&str, &str)]| otlp(file, variables).pace;
        assert_eq!(pace(&[]), ExportPace::default());
        let limits = [
            ("OTEL_BSP_MAX_QUEUE_SIZE", "2048"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "512"),
            ("OTEL_BSP_SCHEDULE_DELAY", "5000"),
        ];
        let expected = ExportPace { waiting: 682, batch: 170, every: Duration::from_secs(5) };
        assert_eq!(pace(&limits), expected);
        let odd = [("OTEL_BSP_MAX_QUEUE_SIZE", "1"), ("OTEL_BSP_SCHEDULE_DELAY", "-1")];
        assert_eq!(pace(&odd), ExportPace { waiting: 1, batch: 1, ..ExportPace::default() });
    }

    #[test]
    fn wrong_values_of_the_export_are_refused_at_their_place() {
        assert_eq!(
            settings("[otlp]\nendpoint = \"ftp://c\"\n", &[]).map(|_| ()),
            Err("sequor.toml:2:1: \"ftp://c\" is no URL of a collector; write http://HOST:PORT or https://HOST:PORT"
                .to_owned())
        );
        let sample = |value: &str| settings(&format!("[otlp]\nsample = {value}\n"), &[]).map(|_| ());
        assert_eq!(sample("1.5"), Err("sequor.toml:2:1: otlp.sample must be from 0 to 1".to_owned()));
        assert!(sample("-0.1").is_err() && sample("nan").is_err());
        assert_eq!((sample("0"), sample("1"), sample("0.25")), (Ok(()), Ok(()), Ok(())));
        for headers in ["s3cret", "authorization=s3cret%2", "authorization=s3cret%zz"] {
            let headers = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_EXPORTER_OTLP_HEADERS", headers)];
            let refused = settings("", &headers).map(|_| ()).expect_err("refused");
            assert!(refused.starts_with("OTEL_EXPORTER_OTLP_HEADERS: ") && !refused.contains("s3cret"), "{refused}");
        }
        let refused = settings("[otlp]\nendpoint = \"http://u:s3cret@c\"\n", &[]).map(|_| ()).expect_err("refused");
        assert!(refused.starts_with("sequor.toml:2:1: ") && !refused.contains("s3cret"), "{refused}");
        let protocol = settings("", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]).map(|_| ()).expect_err("refused");
        assert_eq!(protocol, "OTEL_EXPORTER_OTLP_PROTOCOL: \"http/json\" is none of http/protobuf, grpc");
    }
}
