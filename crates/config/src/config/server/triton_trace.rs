//! Triton's `--trace-config`, as far as it asks for traces in OpenTelemetry's form. Its own form, a file of timestamps, is refused.

/// Triton's collector, unless `opentelemetry,url` names one.
const DEFAULT_URL: &str = "http://localhost:4318/v1/traces";

/// The meaning of all values of `--trace-config` together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TraceConfig {
    /// Keys with their values.
    pub(super) sets: Vec<(&'static str, String)>,
    /// Values that have no effect, and why.
    pub(super) notices: Vec<String>,
    /// Why the values are refused; empty if they are not.
    pub(super) wrong: Vec<String>,
}

impl TraceConfig {
    pub(super) fn parse(values: &[String], instead: &str) -> TraceConfig {
        let mut config = TraceConfig::default();
        let is_mode = |value: &String| value.trim() == "mode=opentelemetry";
        let is_opentelemetry = values.iter().any(|value| is_mode(value) || value.trim().starts_with("opentelemetry,"));
        let mut levels = values.iter().filter_map(|value| value.trim().strip_prefix("level=")).peekable();
        if levels.peek().is_some() && levels.all(|level| level.eq_ignore_ascii_case("OFF")) {
            return config;
        }
        if !is_opentelemetry {
            config.wrong.push(instead.to_owned());
            return config;
        }
        let mut url = DEFAULT_URL.to_owned();
        for value in values.iter().map(|value| value.trim()) {
            let (mode, setting) = value.split_once(',').unwrap_or(("", value));
            match (mode, setting.split_once('=')) {
                ("", Some(("mode", "opentelemetry"))) => {}
                ("", Some(("level", level))) if level.eq_ignore_ascii_case("TIMESTAMPS") => {}
                ("", Some(("rate", rate))) => config.rate(rate),
                ("opentelemetry", Some(("url", given))) => url = given.to_owned(),
                ("opentelemetry", Some(("resource", _))) => {
                    config.notices.push(format!("{value} has no effect: set OTEL_RESOURCE_ATTRIBUTES"));
                }
                ("", Some(("count", "-1"))) => {}
                ("", Some(("mode" | "level", _))) => config.wrong.push(instead.to_owned()),
                _ => config.notices.push(format!("{value} has no effect")),
            }
        }
        config.sets.insert(0, ("otlp.endpoint", url));
        config
    }

    /// One in `rate` requests is traced.
    fn rate(&mut self, rate: &str) {
        match rate.parse::<u32>() {
            Ok(0) => self.sets.push(("otlp.sample", "0".to_owned())),
            Ok(rate) => self.sets.push(("otlp.sample", (1.0 / f64::from(rate)).to_string())),
            Err(_) => self.wrong.push(format!("rate=\"{rate}\" is not a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> TraceConfig {
        TraceConfig::parse(&values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>(), "not this")
    }

    #[test]
    fn opentelemetry_mode_sets_the_endpoint_and_the_sample() {
        let config =
            parse(&["mode=opentelemetry", "opentelemetry,url=http://c:4318/v1/traces", "rate=100", "level=TIMESTAMPS"]);
        let set = |key: &'static str, value: &str| (key, value.to_owned());
        assert_eq!(config.sets, [set("otlp.endpoint", "http://c:4318/v1/traces"), set("otlp.sample", "0.01")]);
        assert_eq!((config.notices, config.wrong), (vec![], vec![]));
        assert_eq!(parse(&["mode=opentelemetry"]).sets, [set("otlp.endpoint", DEFAULT_URL)]);
        assert_eq!(parse(&["opentelemetry,url=localhost:1"]).sets, [set("otlp.endpoint", "localhost:1")]);
        let rest = parse(&["mode=opentelemetry", "opentelemetry,bsp_max_queue_size=4", "opentelemetry,resource=a=b"]);
        assert_eq!(rest.notices.len(), 2, "{rest:?}");
    }

    #[test]
    fn the_other_form_of_traces_is_refused() {
        assert_eq!(parse(&["level=OFF"]), TraceConfig::default());
        for values in [&["level=TIMESTAMPS"][..], &["triton,file=/t"], &["mode=triton"], &["rate=3"]] {
            assert_eq!(parse(values).wrong, ["not this"], "{values:?}");
        }
        assert!(!parse(&["mode=opentelemetry", "level=TENSORS"]).wrong.is_empty());
        assert!(!parse(&["mode=opentelemetry", "rate=x"]).wrong.is_empty());
    }
}
