//! The operations of operators on plug-ins ([`PluginControl`]) and the data they return, independent of any API's format.

use std::fmt;
use std::time::{Duration, SystemTime};

use sequor_wasm::journal::LogLine;
pub use sequor_wasm::plugin_error::PluginError;
use serde::{Deserialize, Serialize};

/// A plug-in: a named file in its current version, and its bindings.
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
    /// Whether a table of the model's `sequor.toml` set it up. Otherwise an operator did at run time.
    pub from_file: bool,
    pub calls: u64,
    pub calls_per_second: f64,
    /// Time of a call, median and 99th percentile, microseconds.
    pub p50_us: f64,
    pub p99_us: f64,
    /// Rounds the built-in policy decided in its place.
    pub fallbacks: u64,
    /// Picks that were no longer valid when the answer arrived.
    pub stale: u64,
    pub strikes: u32,
    /// The cause of the last strike.
    pub last_fault: Option<LastFault>,
    /// For a shadow: rounds in which it would have decided differently, and all rounds.
    pub differs: Option<(u64, u64)>,
    pub memory: u64,
    pub memory_limit: u64,
    /// CPU time limit of a call, in microseconds.
    #[serde(default)]
    pub time_us: u64,
    /// Its configuration in JSON; empty is `{}`.
    #[serde(default)]
    pub config: String,
}

// ## Active     => Recovering | Parked
// ## Shadow     => Recovering | Parked
// ## Recovering => Active | Shadow | Parked
// ## Parked     => Recovering
/// The state of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BindingState {
    Active,
    /// The plug-in is asked, and its answers are only counted.
    Shadow,
    /// The plug-in failed. A new instance starts, and the built-in policy decides.
    Recovering,
    /// The built-in policy decides until an operator unparks it.
    Parked,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastFault {
    /// The server's word for it: trap, time, memory, index, repeat, too_many, shapes, busy.
    pub kind: String,
    /// The guest's message, with the place in its source if that is known.
    pub what: String,
    #[serde(with = "sequor_wasm::rfc3339")]
    pub at: SystemTime,
}

/// A fault for people: `trap: index 83, lib.rs:71`. A message that begins with the kind is left as it is: `time limit 1ms in plan`.
pub fn fault_text(kind: &str, what: &str) -> String {
    let names_it = what.strip_prefix(kind).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    if names_it { what.to_owned() } else { format!("{kind}: {what}") }
}

/// The terms of attaching a plug-in.
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
    /// CPU time limit of a call, in place of the server's.
    #[serde(default)]
    pub time: Option<Duration>,
    /// How long it may hold a request back, in place of the default.
    #[serde(default)]
    pub max_wait: Option<Duration>,
}

/// The source of a change, for the audit line: the name of a key, or `local`.
#[derive(Debug, Clone, Copy)]
pub struct By<'a>(pub &'a str);

/// The operations on plug-ins. Each change writes one audit line: its source, the operation, and the hashes before and after.
pub trait PluginControl: Send + Sync + fmt::Debug {
    fn list(&self) -> Vec<Summary>;

    /// One plug-in.
    fn show(&self, name: &str) -> Result<Summary, PluginError>;

    /// Adds a component under a name. It does not decide until it is attached.
    fn load(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError>;

    /// Lets a plug-in decide for a model, in place of the present one.
    fn attach(&self, how: &Attach, by: By<'_>) -> Result<Summary, PluginError>;

    /// Replaces the version that serves by a new one, wherever it is attached. If the new one fails its dry run, the old one continues.
    fn replace(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError>;

    /// Restores the previous version.
    fn rollback(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError>;

    fn detach(&self, name: &str, model: &str, by: By<'_>) -> Result<Summary, PluginError>;

    /// Lets the built-in policy decide at once, for all models of the plug-in.
    fn park(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError>;

    fn unpark(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError>;

    /// Removes the plug-in. It must not be attached.
    fn unload(&self, name: &str, by: By<'_>) -> Result<(), PluginError>;

    /// The last lines after `serial`, oldest first.
    fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_fault_is_not_said_twice() {
        assert_eq!(fault_text("trap", "index 83, lib.rs:71"), "trap: index 83, lib.rs:71");
        assert_eq!(fault_text("time", "time limit 1ms in plan"), "time limit 1ms in plan");
        assert_eq!(fault_text("trap", "trapped"), "trap: trapped");
        assert_eq!(fault_text("trap", ""), "trap: ");
    }
}
