//! The simulator: it drives the server's core with virtual time. Several policies get the same requests, and a report compares their
//! results. Nothing here reads a clock, opens a socket or runs a model. The same seed gives the same bytes.
//!
//! # Layout
//!
//! - [`random`]: the only random source.
//! - [`workload`]: the requests and their arrival times: generated, or read from a trace.
//! - [`mod@file`]: a workload described in a TOML file.
//! - [`cost`]: run times of batches.
//! - [`serving`]: instances, slots, limits.
//! - [`compared_policy`], [`decider`]: the policies · [`plugged`]: a plug-in as a policy.
//! - [`driver`]: the event loop.
//! - [`tally`]: counters of a run · [`outcome`]: its results.
//! - [`expect`]: the expectations of a plug-in's test case.
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
