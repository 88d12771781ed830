//! What an instance's thread is asked to do between two batches. Only the thread that owns a slot touches its state. Other threads
//! leave a request here.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use sequor_core::{Seq, StateAt};

use crate::state::SnapshotError;
use crate::sync::Mutex;

/// The key of a snapshot's header that its step stands under.
pub(in crate::model) const STEP: &str = "sequor.step";

#[derive(Debug, Default)]
pub(in crate::model) struct Mailbox(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    closed: bool,
    open: Vec<SnapshotRequest>,
}

/// Asks for the state of a sequence.
#[derive(Debug)]
pub(in crate::model) struct SnapshotRequest {
    pub(in crate::model) seq: Seq,
    pub(in crate::model) header: BTreeMap<String, String>,
    pub(in crate::model) reply: SyncSender<Option<Result<Vec<u8>, SnapshotError>>>,
}

impl Mailbox {
    /// False if the mailbox is closed.
    pub(in crate::model) fn post(&self, request: SnapshotRequest) -> bool {
        let mut requests = self.0.lock();
        let open = !requests.closed;
        if open {
            requests.open.push(request);
        }
        open
    }

    /// Whether requests lie in it.
    pub(in crate::model) fn is_full(&self) -> bool {
        !self.0.lock().open.is_empty()
    }

    pub(in crate::model) fn close(&self) {
        let mut requests = self.0.lock();
        requests.closed = true;
        requests.open.clear();
    }

    /// Answers every request. Called by the instance's thread, between two batches. `state_now` finds a sequence's state, if that is still
    /// there; `snapshot` reads the state of a slot.
    pub(in crate::model) fn serve(
        &self,
        state_now: impl Fn(Seq) -> Option<StateAt>,
        mut snapshot: impl FnMut(u32, &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError>,
    ) {
        let requests = std::mem::take(&mut self.0.lock().open);
        for SnapshotRequest { seq, mut header, reply } in requests {
            // It may have ended since; its slot may be another's.
            let snapshot = state_now(seq).map(|at| {
                header.insert(STEP.to_owned(), at.step.to_string());
                snapshot(at.slot.ix, &header)
            });
            // The caller may have gone.
            let _ = reply.send(snapshot);
        }
    }
}
