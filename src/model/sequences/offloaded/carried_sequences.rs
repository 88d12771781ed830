//! Where the sequences of a replaced load go.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::{LoadId, Time};

use crate::model::load::LoadedModel;
use crate::state::StateSpec;

/// Where the state of a sequence goes that its load could not keep.
#[derive(Debug, Clone)]
pub(in crate::model) struct Carried {
    pub(in crate::model) load: Arc<LoadedModel>,
    /// When the sequence expires.
    pub(in crate::model) until: Time,
    /// How long it may be idle.
    pub(in crate::model) idle: Option<Duration>,
}

/// Where a state comes from that waits for the next step of a sequence.
#[derive(Debug)]
pub(in crate::model) struct ImportOrigin {
    /// The step it is as of.
    pub(in crate::model) step: u64,
    /// Where it goes, if a replaced load left it.
    pub(in crate::model) carried: Option<Carried>,
    /// Where it may go, if it was given to the server.
    pub(in crate::model) given: Option<GivenTo>,
}

/// The load that a given state was checked against, and how long it waits.
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
    /// When the next portion is due, and where it begins.
    pub(in crate::model::sequences) at: Time,
    pub(in crate::model::sequences) from: u32,
}
