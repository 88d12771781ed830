//! Requests to an instance's thread, which answers them between two batches. Only the thread that owns a slot touches its state, so other
//! threads leave their requests here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use bytes::Bytes;
use sequor_core::{Id, Seq, StateAt};

use crate::state::tier::StateHead;
use crate::state::{SnapshotError, StateValues};
use crate::sync::Mutex;

use super::sealing::STEP;

#[derive(Debug, Default)]
pub(in crate::model) struct Mailbox(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    closed: bool,
    open: Vec<MailRequest>,
}

/// A request of another thread.
#[derive(Debug)]
pub(in crate::model) enum MailRequest {
    Snapshot(SnapshotRequest),
    Leave(LeaveRequest),
    Values(ValuesRequest),
}

/// Asks for the state of a sequence.
#[derive(Debug)]
pub(in crate::model) struct SnapshotRequest {
    pub(in crate::model) seq: Seq,
    pub(in crate::model) header: BTreeMap<String, String>,
    pub(in crate::model) reply: SyncSender<SnapshotReply>,
}

/// Asks for the state of a sequence and ends the sequence here: no further step of it runs.
#[derive(Debug)]
pub(in crate::model) struct LeaveRequest {
    pub(in crate::model) seq: Seq,
    pub(in crate::model) header: BTreeMap<String, String>,
    pub(in crate::model) why: Leaving,
    pub(in crate::model) reply: MailReply<Result<LeftState, SnapshotError>>,
}

/// Why a sequence leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Leaving {
    /// The server stops.
    Stop,
    /// Its memory is needed. It leaves only if it is idle.
    Spill,
    /// Another load replaces its load, and the sequence moves there. It leaves only if it is idle.
    Carry,
}

/// The state of a sequence that has left.
#[derive(Debug)]
pub(in crate::model) struct LeftState {
    pub(in crate::model) id: Id,
    pub(in crate::model) head: Arc<StateHead>,
    pub(in crate::model) file: Bytes,
    /// Whether the store already has the state. Then `file` is empty.
    pub(in crate::model) is_stored: bool,
}

/// The number of the state's last step and its file; `None` if the sequence has ended.
pub(in crate::model) type SnapshotReply = Option<Result<(u64, Vec<u8>), SnapshotError>>;

/// Asks for the values of a sequence's states.
#[derive(Debug)]
pub(in crate::model) struct ValuesRequest {
    pub(in crate::model) seq: Seq,
    pub(in crate::model) reply: MailReply<StateValues>,
}

/// A callback, called once with the answer, or with `None` if there is none. If dropped, it is called with `None`. It must return soon.
pub(in crate::model) struct MailReply<T>(Option<WhenAnswered<T>>);

type WhenAnswered<T> = Box<dyn FnOnce(Option<T>) + Send>;

impl<T> MailReply<T> {
    pub(in crate::model) fn new(reply: impl FnOnce(Option<T>) + Send + 'static) -> MailReply<T> {
        MailReply(Some(Box::new(reply)))
    }

    fn send(mut self, answer: Option<T>) {
        if let Some(reply) = self.0.take() {
            reply(answer);
        }
    }
}

impl<T> Drop for MailReply<T> {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply(None);
        }
    }
}

impl<T> fmt::Debug for MailReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MailReply")
    }
}

impl From<SnapshotRequest> for MailRequest {
    fn from(request: SnapshotRequest) -> MailRequest {
        MailRequest::Snapshot(request)
    }
}

impl From<LeaveRequest> for MailRequest {
    fn from(request: LeaveRequest) -> MailRequest {
        MailRequest::Leave(request)
    }
}

impl From<ValuesRequest> for MailRequest {
    fn from(request: ValuesRequest) -> MailRequest {
        MailRequest::Values(request)
    }
}

/// Answers the requests of a mailbox: the instance's thread, between two batches.
pub(in crate::model) trait Postman {
    /// The place of a sequence's state, if the sequence still has one.
    fn state_now(&self, seq: Seq) -> Option<StateAt>;

    /// The place of a state that may be copied: `None` also while a request has run in part.
    fn copyable_now(&self, seq: Seq) -> Option<StateAt>;

    /// The state of a slot as a file.
    fn snapshot(&mut self, slot: u32, header: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError>;

    /// Adds the scratch of the processors to the file of a state of this step. An error if the scratch is of another step.
    fn with_scratch(&self, seq: Seq, step: u64, file: Vec<u8>) -> Result<Vec<u8>, SnapshotError>;

    /// The values of a slot's states, if they can be read.
    fn values(&mut self, slot: u32) -> Option<StateValues>;

    /// Ends a sequence whose state was copied from `at`, and returns its stored form. `None` if the sequence has changed since. If it has
    /// left, its slot must already have released the memory that its state grew by: observers may take that memory at once.
    fn leave(&mut self, seq: Seq, why: Leaving, at: StateAt, file: Vec<u8>)
    -> Option<Result<LeftState, SnapshotError>>;
}

impl Mailbox {
    /// Leaves a request. Returns false if the mailbox is closed.
    pub(in crate::model) fn post(&self, request: impl Into<MailRequest>) -> bool {
        let request = request.into();
        let mut requests = self.0.lock();
        let open = !requests.closed;
        if open {
            requests.open.push(request);
        }
        open
    }

    /// Whether the mailbox has requests.
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

    /// Answers every request. Called by the instance's thread between two batches.
    pub(in crate::model) fn serve(&self, postman: &mut impl Postman) {
        let requests = std::mem::take(&mut self.0.lock().open);
        for request in requests {
            match request {
                MailRequest::Snapshot(SnapshotRequest { seq, mut header, reply }) => {
                    // The sequence may have ended meanwhile, and another one may have its slot.
                    let snapshot = match postman.copyable_now(seq) {
                        Some(at) => {
                            header.insert(STEP.to_owned(), at.step.to_string());
                            let file = postman.snapshot(at.slot.ix, &header);
                            let file = file.and_then(|file| postman.with_scratch(seq, at.step, file));
                            Some(file.map(|file| (at.step, file)))
                        }
                        None => postman.state_now(seq).map(|_| Err(SnapshotError::InPart)),
                    };
                    // The caller may have gone.
                    let _ = reply.send(snapshot);
                }
                MailRequest::Leave(LeaveRequest { seq, mut header, why, reply }) => {
                    let left = postman.copyable_now(seq).and_then(|at| {
                        header.insert(STEP.to_owned(), at.step.to_string());
                        match postman.snapshot(at.slot.ix, &header) {
                            Ok(file) => postman.leave(seq, why, at, file),
                            Err(error) => Some(Err(error)),
                        }
                    });
                    reply.send(left);
                }
                MailRequest::Values(ValuesRequest { seq, reply }) => {
                    let values = postman.copyable_now(seq).and_then(|at| postman.values(at.slot.ix));
                    reply.send(values);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::mpsc::sync_channel;

    use sequor_core::{Instance, LoadId, Slot};

    use super::*;

    /// Has one sequence in slot 3, after step 5.
    struct OneSequence {
        is_between_runs: bool,
        lives: bool,
    }

    impl Postman for OneSequence {
        fn state_now(&self, _: Seq) -> Option<StateAt> {
            let instance = Instance { load: LoadId::new(0, NonZeroU32::MIN), n: 0 };
            self.lives.then_some(StateAt { instance, slot: Slot::new(3, NonZeroU32::MIN), step: 5 })
        }

        fn copyable_now(&self, seq: Seq) -> Option<StateAt> {
            self.state_now(seq).filter(|_| !self.is_between_runs)
        }

        fn snapshot(&mut self, slot: u32, header: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError> {
            Ok(format!("{slot} {}", header[STEP]).into_bytes())
        }

        fn with_scratch(&self, _: Seq, _: u64, file: Vec<u8>) -> Result<Vec<u8>, SnapshotError> {
            Ok(file)
        }

        fn values(&mut self, _: u32) -> Option<StateValues> {
            None
        }

        fn leave(&mut self, _: Seq, _: Leaving, _: StateAt, _: Vec<u8>) -> Option<Result<LeftState, SnapshotError>> {
            None
        }
    }

    fn snapshot(mut of: OneSequence) -> SnapshotReply {
        let (mailbox, (reply, answer)) = (Mailbox::default(), sync_channel(1));
        let seq = Seq::new(0, NonZeroU32::MIN);
        assert!(mailbox.post(SnapshotRequest { seq, header: BTreeMap::new(), reply }));
        mailbox.serve(&mut of);
        answer.recv().unwrap()
    }

    #[test]
    fn a_state_between_two_runs_of_a_request_is_not_exported() {
        let whole = snapshot(OneSequence { is_between_runs: false, lives: true });
        assert!(matches!(whole, Some(Ok((5, file))) if file == b"3 5"));
        let part = snapshot(OneSequence { is_between_runs: true, lives: true });
        assert!(matches!(part, Some(Err(SnapshotError::InPart))), "{part:?}");
        assert!(snapshot(OneSequence { is_between_runs: true, lives: false }).is_none(), "it has ended");
    }
}
