//! The status of the plug-ins of models, for operators.

use std::time::Duration;

use super::health::{PlaceCounts, PlaceHealth};
use crate::config::model::LoadFacts;

/// A named plug-in with its current version, and the models where it serves.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedPlugin {
    pub name: String,
    /// The world, as in `plugin.toml`.
    pub world: &'static str,
    /// The author's version.
    pub version: String,
    pub sha256: String,
    pub attached: Vec<PlaceStatus>,
}

/// A plug-in at a model.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceStatus {
    pub model: String,
    pub version: u64,
    /// The hash of the version that serves there. If a newer version does not fit, sequences of an earlier load keep the version with which
    /// they began.
    pub sha256: String,
    pub parked: Option<String>,
    pub counts: PlaceCounts,
    /// Bytes of memory that the most recently called guest uses, and its maximum.
    pub memory: u64,
    pub memory_limit: u64,
    pub time_us: u64,
    /// Settings of the plug-in: a table, as JSON.
    pub config: String,
}

impl PlaceStatus {
    /// The status of a plug-in at a load. `memory` is that of the most recently called guest, and its maximum. `time` is the limit of a call.
    pub(crate) fn new(
        facts: &LoadFacts,
        sha256: &str,
        health: &PlaceHealth,
        (memory, memory_limit): (u64, u64),
        (time, config): (Duration, &str),
    ) -> PlaceStatus {
        PlaceStatus {
            model: facts.name.clone(),
            version: facts.version,
            sha256: sha256.to_owned(),
            parked: health.parked(),
            counts: health.counts(),
            memory,
            memory_limit,
            time_us: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
            config: config.to_owned(),
        }
    }
}
