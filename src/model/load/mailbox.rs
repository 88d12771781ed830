//! What an instance's thread is asked to do between two batches. Only the thread that owns a slot touches its state. Other threads
//! leave a request here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::SyncSender;

use sequor_core::{Seq, StateAt};

use crate::state::{SnapshotError, StateValues};
use crate::sync::Mutex;

use super::tier::STEP;

#[derive(Debug, Default)]
pub(in crate::model) struct Mailbox(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    closed: bool,
    open: Vec<MailRequest>,
}

/// What another thread asks for.
#[derive(Debug)]
pub(in crate::model) enum MailRequest {
    Snapshot(SnapshotRequest),
    Values(ValuesRequest),
}

/// Asks for the state of a sequence. If it is to leave, the sequence ends here with that: no further step of it runs.
#[derive(Debug)]
pub(in crate::model) struct SnapshotRequest {
    pub(in crate::model) seq: Seq,
    pub(in crate::model) header: BTreeMap<String, String>,
    pub(in crate::model) leaves: bool,
    pub(in crate::model) reply: SyncSender<SnapshotReply>,
}

/// The file of a state and the steps that it contains; `None` if the sequence has ended.
pub(in crate::model) type SnapshotReply = Option<Result<(u64, Vec<u8>), SnapshotError>>;

/// Asks for the values of a sequence's states.
#[derive(Debug)]
pub(in crate::model) struct ValuesRequest {
    pub(in crate::model) seq: Seq,
    pub(in crate::model) reply: StateReply,
}

/// Called once with the values, or with nothing if they are not to be had. Dropped without values, it is called with nothing. It returns soon.
pub(in crate::model) struct StateReply(Option<Box<dyn FnOnce(Option<StateValues>) + Send>>);

impl StateReply {
    pub(in crate::model) fn new(reply: impl FnOnce(Option<StateValues>) + Send + 'static) -> StateReply {
        StateReply(Some(Box::new(reply)))
    }

    fn send(mut self, values: Option<StateValues>) {
        if let Some(reply) = self.0.take() {
            reply(values);
        }
    }
}

impl Drop for StateReply {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply(None);
        }
    }
}

impl fmt::Debug for StateReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateReply")
    }
}

impl From<SnapshotRequest> for MailRequest {
    fn from(request: SnapshotRequest) -> MailRequest {
        MailRequest::Snapshot(request)
    }
}

impl From<ValuesRequest> for MailRequest {
    fn from(request: ValuesRequest) -> MailRequest {
        MailRequest::Values(request)
    }
}

/// What answers the requests of a mailbox: the instance's thread, between two batches.
pub(in crate::model) trait Postman {
    /// Where the state of a sequence lies, if that is still there.
    fn state_now(&self, seq: Seq) -> Option<StateAt>;

    /// The same for a state that is to be copied: not while a request has run in part.
    fn copyable_now(&self, seq: Seq) -> Option<StateAt>;

    /// The state of a slot as a file.
    fn snapshot(&mut self, slot: u32, header: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError>;

    /// The values of a slot's states, if they can be read.
    fn values(&mut self, slot: u32) -> Option<StateValues>;

    /// Ends a sequence whose state has left.
    fn leave(&mut self, seq: Seq);
}

impl Mailbox {
    /// False if the mailbox is closed.
    pub(in crate::model) fn post(&self, request: impl Into<MailRequest>) -> bool {
        let request = request.into();
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
        let open = std::mem::take(&mut requests.open);
        drop(requests);
        drop(open);
    }

    /// Answers every request. Called by the instance's thread, between two batches.
    pub(in crate::model) fn serve(&self, postman: &mut impl Postman) {
        let requests = std::mem::take(&mut self.0.lock().open);
        for request in requests {
            match request {
                MailRequest::Snapshot(SnapshotRequest { seq, mut header, leaves, reply }) => {
                    // It may have ended since; its slot may be another's.
                    let snapshot = postman.state_now(seq).map(|at| {
                        header.insert(STEP.to_owned(), at.step.to_string());
                        postman.snapshot(at.slot.ix, &header).map(|file| (at.step, file))
                    });
                    if let (true, Some(Ok(_))) = (leaves, &snapshot) {
                        postman.leave(seq);
                    }
                    // The caller may have gone.
                    let _ = reply.send(snapshot);
                }
                MailRequest::Values(ValuesRequest { seq, reply }) => {
                    let values = postman.copyable_now(seq).and_then(|at| postman.values(at.slot.ix));
                    reply.send(values);
                }
            }
        }
    }
}
