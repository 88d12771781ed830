//! Activity of a connection: the number of active requests, the answers that are being sent, and whether there was one lately. A request
//! needs no reading of the clock. What counts is written by the tasks of one connection, so no other processor waits for it; only the bytes
//! of answers are counted for the whole server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use crate::api::peers::Peer;
use crate::api::queued::QueuedBytes;
use crate::model::AnswerLimit;

/// The requests of one connection. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Activity(Arc<RequestCounts>);

#[derive(Debug, Default)]
struct RequestCounts {
    /// Counts the bytes of answers. `None` on listeners that do not count.
    queued: Option<QueuedBytes>,
    active: AtomicUsize,
    /// Parts of answers that the connection has taken and the client has not.
    sending: AtomicUsize,
    /// Whether a write waits for the client.
    is_blocked: AtomicBool,
    /// Whether a request has begun, or a part of an answer was sent, since the last [`Activity::is_idle`].
    used: AtomicBool,
    /// Whether the client has taken a byte of an answer since the last [`Activity::is_stalled`].
    progressed: AtomicBool,
    /// The last [`BodyPoll`].
    polled: AtomicU8,
}

/// The outcome of a poll of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyPoll {
    /// No body was polled.
    Nothing,
    /// The body has no part yet.
    Waits,
    /// The connection has taken a part.
    Part,
}

/// An active request. Dropping it means that the connection has its whole response.
#[derive(Debug)]
pub(super) struct ActiveRequest(Activity);

/// A part of an answer. Dropping it means that the client has taken it, or never will.
#[derive(Debug)]
pub(super) struct SendingPart {
    activity: Activity,
    peer: Peer,
    bytes: u64,
}

impl Activity {
    pub(super) fn new(queued: Option<QueuedBytes>) -> Activity {
        Activity(Arc::new(RequestCounts { queued, ..RequestCounts::default() }))
    }

    pub(super) fn begin(&self) -> ActiveRequest {
        self.0.active.fetch_add(1, Ordering::Relaxed);
        self.0.used.store(true, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }

    /// Whether no request is active, no answer is being sent, and neither was since the last call.
    pub(super) fn is_idle(&self) -> bool {
        let used = self.0.used.swap(false, Ordering::Relaxed);
        !used && self.0.active.load(Ordering::Relaxed) == 0 && !self.is_sending()
    }

    /// Sets whether a write waits for the client.
    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.0.is_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Whether an answer is being sent and the client has taken no byte of any since the last call.
    pub(super) fn is_stalled(&self) -> bool {
        let progressed = self.0.progressed.swap(false, Ordering::Relaxed);
        self.has_parts() && !progressed
    }

    /// Whether parts of answers wait for the client.
    pub(super) fn has_parts(&self) -> bool {
        self.0.sending.load(Ordering::Relaxed) > 0
    }

    /// The outcome of the last poll of a body since the last call. The tasks of a connection run one after the other, so it is a body of the
    /// task that has just run.
    pub(super) fn take_poll(&self) -> BodyPoll {
        let polled = self.0.polled.load(Ordering::Relaxed);
        self.0.polled.store(BodyPoll::Nothing as u8, Ordering::Relaxed);
        match polled {
            n if n == BodyPoll::Part as u8 => BodyPoll::Part,
            n if n == BodyPoll::Waits as u8 => BodyPoll::Waits,
            _ => BodyPoll::Nothing,
        }
    }

    fn is_sending(&self) -> bool {
        self.has_parts() || self.0.is_blocked.load(Ordering::Relaxed)
    }
}

impl ActiveRequest {
    /// Counts a part of its answer to this peer that the connection takes now.
    pub(super) fn sending(&self, peer: &Peer, bytes: usize) -> SendingPart {
        let (activity, peer, bytes) = (self.0.clone(), peer.now(), bytes as u64);
        activity.0.sending.fetch_add(1, Ordering::Relaxed);
        if let Some(queued) = &activity.0.queued {
            queued.add_answer(bytes);
            peer.add_answer(bytes);
        }
        SendingPart { activity, peer, bytes }
    }

    /// Notes the outcome of a poll of its body.
    pub(super) fn note(&self, poll: BodyPoll) {
        self.0.0.polled.store(poll as u8, Ordering::Relaxed);
    }
}

impl SendingPart {
    /// The client has taken bytes of it.
    pub(super) fn progressed(&self) {
        self.activity.0.progressed.store(true, Ordering::Relaxed);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.0.active.fetch_sub(1, Ordering::Relaxed);
        self.0.0.used.store(true, Ordering::Relaxed);
    }
}

impl Drop for SendingPart {
    fn drop(&mut self) {
        let SendingPart { activity, peer, bytes } = self;
        if let Some(queued) = &activity.0.queued {
            queued.remove_answer(*bytes);
            peer.remove_answer(*bytes);
        }
        activity.0.sending.fetch_sub(1, Ordering::Relaxed);
        activity.0.used.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_if_nothing_was_active_since_the_last_look() {
        let activity = Activity::default();
        assert!(activity.is_idle());
        let request = activity.begin();
        assert_eq!((activity.is_idle(), activity.is_idle()), (false, false));
        let part = request.sending(&Peer::default(), 1);
        drop(request);
        assert_eq!((activity.is_idle(), activity.is_idle()), (false, false), "its answer is being sent");
        drop(part);
        assert_eq!((activity.is_idle(), activity.is_idle()), (false, true));
        activity.set_blocked(true);
        assert!(!activity.is_idle(), "a write waits");
        activity.set_blocked(false);
        assert!(activity.is_idle());
    }
}
