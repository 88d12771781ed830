//! Where log lines go, and how they look: standard error, as text for people or JSON for collectors. What is logged stands where it happens.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("RUST_LOG or the log level, {directives:?}, is not understood: {cause}")]
    Filter { directives: String, cause: ParseError },
    #[error("logs are set up already: {0}")]
    Twice(#[from] TryInitError),
}

/// Sets logs up for the whole process. `rust_log` is the environment's `RUST_LOG`; if it says anything, it is asked instead of `level`.
pub fn init(format: LogFormat, level: &str, rust_log: Option<&str>) -> Result<(), LogError> {
    let filter = filter(level, rust_log)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // On a terminal tracing's own choice stands, which heeds NO_COLOR.
    let builder = if std::io::stderr().is_terminal() { builder } else { builder.with_ansi(false) };
    match format {
        LogFormat::Text => builder.finish().try_init()?,
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}

fn filter(level: &str, rust_log: Option<&str>) -> Result<EnvFilter, LogError> {
    let directives = rust_log.filter(|text| !text.is_empty()).unwrap_or(level);
    EnvFilter::try_new(directives).map_err(|cause| LogError::Filter { directives: directives.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_beats_the_setting() {
        assert_eq!(filter("info", Some("sequor=debug")).expect("a filter").to_string(), "sequor=debug");
        assert_eq!(filter("info", Some("")).expect("a filter").to_string(), "info");
        assert_eq!(filter("warn", None).expect("a filter").to_string(), "warn");
        let error = filter("a=b=c", None).expect_err("no filter");
        assert!(error.to_string().contains("a=b=c"), "{error}");
    }
}
