//! The operations of operators on plug-ins ([`PluginControl`]) and the data they return, in the format of no surface.

use std::fmt;
use std::time::{Duration, SystemTime};

use sequor_wasm::journal::LogLine;
pub use sequor_wasm::plugin_error::PluginError;
use serde::{Deserialize, Serialize};

/// A plug-in: a named file in its current version, and where it decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub name: String,
    /// Its author's version.
    pub version: String,
    pub sha256: String,
    pub world: String,
    pub attached: Vec<Attached>,
}

/// A plug-in at a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    pub model: String,
    pub version: u64,
    pub state: BindingState,
    /// A table of the model's `sequor.toml` says so; else an operator did at run time.
    pub from_file: bool,
    pub calls: u64,
    pub calls_per_second: f64,
    /// Time of a call, median and 99th percentile, microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
    /// Rounds the built-in policy decided in its place.
    pub fallbacks: u64,
    /// Picks that no longer stood when the answer came.
    pub stale: u64,
    pub strikes: u32,
    /// What the last strike was for.
    pub last_fault: Option<LastFault>,
    /// Of a shadow: rounds in which it would have decided otherwise, and all rounds.
    pub differs: Option<(u64, u64)>,
    pub memory: u64,
    pub memory_limit: u64,
    /// CPU time that a call may take, microseconds.
    #[serde(default)]
    pub time_us: u64,
    /// JSON, as it was attached with; empty is `{}`.
    #[serde(default)]
    pub config: String,
}

// ## Active     => Recovering | Parked
// ## Shadow     => Recovering | Parked
// ## Recovering => Active | Shadow | Parked
// ## Parked     => Recovering
/// Whether it decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BindingState {
    Active,
    /// It is asked, and what it says is only counted.
    Shadow,
    /// It failed; a new instance is being made, and the built-in policy decides.
    Recovering,
    /// The built-in policy decides until an operator unparks it.
    Parked,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastFault {
    /// The host's word for it: trap, time, memory, index, repeat, too_many, shapes, busy.
    pub kind: String,
    /// The guest's message, with the place in its source where that is known.
    pub what: String,
    #[serde(with = "sequor_wasm::rfc3339")]
    pub at: SystemTime,
}

/// How a plug-in is to be attached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Attach {
    pub plugin: String,
    pub model: String,
    #[serde(default)]
    pub shadow: bool,
    /// Write it to the model's `sequor.toml`.
    #[serde(default)]
    pub save: bool,
    /// JSON, a table; empty is `{}`.
    #[serde(default)]
    pub config: String,
    /// In place of the server's limit of a call's CPU time.
    #[serde(default)]
    pub time: Option<Duration>,
    /// Time that it may hold a request back, in place of the default.
    #[serde(default)]
    pub max_wait: Option<Duration>,
}

/// Who asks, for the audit line: the name of a key, or `local`.
#[derive(Debug, Clone, Copy)]
pub struct By<'a>(pub &'a str);

/// What operators do with plug-ins. Each change is one audit line: who, what, from which hash to which.
pub trait PluginControl: Send + Sync + fmt::Debug {
    fn list(&self) -> Vec<Summary>;

    /// One plug-in.
    fn show(&self, name: &str) -> Result<Summary, PluginError>;

    /// Takes a component in, under a name. It decides nothing until it is attached.
    fn load(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError>;

    /// Lets a plug-in decide for a model, in place of the one that does.
    fn attach(&self, how: &Attach, by: By<'_>) -> Result<Summary, PluginError>;

    /// Puts a new version in the place of the one that serves, wherever it is attached. If it fails its dry run, the old one goes on.
    fn replace(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError>;

    /// Back to the version before.
    fn rollback(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError>;

    fn detach(&self, name: &str, model: &str, by: By<'_>) -> Result<Summary, PluginError>;

    /// The built-in policy at once, everywhere.
    fn park(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError>;

    fn unpark(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError>;

    /// Forgets it; it must be attached nowhere.
    fn unload(&self, name: &str, by: By<'_>) -> Result<(), PluginError>;

    /// The last lines after `serial`, oldest first.
    fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError>;
}
