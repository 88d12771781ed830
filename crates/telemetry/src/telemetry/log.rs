//! The log on standard error: as text for people or as JSON for collectors, and which levels are written. The levels can change while the
//! server runs. The code that causes an event writes its log line.

use std::io::IsTerminal as _;

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, ParseError, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::config::server::file::LogFormat;

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("RUST_LOG or the log level, {directives:?}, is not understood: {cause}")]
    Filter { directives: String, cause: ParseError },
    #[error(
        "{setting}: {word:?} is not a log level. Levels: error, warn, info, debug, trace, off. A filter names modules: \
         info,sequor=debug"
    )]
    Level { setting: &'static str, word: String },
    #[error("logs are set up already: {0}")]
    Twice(#[from] TryInitError),
    #[error("the log cannot be changed: {0}")]
    Reload(#[from] reload::Error),
}

/// The levels that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    pub error: bool,
    pub warning: bool,
    pub info: bool,
    /// 1 means debug; 2 or more means trace.
    pub verbose: u32,
}

/// The target of audit lines. When clients change the levels, these lines are still written as the operator configured.
pub const AUDIT: &str = "sequor::audit";

type Chosen = Box<dyn Filter<Registry> + Send + Sync>;

/// The process has one log.
static LOG: Mutex<Option<ProcessLog>> = Mutex::new(None);

struct ProcessLog {
    levels: Levels,
    /// The operator's filter.
    operators: String,
    /// The environment's `RUST_LOG`, which replaces the level of the settings.
    rust_log: Option<String>,
    handle: Handle<Chosen, Registry>,
}

/// Sets up the log of the process. `rust_log` is the environment's `RUST_LOG`. If it is not empty, it replaces `level`.
pub fn init(format: LogFormat, level: &str, rust_log: Option<&str>) -> Result<(), LogError> {
    let (subscriber, log) = subscriber(format, filter(level, rust_log)?, std::io::stderr);
    subscriber.try_init()?;
    *LOG.lock() = Some(ProcessLog { rust_log: rust_log.map(str::to_owned), ..log });
    Ok(())
}

/// The current levels. A filter may be finer than the levels show.
pub fn levels() -> Levels {
    LOG.lock().as_ref().map_or(Levels::up_to(LevelFilter::INFO), |log| log.levels)
}

/// Whether a level of the settings is one.
pub fn check(level: &str) -> Result<(), LogError> {
    filter(level, None).map(|_| ())
}

/// Whether the environment's `RUST_LOG` replaces the level of the settings.
pub fn is_overridden() -> bool {
    LOG.lock().as_ref().is_some_and(|log| given(log.rust_log.as_deref()).is_some())
}

/// Changes the level of the settings. If it is the same as before, the levels that clients have set stay.
pub fn configure(level: &str) -> Result<(), LogError> {
    match LOG.lock().as_mut() {
        Some(log) => log.configure(level),
        None => Ok(()),
    }
}

/// Sets the levels, in place of the configured ones.
pub fn set_levels(levels: Levels) -> Result<(), LogError> {
    match LOG.lock().as_mut() {
        Some(log) => log.set(levels),
        None => Ok(()),
    }
}

impl ProcessLog {
    fn configure(&mut self, level: &str) -> Result<(), LogError> {
        let wanted = filter(level, self.rust_log.as_deref())?;
        let operators = wanted.to_string();
        if operators == self.operators {
            return Ok(());
        }
        let levels = Levels::of(&wanted);
        self.handle.reload(chosen(wanted, Levels::up_to(LevelFilter::TRACE), EnvFilter::new(&operators)))?;
        (self.levels, self.operators) = (levels, operators);
        Ok(())
    }

    fn set(&mut self, levels: Levels) -> Result<(), LogError> {
        self.handle.reload(chosen(filter(&levels.directives(), None)?, levels, filter(&self.operators, None)?))?;
        self.levels = levels;
        Ok(())
    }
}

impl Levels {
    fn of(filter: &EnvFilter) -> Levels {
        Levels::up_to(filter.max_level_hint().unwrap_or(LevelFilter::TRACE))
    }

    fn up_to(most: LevelFilter) -> Levels {
        let verbose = if most >= LevelFilter::TRACE { 2 } else { u32::from(most >= LevelFilter::DEBUG) };
        let has = |level: LevelFilter| most >= level;
        Levels {
            error: has(LevelFilter::ERROR),
            warning: has(LevelFilter::WARN),
            info: has(LevelFilter::INFO),
            verbose,
        }
    }

    fn has(self, level: Level) -> bool {
        match level {
            Level::ERROR => self.error,
            Level::WARN => self.warning,
            Level::INFO => self.info,
            Level::DEBUG => self.verbose > 0,
            _ => self.verbose > 1,
        }
    }

    /// Other crates log at most `info`: their debug lines are many, and do not help with models.
    fn directives(self) -> String {
        let all = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
        let most = all.into_iter().find(|level| self.has(*level)).map_or(LevelFilter::OFF, LevelFilter::from);
        format!("{},sequor={most},sequor_core={most}", most.min(LevelFilter::INFO))
    }
}

fn subscriber<W>(format: LogFormat, filter: EnvFilter, writer: W) -> (impl Subscriber + Send + Sync, ProcessLog)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let levels = Levels::of(&filter);
    let everything = Levels::up_to(LevelFilter::TRACE);
    let operators = filter.to_string();
    let audit = EnvFilter::new(&operators);
    let (filter, handle) = reload::Layer::new(chosen(filter, everything, audit));
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    // On a terminal, tracing decides about colours itself, and respects NO_COLOR.
    let lines = if std::io::stderr().is_terminal() { lines } else { lines.with_ansi(false) };
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    (Registry::default().with(lines.with_filter(filter)), ProcessLog { levels, operators, rust_log: None, handle })
}

/// The lines of these levels that pass the filter, and the audit lines that pass the operator's filter.
fn chosen(filter: EnvFilter, levels: Levels, operators: EnvFilter) -> Chosen {
    let is_audit = |metadata: &Metadata<'_>| metadata.target() == AUDIT;
    let has = move |metadata: &Metadata<'_>| levels.has(*metadata.level());
    let any = LevelFilter::TRACE;
    let audit = operators.and(filter_fn(is_audit).with_max_level_hint(any));
    filter
        .and(filter_fn(has).with_max_level_hint(any))
        .and(filter_fn(is_ours).with_max_level_hint(any))
        .or(audit)
        .boxed()
}

/// Whether a line is logged. Lines of the OpenTelemetry library are left out, because they may repeat a collector's texts and because Sequor
/// logs failed exports itself. The exception is the line about spans that a collector rejects: Sequor has no line of its own for that.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    !metadata.target().starts_with("opentelemetry") || metadata.name().ends_with("PartialSuccess")
}

/// `RUST_LOG`, if it is not empty.
fn given(rust_log: Option<&str>) -> Option<&str> {
    rust_log.filter(|text| !text.trim().is_empty())
}

fn filter(level: &str, rust_log: Option<&str>) -> Result<EnvFilter, LogError> {
    let (setting, directives) = given(rust_log).map_or(("log.level", level), |text| ("RUST_LOG", text));
    let words = directives.split(',').map(str::trim).filter(|word| !word.is_empty());
    let words = words.map(|word| directive(setting, word)).collect::<Result<Vec<&str>, LogError>>()?;
    if words.is_empty() {
        return Err(LogError::Level { setting, word: String::new() });
    }
    let directives = words.join(",");
    EnvFilter::try_new(&directives).map_err(|cause| LogError::Filter { directives, cause })
}

/// Parses one directive of a filter, and replaces other names of levels. The filter would take an unknown word as a module name, and
/// suppress everything else.
fn directive<'a>(setting: &'static str, word: &'a str) -> Result<&'a str, LogError> {
    match word.to_ascii_lowercase().as_str() {
        "warning" => Ok("warn"),
        "verbose" => Ok("debug"),
        "err" | "fatal" => Ok("error"),
        _ if word.contains(['=', '[', ':']) || word.parse::<LevelFilter>().is_ok() => Ok(word),
        _ => Err(LogError::Level { setting, word: word.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_environment_beats_the_setting() {
        assert_eq!(filter("info", Some("sequor=debug")).expect("a filter").to_string(), "sequor=debug");
        assert_eq!(filter("info", Some("")).expect("a filter").to_string(), "info");
        assert_eq!(filter("warn", None).expect("a filter").to_string(), "warn");
        let error = filter("a=b=c", None).expect_err("no filter");
        assert!(error.to_string().contains("a=b=c"), "{error}");
    }

    #[test]
    fn unknown_log_levels_are_refused_and_common_aliases_are_accepted() {
        let of = |level, variable| filter(level, variable).map(|filter| filter.to_string()).map_err(|e| e.to_string());
        for (word, level) in
            [("warning", "warn"), ("WARNING", "warn"), ("verbose", "debug"), ("fatal", "error"), ("INFO", "info")]
        {
            assert_eq!(of(word, None).as_deref(), Ok(level), "{word}");
        }
        let refused = |setting: &str, word: &str| {
            format!(
                "{setting}: {word:?} is not a log level. Levels: error, warn, info, debug, trace, off. A filter names modules: info,sequor=debug"
            )
        };
        assert_eq!(of("loud", None), Err(refused("log.level", "loud")));
        assert_eq!(of("", None), Err(refused("log.level", "")));
        assert_eq!(of("info", Some("sequor")), Err(refused("RUST_LOG", "sequor")));
        assert_eq!(of("info", Some(" ")).as_deref(), Ok("info"));
        assert!(of("warning,sequor=debug", None).is_ok_and(|text| text.contains("warn")));
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(text)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn levels_change_while_the_server_runs() {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, mut log) =
            subscriber(LogFormat::Text, filter("warn", None).expect("a filter"), move || writer.clone());
        let written = || {
            tracing::error!("e;");
            tracing::warn!("w;");
            tracing::info!("i;");
            tracing::debug!("d;");
            tracing::trace!("t;");
            let text = String::from_utf8(std::mem::take(&mut *lines.0.lock())).expect("UTF-8");
            ["e", "w", "i", "d", "t"]
                .into_iter()
                .filter(|level| text.contains(&format!("{level};")))
                .collect::<String>()
        };
        tracing::subscriber::with_default(subscriber, || {
            assert_eq!((log.levels, written().as_str()), (Levels::up_to(LevelFilter::WARN), "ew"));
            let cases = [(true, true, true, 0, "ewi"), (true, false, true, 1, "eid"), (false, false, false, 2, "dt")];
            for (error, warning, info, verbose, want) in cases {
                log.set(Levels { error, warning, info, verbose }).expect("changed");
                assert_eq!(written(), want);
            }
            log.set(Levels { error: false, warning: false, info: false, verbose: 0 }).expect("changed");
            assert_eq!(written(), "");
        });
    }

    #[test]
    fn a_new_level_of_the_settings_replaces_the_old_one_and_those_of_clients() {
        let (subscriber, mut log) = subscriber(LogFormat::Text, filter("warn", None).expect("a filter"), std::io::sink);
        tracing::subscriber::with_default(subscriber, || {
            let chosen = Levels { error: true, warning: false, info: false, verbose: 0 };
            log.set(chosen).expect("changed");
            log.configure("warn").expect("changed");
            assert_eq!(log.levels, chosen, "the same level leaves what clients have set");
            log.configure("debug").expect("changed");
            assert_eq!(log.levels, Levels::up_to(LevelFilter::DEBUG));
            assert!(tracing::enabled!(tracing::Level::DEBUG));
            assert!(log.configure("loud").is_err() && log.levels == Levels::up_to(LevelFilter::DEBUG));
            log.rust_log = Some("error".to_owned());
            log.configure("trace").expect("changed");
            assert!(!tracing::enabled!(tracing::Level::WARN), "RUST_LOG wins");
        });
    }

    #[test]
    fn no_client_switches_audit_lines_off() {
        let lines = Lines::default();
        let writer = lines.clone();
        let (subscriber, mut log) =
            subscriber(LogFormat::Text, filter("info", None).expect("a filter"), move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            log.set(Levels { error: false, warning: false, info: false, verbose: 0 }).expect("changed");
            tracing::info!("other;");
            tracing::info!(target: AUDIT, "model load;");
            let text = String::from_utf8(std::mem::take(&mut *lines.0.lock())).expect("UTF-8");
            assert!(text.contains("model load;") && !text.contains("other;"), "{text}");
        });
    }
}
