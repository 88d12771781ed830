//! A processor as a model configures it: component, options, and the services for its guests.

use std::fmt;
use std::sync::Arc;

use sequor_wasm::journal::Journal;
use sequor_wasm::limits::Limits;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::services::Services;

use super::files::ProcessorFile;
use super::health::ProcessorClock;
use super::outgoing::CallRights;
use super::world::ProcessorComponent;
use crate::telemetry::PluginMetrics;

/// What the server does with a request if its processor fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Refuse the request.
    #[default]
    Fail,
    /// Continue as if the processor did not exist.
    Bypass,
}

/// The options of a processor at a model.
#[derive(Debug, Clone)]
pub struct ProcessorOptions {
    /// Settings of the plug-in: a table, as JSON.
    pub config: String,
    /// CPU time of a call without tensors, and memory of a guest.
    pub limits: Limits,
    pub on_failure: OnFailure,
    pub files: Vec<ProcessorFile>,
    /// Number of strikes within a minute that park the processor.
    pub strikes: u32,
    /// Whether the processor is the model: it answers every request itself, and nothing runs behind it.
    pub is_model: bool,
    /// The models that the processor may call, if any.
    pub calls: Option<CallRights>,
    /// Maximum number of its instances at a model. A plug-in that calls no models needs only as many as there are threads.
    pub instances: Option<usize>,
}

/// A processor of a model, ready to be configured.
pub struct ProcessorSource {
    pub name: String,
    pub component: Arc<ProcessorComponent>,
    pub options: ProcessorOptions,
    pub services: Arc<dyn Services>,
    pub metrics: Arc<PluginMetrics>,
    pub journal: Arc<Journal>,
    pub clock: ProcessorClock,
    pub purpose: RoomPurpose,
}

impl fmt::Debug for ProcessorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorSource").field("name", &self.name).finish_non_exhaustive()
    }
}
