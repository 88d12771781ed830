//! The destinations of the sequences of a replaced load.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::{LoadId, Time};

use crate::model::load::LoadedModel;
use crate::state::StateSpec;

/// The destination of a sequence whose load was replaced.
#[derive(Debug, Clone)]
pub(in crate::model) struct Carried {
    pub(in crate::model) load: Arc<LoadedModel>,
    /// The time at which the sequence expires.
    pub(in crate::model) until: Time,
    /// The sequence's idle time.
    pub(in crate::model) idle: Option<Duration>,
}

/// The origin of a state that waits for the next step of its sequence.
#[derive(Debug)]
pub(in crate::model) struct ImportOrigin {
    /// The last step that the state contains.
    pub(in crate::model) step: u64,
    /// Its destination, if it is from a replaced load.
    pub(in crate::model) carried: Option<Carried>,
    /// Its possible destination, if it was imported.
    pub(in crate::model) given: Option<GivenTo>,
}

/// The load that an imported state was checked against, and its expiry.
#[derive(Debug)]
pub(in crate::model) struct GivenTo {
    pub(in crate::model::sequences) version: u64,
    pub(in crate::model::sequences) states: Vec<StateSpec>,
    pub(in crate::model::sequences) until: Time,
}

/// A load whose sequences are to move.
#[derive(Debug, Clone)]
pub(in crate::model) struct CarriedLoad {
    pub(in crate::model::sequences) load: LoadId,
    /// The load that they move to.
    pub(in crate::model::sequences) to: Arc<LoadedModel>,
    /// The time of the next portion, and the index at which it begins.
    pub(in crate::model::sequences) at: Time,
    pub(in crate::model::sequences) from: u32,
}
