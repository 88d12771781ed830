//! What an instance's thread is asked to do between two batches. Only the thread that owns a slot touches its state: whoever wants to have
//! that leaves a request here.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use sequor_core::{Seq, StateAt};

use crate::state::SnapshotError;

use super::slots::Slots;
use super::sync::Mutex;

/// The key of a snapshot's header that its step stands under.
pub(super) const STEP: &str = "sequor.step";

#[derive(Debug, Default)]
pub(super) struct Mailbox(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    closed: bool,
    open: Vec<SnapshotRequest>,
}

/// Asks for the state of a sequence.
#[derive(Debug)]
pub(super) struct SnapshotRequest {
    pub(super) seq: Seq,
    pub(super) header: BTreeMap<String, String>,
    pub(super) reply: SyncSender<Option<Result<Vec<u8>, SnapshotError>>>,
}

impl Mailbox {
    /// False if nobody reads it any more.
    pub(super) fn post(&self, request: SnapshotRequest) -> bool {
        let mut requests = self.0.lock();
        let open = !requests.closed;
        if open {
            requests.open.push(request);
        }
        open
    }

    /// Whether requests lie in it.
    pub(super) fn is_full(&self) -> bool {
        !self.0.lock().open.is_empty()
    }

    pub(super) fn close(&self) {
        let mut requests = self.0.lock();
        requests.closed = true;
        requests.open.clear();
    }

    /// Answers every request. Called by the thread whose box it is, between two batches; `state_now` says where a sequence's state lies, if
    /// that is still there.
    pub(super) fn serve(&self, state_now: impl Fn(Seq) -> Option<StateAt>, slots: &mut Slots) {
        let requests = std::mem::take(&mut self.0.lock().open);
        for SnapshotRequest { seq, mut header, reply } in requests {
            // It may have ended since; its slot may be another's.
            let snapshot = state_now(seq).map(|at| {
                header.insert(STEP.to_owned(), at.step.to_string());
                slots.snapshot(at.slot.ix, &header)
            });
            // Whoever asked may have gone.
            let _ = reply.send(snapshot);
        }
    }
}
