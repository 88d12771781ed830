//! The requests and their arrival times. A workload is made once and is the same for every policy: arrivals do not depend on answers.
//!
//! - [`flow`]: the common part of all generated flows · [`people`]: their sequences · [`tenants`]: the owners of those · [`features`]:
//!   other data that plug-ins see.
//! - [`poisson`], [`bursts`], [`talkers`]: the flows.
//! - [`replay`]: a recorded trace.

pub mod bursts;
pub mod features;
pub mod flow;
pub mod people;
pub mod poisson;
pub mod replay;
pub mod talkers;
pub mod tenants;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sequor_core::Time;

use features::Features;

use super::Costs;
use super::serving::ServingOptions;
use crate::config::model::LoadFacts;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    pub at: Time,
    /// The number of its sequence. A number is never used for another id.
    pub sequence: u32,
    pub start: bool,
    pub end: bool,
    /// Its index in [`Workload::tenants`].
    pub tenant: u16,
    /// The index of its flow in the file, which gives its features.
    pub flow: u16,
    pub priority: u32,
    /// Its deadline, after its arrival.
    pub within: Option<Duration>,
    pub bytes: u64,
    /// Class of its shapes.
    pub shape: u64,
}

/// All arrivals, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workload {
    pub arrivals: Vec<Arrival>,
    /// Names of tenants; empty if the requests have none.
    pub tenants: Vec<String>,
    pub features: Features,
    /// Number of sequences.
    pub sequences: u32,
    pub span: Duration,
    /// A word or two for the report.
    pub about: String,
    /// Data of a trace besides its arrivals.
    pub live: Option<RecordedServing>,
}

/// Observations of the day a trace was recorded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedServing {
    /// The strategy that served, if the trace names it.
    pub strategy: Option<String>,
    /// Waits of the answered requests in nanoseconds, ascending.
    pub waits: Vec<u64>,
    /// The options of its serving, as far as the trace has them.
    pub wishes: ServingOptions,
    /// Run times of batches.
    pub costs: Option<Costs>,
    /// Notes on omitted or changed input.
    pub notes: Vec<String>,
}

impl Workload {
    /// The model as a plug-in sees it, with the features of these requests.
    pub fn facts(&self, facts: LoadFacts) -> LoadFacts {
        let Features { numbers, keys, .. } = self.features.clone();
        LoadFacts { numbers, keys, ..facts }
    }

    /// The texts of its keys.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.tenants.iter().chain(&self.features.texts).map(String::as_str)
    }

    /// Sorts the arrivals of several flows by time, and then by flow.
    pub fn in_order(mut self) -> Workload {
        self.arrivals.sort_by_key(|a| a.at);
        self
    }
}
