//! Shared code of all trials: their options, and the check of a file against the contract.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor_wasm::cache::{COMPILED, Cache};
use sequor_wasm::component_error::ComponentError;
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::Limits;

use super::{AuthorError, Machine};

/// The configuration, limits and grants of a component on trial.
#[derive(Debug, Clone, Default)]
pub struct TrialOptions {
    /// A JSON object.
    pub config: String,
    pub limits: Limits,
    pub grants: Grants,
}

impl TrialOptions {
    /// The configuration of these options, if they set one; otherwise that of the case.
    pub(super) fn config_or(&self, of_case: &str) -> String {
        let is_set = self.config.trim().len() > "{}".len();
        if is_set { self.config.clone() } else { of_case.to_owned() }
    }
}

/// Compiles a component from a file as a server does. `new` gets the engine, the file's name and the cache of compiled code. Returns the
/// component and the time that this took.
pub(super) fn compile<C>(
    file: &Path,
    machine: &Machine,
    new: impl FnOnce(&Arc<Engine>, &str, Option<&Cache>) -> Result<C, ComponentError>,
) -> Result<(C, Duration), AuthorError> {
    let no_engine = |e: String| AuthorError::Component { path: file.to_owned(), what: e };
    let engine = Arc::new(Engine::new(Mode::Serving).map_err(|e| no_engine(e.to_string()))?);
    let cache = Cache::new(&machine.cache.join(COMPILED)).ok();
    let began = Instant::now();
    // The error's text names the file.
    let component = new(&engine, &file.to_string_lossy(), cache.as_ref()).map_err(|refused| {
        let is_foreign = matches!(refused, ComponentError::Foreign(_));
        let build = if is_foreign { "; sequor plugin build makes a component" } else { "" };
        AuthorError::Missing(format!("{refused}{build}"))
    })?;
    Ok((component, began.elapsed()))
}
