//! Bytes of requests that wait for their answers, and of answers that wait for their clients, across all models and APIs, against
//! `limits.queued`. A request that does not fit is refused before it changes its sequence. An answer is never dropped: it counts even beyond
//! the limit, and then no request fits until clients have taken answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::peers::Peer;
use crate::error::ExceededLimit;
use crate::model::AnswerLimit;
use crate::telemetry::kinds::Gauge;

/// The counter of a server. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct QueuedBytes(Arc<QueuedCounter>);

#[derive(Debug)]
struct QueuedCounter {
    used: AtomicU64,
    limit: AtomicU64,
    shown: Gauge,
}

/// The counted bytes of one request. Dropping the permit removes them.
#[derive(Debug)]
pub(crate) struct QueuedBytesPermit {
    queued: QueuedBytes,
    /// The client. The bytes also count against its own maximum. It stays the same value while bytes are counted.
    peer: Peer,
    bytes: u64,
}

/// The counted bytes of an answer, or of a part of it, that its client has not taken. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct AnswerPermit {
    queued: QueuedBytes,
    peer: Peer,
    bytes: u64,
}

impl QueuedBytes {
    /// The gauge `shown` follows the bytes of requests.
    pub(crate) fn new(limit: u64, shown: Gauge) -> QueuedBytes {
        QueuedBytes(Arc::new(QueuedCounter { used: AtomicU64::new(0), limit: AtomicU64::new(limit), shown }))
    }

    pub(crate) fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Bytes that are counted stay, even beyond it.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// A permit with zero bytes, for a request of this peer.
    pub(crate) fn permit(&self, peer: &Peer) -> QueuedBytesPermit {
        QueuedBytesPermit { queued: self.clone(), peer: peer.clone(), bytes: 0 }
    }

    /// Counts these bytes of an answer to this peer, even beyond the limit.
    pub(crate) fn answer(&self, peer: &Peer, bytes: u64) -> AnswerPermit {
        let peer = peer.now();
        self.add_answer(bytes);
        peer.add_answer(bytes);
        AnswerPermit { queued: self.clone(), peer, bytes }
    }

    /// The bytes of answers that clients have not taken.
    pub(crate) fn answer_bytes(&self) -> u64 {
        let requests = u64::try_from(self.0.shown.get()).unwrap_or(0);
        self.0.used.load(Ordering::Relaxed).saturating_sub(requests)
    }

    /// Adds bytes. If they exceed the limit, returns the current count. Zero bytes always fit.
    fn add(&self, bytes: u64) -> Result<(), u64> {
        let (QueuedCounter { used, shown, .. }, limit) = (&*self.0, self.limit());
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit || bytes == 0);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)?;
        shown.add(signed(bytes));
        Ok(())
    }

    fn remove(&self, bytes: u64) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        self.0.shown.add(-signed(bytes));
    }
}

impl AnswerLimit for QueuedBytes {
    fn exceeded(&self) -> Option<ExceededLimit> {
        let (used, limit) = (self.0.used.load(Ordering::Relaxed), self.limit());
        // A server whose requests fill the limit answers them. Their answers are soon taken, and few at a time.
        let is_full = used > limit && self.answer_bytes() > limit / 2;
        is_full.then_some(ExceededLimit::AnswerBytes { used, limit })
    }

    fn add_answer(&self, bytes: u64) {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove_answer(&self, bytes: u64) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for AnswerPermit {
    fn drop(&mut self) {
        self.queued.remove_answer(self.bytes);
        self.peer.remove_answer(self.bytes);
    }
}

impl QueuedBytesPermit {
    /// A permit of a server without a limit.
    #[cfg(test)]
    pub(crate) fn unlimited() -> QueuedBytesPermit {
        QueuedBytes::new(u64::MAX, Gauge::default()).permit(&Peer::default())
    }

    /// The bytes that are counted now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts more bytes before memory is allocated for them, or refuses the request.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), ExceededLimit> {
        let limit = self.queued.limit();
        let needed = self.bytes.saturating_add(bytes);
        if self.bytes == 0 {
            self.peer.update();
        }
        self.peer.add_queued(bytes, self.bytes)?;
        if let Err(used) = self.queued.add(bytes) {
            self.peer.remove_queued(bytes);
            return Err(ExceededLimit::QueuedBytes { needed, used: used.saturating_sub(self.bytes), limit });
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Sets the counted bytes, or refuses the request.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<(), ExceededLimit> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            return self.grow(more);
        }
        let less = self.bytes - bytes;
        self.queued.remove(less);
        self.peer.remove_queued(less);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for QueuedBytesPermit {
    fn drop(&mut self) {
        self.queued.remove(self.bytes);
        self.peer.remove_queued(self.bytes);
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(queued: &QueuedBytes, bytes: u64) -> Option<QueuedBytesPermit> {
        let mut permit = queued.permit(&Peer::default());
        permit.grow(bytes).ok().map(|()| permit)
    }

    #[test]
    fn a_request_that_does_not_fit_is_refused_and_counts_nothing() {
        let shown = Gauge::default();
        let queued = QueuedBytes::new(10, shown.clone());
        let (first, none) = (permit(&queued, 8).unwrap(), permit(&queued, 0).unwrap());
        assert!(permit(&queued, 3).is_none());
        assert!(permit(&queued, u64::MAX).is_none());
        let second = permit(&queued, 2).unwrap();
        assert!(permit(&queued, 0).is_some(), "a request without bytes fits a full server");
        assert_eq!(shown.get(), 10);
        drop((first, none));
        assert!(permit(&queued, 9).is_none());
        assert_eq!(shown.get(), 2);
        drop(second);
        assert_eq!(shown.get(), 0);
    }

    #[test]
    fn answers_count_beyond_the_limit_and_leave_no_room_for_requests() {
        let shown = Gauge::default();
        let queued = QueuedBytes::new(10, shown.clone());
        let request = permit(&queued, 8).unwrap();
        assert_eq!((queued.exceeded(), queued.answer_bytes()), (None, 0));
        let small = queued.answer(&Peer::default(), 5);
        assert_eq!(queued.exceeded(), None, "most of it are requests");
        drop(small);
        let answer = queued.answer(&Peer::default(), 7);
        assert_eq!(queued.exceeded(), Some(ExceededLimit::AnswerBytes { used: 15, limit: 10 }));
        drop(request);
        assert_eq!((queued.exceeded(), queued.answer_bytes(), shown.get()), (None, 7, 0));
        assert!(permit(&queued, 4).is_none() && permit(&queued, 3).is_some());
        drop(answer);
        assert!(permit(&queued, 10).is_some());
        assert_eq!(queued.answer_bytes(), 0);
    }

    #[test]
    fn a_permit_grows_and_shrinks() {
        let shown = Gauge::default();
        let queued = QueuedBytes::new(10, shown.clone());
        let mut permit = permit(&queued, 6).unwrap();
        permit.grow(4).unwrap();
        assert_eq!(permit.grow(1), Err(ExceededLimit::QueuedBytes { needed: 11, used: 0, limit: 10 }));
        permit.resize(3).unwrap();
        assert_eq!(shown.get(), 3);
        assert!(permit.resize(11).is_err());
        permit.resize(10).unwrap();
        drop(permit);
        assert_eq!(shown.get(), 0);
    }
}
