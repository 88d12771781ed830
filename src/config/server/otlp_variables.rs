//! OpenTelemetry's variables for our keys.

/// The variable whose URL already names the traces.
pub(super) const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// The variables of a key. A later one wins over an earlier one, and our own variable over both.
pub(super) const VARIABLES: [(&str, [&str; 2]); 2] = [
    ("otlp.endpoint", ["OTEL_EXPORTER_OTLP_ENDPOINT", TRACES_ENDPOINT]),
    ("otlp.protocol", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"]),
];
