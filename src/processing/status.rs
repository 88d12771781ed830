//! What operators see of the plug-ins that models name.

use super::health::PlaceCounts;

/// A named file in its current version, and where it serves.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedPlugin {
    pub name: String,
    /// As `plugin.toml` has it.
    pub world: &'static str,
    /// Its author's version.
    pub version: String,
    pub sha256: String,
    pub attached: Vec<PlaceStatus>,
}

/// A plug-in at a model.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceStatus {
    pub model: String,
    pub version: u64,
    /// The hash of what serves there. Sequences of an earlier load keep the version that they began with, if another does not fit.
    pub sha256: String,
    pub parked: Option<String>,
    pub counts: PlaceCounts,
    /// Bytes of memory that the guest called last uses, and may use.
    pub memory: u64,
    pub memory_limit: u64,
    pub time_us: u64,
    /// JSON, a table.
    pub config: String,
}
