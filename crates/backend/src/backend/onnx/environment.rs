//! The single ONNX Runtime of this process: its library, its environment and its log.

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

/// Never unloaded: other code may point into the library. A process can have only one environment.
static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

/// Loads the library and creates the environment. Later calls return the same one and fail for another path.
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
    // With a custom logger, an environment starts at the most verbose level.
    environment.set_log_level(LogLevel::Error);
    memory::register(&environment)?;
    *loaded = Some(Loaded { path: path.to_owned(), environment: environment.clone() });
    Ok(environment)
}

/// Turns off telemetry. Distributed builds of ONNX Runtime keep a usage journal in the home directory, and a thread to send it. Both start
/// when the library is loaded, before the environment's own switch.
fn no_telemetry() {
    // SAFETY: at this time only Rust's library reads the environment, and it locks. ONNX Runtime does not lock, but is not loaded yet.
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

/// Logs a message of ONNX Runtime under the target `onnxruntime`. By default it would print them on stderr.
fn log(level: LogLevel, category: &str, _id: &str, place: &str, message: &str) {
    match level {
        LogLevel::Fatal | LogLevel::Error => tracing::error!(target: "onnxruntime", category, place, "{message}"),
        LogLevel::Warning => tracing::warn!(target: "onnxruntime", category, place, "{message}"),
        LogLevel::Info => tracing::debug!(target: "onnxruntime", category, place, "{message}"),
        LogLevel::Verbose => tracing::trace!(target: "onnxruntime", category, place, "{message}"),
    }
}
