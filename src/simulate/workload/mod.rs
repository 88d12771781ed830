//! Which requests arrive when. A workload is made once and met by every policy alike: arrivals do not depend on answers.
//!
//! - [`flow`]: what all made-up flows have in common · [`people`]: their sequences · [`tenants`]: to whom those belong · [`features`]:
//!   what else plug-ins see.
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
    /// Which sequence it belongs to; a number names one id for ever.
    pub sequence: u32,
    pub start: bool,
    pub end: bool,
    /// By its place in [`Workload::tenants`].
    pub tenant: u16,
    /// By its place in the file: what its features are.
    pub flow: u16,
    pub priority: u32,
    /// How long after its arrival it is to be answered.
    pub within: Option<Duration>,
    pub bytes: u64,
    /// Class of its shapes.
    pub shape: u64,
}

/// Everything that arrives, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workload {
    pub arrivals: Vec<Arrival>,
    /// Names; empty if the requests have no tenant.
    pub tenants: Vec<String>,
    pub features: Features,
    /// Sequences in it.
    pub sequences: u32,
    pub span: Duration,
    /// In a word or two, for the report.
    pub about: String,
    /// What a trace tells besides its arrivals.
    pub live: Option<RecordedServing>,
}

/// What was seen on the day a trace was recorded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedServing {
    /// The strategy that served, if the trace names it.
    pub strategy: Option<String>,
    /// Nanoseconds each answered request waited, ascending.
    pub waits: Vec<u64>,
    /// How it was served, as far as the trace tells.
    pub wishes: ServingOptions,
    /// How long batches ran.
    pub costs: Option<Costs>,
    /// What was left out or bent, in sentences.
    pub notes: Vec<String>,
}

impl Workload {
    /// The model as a plug-in sees it, with the features of these requests.
    pub fn facts(&self, facts: LoadFacts) -> LoadFacts {
        let Features { numbers, keys, .. } = self.features.clone();
        LoadFacts { numbers, keys, ..facts }
    }

    /// Texts behind its keys.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.tenants.iter().chain(&self.features.texts).map(String::as_str)
    }

    /// Puts what several flows gave into one order: by time, then in the order of the flows.
    pub fn in_order(mut self) -> Workload {
        self.arrivals.sort_by_key(|a| a.at);
        self
    }
}
