//! Requests that wait for state memory, and the sequences that leave it for them.

use std::collections::VecDeque;
use std::sync::Arc;

use sequor_core::{Req, RequestMeta, Seq, Time};

use crate::model::load::LoadedModel;

/// State memory that a request waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedRoom {
    pub(super) bytes: u64,
    /// As the request was accepted.
    pub(super) meta: RequestMeta,
}

/// Requests that wait for state memory, in their order, and the sequences that leave for them.
#[derive(Debug, Default)]
pub(super) struct Spilling {
    pub(super) waiting: VecDeque<RoomWait>,
    pub(super) leaving: Vec<(Seq, u64)>,
    /// No sequence leaves before this time.
    pub(super) paused_until: Time,
}

#[derive(Debug)]
pub(super) struct RoomWait {
    pub(super) req: Req,
    pub(super) seq: Option<Seq>,
    pub(super) load: Arc<LoadedModel>,
    pub(super) wanted: WantedRoom,
}
