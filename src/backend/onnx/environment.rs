//! The one ONNX Runtime of this process: its library, its environment, and where its log goes.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ort::LoadDynamicError;
use ort::environment::Environment;
use ort::logging::LogLevel;
use parking_lot::Mutex;

use super::memory;
use super::status::describe;
use crate::backend::BackendError;

struct Loaded {
    path: PathBuf,
    environment: Environment,
}

/// A library cannot be unloaded while anything may still point into it, and there may be one environment in a process: both are for ever.
static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

/// Loads the library and makes the environment, the first time; later the path has to be the same.
pub(super) fn environment(path: &Path) -> Result<Environment, BackendError> {
    let mut loaded = LOADED.lock();
    if let Some(loaded) = loaded.as_ref() {
        return same(loaded, path);
    }
    no_telemetry();
    let environment = ort::init_from(path)
        .map_err(|error| not_loaded(path, &error))?
        .with_name("sequor")
        .with_telemetry(false)
        .with_logger(Arc::new(log))
        .build()
        .map_err(|error| describe(&error))?;
    // An environment with a logger of one's own starts at its most talkative level.
    environment.set_log_level(LogLevel::Error);
    memory::register(&environment)?;
    *loaded = Some(Loaded { path: path.to_owned(), environment: environment.clone() });
    Ok(environment)
}

/// Builds of ONNX Runtime that are distributed keep a journal of their use in the home directory, and a thread to send it, from the moment
/// their library is loaded; switching telemetry off in the environment comes too late for it.
fn no_telemetry() {
    // SAFETY: who reads the environment at this time does so by Rust's library, which locks it; ONNX Runtime, which does not, is not loaded.
    unsafe { std::env::set_var("ORT_DISABLE_TELEMETRY", "1") };
}

fn same(loaded: &Loaded, path: &Path) -> Result<Environment, BackendError> {
    if loaded.path == path {
        return Ok(loaded.environment.clone());
    }
    let (is, wanted) = (loaded.path.display(), path.display());
    Err(BackendError(format!("ONNX Runtime {is} is loaded already; a process cannot load {wanted} as well")))
}

fn not_loaded(path: &Path, error: &LoadDynamicError) -> BackendError {
    let cause = match error {
        LoadDynamicError::Dlopen { error, .. } => error.source().map_or_else(|| error.to_string(), ToString::to_string),
        other => other.to_string(),
    };
    BackendError(format!("ONNX Runtime {} does not load: {cause}", path.display()))
}

/// What ONNX Runtime would print on stderr, under the target `onnxruntime`.
fn log(level: LogLevel, category: &str, _id: &str, place: &str, message: &str) {
    match level {
        LogLevel::Fatal | LogLevel::Error => tracing::error!(target: "onnxruntime", category, place, "{message}"),
        LogLevel::Warning => tracing::warn!(target: "onnxruntime", category, place, "{message}"),
        LogLevel::Info => tracing::debug!(target: "onnxruntime", category, place, "{message}"),
        LogLevel::Verbose => tracing::trace!(target: "onnxruntime", category, place, "{message}"),
    }
}
