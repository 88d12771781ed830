//! OpenTelemetry's variables for our keys, and its samplers in our terms.

/// The variable whose URL already names the traces.
pub(super) const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// The variables of a key. A later one wins over an earlier one, and our own variable over both.
pub(super) const VARIABLES: [(&str, [&str; 2]); 2] = [
    ("otlp.endpoint", ["OTEL_EXPORTER_OTLP_ENDPOINT", TRACES_ENDPOINT]),
    ("otlp.protocol", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"]),
];

/// The variable that names a sampler, and the one with its share.
pub(super) const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_SHARE: &str = "OTEL_TRACES_SAMPLER_ARG";

/// A sampler of OpenTelemetry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sampler {
    /// The share of traces that are kept, as text.
    pub(super) share: String,
    /// Whether a caller decides for the requests that it sends.
    pub(super) follows_parent: bool,
}

/// The sampler that the environment names, if it does.
pub(super) fn sampler(variable: &dyn Fn(&str) -> Option<String>) -> Option<Result<Sampler, String>> {
    let set = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let name = set(SAMPLER)?;
    let root = name.strip_prefix("parentbased_").unwrap_or(&name);
    let follows_parent = root != name;
    let share = match root {
        "always_on" => "1".to_owned(),
        "always_off" => "0".to_owned(),
        "traceidratio" => set(SAMPLER_SHARE).unwrap_or_else(|| "1".to_owned()),
        _ => {
            return Some(Err(format!(
                "\"{name}\" is none of always_on, always_off, traceidratio, and the same after parentbased_"
            )));
        }
    };
    Some(Ok(Sampler { share, follows_parent }))
}
