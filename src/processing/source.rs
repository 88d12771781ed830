//! A processor as a model names it: component, options, and the services that its guests may use.

use std::fmt;
use std::sync::Arc;

use sequor_wasm::journal::Journal;
use sequor_wasm::limits::Limits;
use sequor_wasm::services::Services;

use super::files::ProcessorFile;
use super::health::ProcessorClock;
use super::outgoing::CallRights;
use super::world::ProcessorComponent;
use crate::telemetry::PluginMetrics;

/// What the server does with a request whose processor failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// It refuses the request.
    #[default]
    Fail,
    /// It goes on as if the processor were not there.
    Bypass,
}

/// How a model uses a processor.
#[derive(Debug, Clone)]
pub struct ProcessorOptions {
    /// JSON, a table.
    pub config: String,
    /// CPU time of a call without tensors, and memory of a guest.
    pub limits: Limits,
    pub on_failure: OnFailure,
    pub files: Vec<ProcessorFile>,
    /// Strikes within a minute that park it.
    pub strikes: u32,
    /// Whether it is the model: nothing stands behind it, and it answers every request itself.
    pub is_model: bool,
    /// The models that it may call, if it may call some.
    pub calls: Option<CallRights>,
    /// Maximum number of its instances at a model. A plug-in that calls no models needs no more than there are threads.
    pub instances: Option<usize>,
}

/// A processor that a model names, ready to be configured.
pub struct ProcessorSource {
    pub name: String,
    pub component: Arc<ProcessorComponent>,
    pub options: ProcessorOptions,
    pub services: Arc<dyn Services>,
    pub metrics: Arc<PluginMetrics>,
    pub journal: Arc<Journal>,
    pub clock: ProcessorClock,
}

impl fmt::Debug for ProcessorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorSource").field("name", &self.name).finish_non_exhaustive()
    }
}
