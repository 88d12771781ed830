//! The simulator: the very core that serves, driven with virtual time. Several policies meet the same requests, and a report says how they
//! fared. Nothing here reads a clock, opens a socket or runs a model; the same seed gives the same bytes.
//!
//! # Layout
//!
//! - [`random`]: the one source of chance.
//! - [`workload`]: which requests arrive when: made up, or read from a trace.
//! - [`mod@file`]: a workload described in a TOML file.
//! - [`cost`]: how long a batch runs.
//! - [`serving`]: what serves them: instances, slots, limits.
//! - [`compared_policy`], [`decider`]: what decides · [`plugged`]: a plug-in that does.
//! - [`driver`]: the loop over events.
//! - [`tally`]: counters of a run · [`outcome`]: its results.
//! - [`expect`]: what a case of a plug-in expects.
//! - [`experiment`]: every policy on every number of instances.
//! - [`report`]: the table, the JSON, the page.

pub mod compared_policy;
pub mod cost;
pub mod decider;
pub mod driver;
pub mod error;
pub mod expect;
pub mod experiment;
pub mod file;
pub mod outcome;
pub mod plugged;
#[cfg(test)]
mod plugged_tests;
pub mod random;
pub mod rate;
pub mod report;
pub mod serving;
pub mod slowdown_trace;
pub mod tally;
#[cfg(test)]
mod tests;
pub mod workload;

pub use compared_policy::ComparedPolicy;
pub use cost::Costs;
pub use error::SimulateError;
pub use experiment::Experiment;
pub use plugged::PluginSpec;
pub use report::SimulationReport;
pub use serving::{Serving, ServingOptions};
pub use workload::{Arrival, Workload};
