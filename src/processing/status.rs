//! What operators see of processors.

use super::health::LinkCounts;
use super::link::ChainLink;

/// A processor: a named file in its current version, and where it serves.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessorStatus {
    pub name: String,
    /// Its author's version.
    pub version: String,
    pub sha256: String,
    pub attached: Vec<LinkStatus>,
}

/// A processor at a model.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkStatus {
    pub model: String,
    pub version: u64,
    /// The hash of what serves there. Sequences of an earlier load keep the version that they began with, if another does not fit.
    pub sha256: String,
    pub parked: Option<String>,
    pub counts: LinkCounts,
    /// Bytes of memory that the guest called last uses, and may use.
    pub memory: u64,
    pub memory_limit: u64,
    pub time_us: u64,
    /// JSON, a table.
    pub config: String,
}

impl ChainLink {
    pub(super) fn status(&self) -> LinkStatus {
        let current = self.current.load();
        let (memory, memory_limit) = current.memory();
        let options = &self.site.options;
        LinkStatus {
            model: self.model().to_owned(),
            version: self.site.facts.version,
            sha256: current.sha256.clone(),
            parked: self.health.parked(),
            counts: self.health.counts(),
            memory,
            memory_limit,
            time_us: u64::try_from(options.limits.time.as_micros()).unwrap_or(u64::MAX),
            config: options.config.clone(),
        }
    }
}
