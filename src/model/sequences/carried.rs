//! Where the sequences of a replaced load go.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::{LoadId, Time};

use crate::model::load::LoadedModel;

/// Where the state of a sequence goes that its load could not keep.
#[derive(Debug, Clone)]
pub(in crate::model) struct Carried {
    pub(in crate::model) load: Arc<LoadedModel>,
    /// When the sequence expires.
    pub(in crate::model) until: Time,
    /// How long it may be idle.
    pub(in crate::model) idle: Option<Duration>,
}

/// A load whose sequences are to move.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct CarriedLoad {
    pub(super) load: LoadId,
    /// When the next portion is due, and where it begins.
    pub(super) at: Time,
    pub(super) from: u32,
}
