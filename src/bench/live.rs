//! The phase of a run, shared by all its senders: warming up, measuring or over.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The state that all senders of a run share.
#[derive(Debug)]
pub(super) struct RunProgress {
    phase: AtomicU8,
    /// Begin and end of the measured span, once they are known.
    span: RwLock<(Option<Instant>, Option<Instant>)>,
    answered: AtomicU64,
    wanted: u64,
    enough: Notify,
    gave_up: CancellationToken,
}

const WARMING_UP: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

impl RunProgress {
    pub(super) fn new(wanted: Option<u64>) -> RunProgress {
        RunProgress {
            phase: AtomicU8::new(WARMING_UP),
            span: RwLock::default(),
            answered: AtomicU64::new(0),
            wanted: wanted.unwrap_or(u64::MAX),
            enough: Notify::new(),
            gave_up: CancellationToken::new(),
        }
    }

    pub(super) fn begin(&self) {
        self.span.write().0 = Some(Instant::now());
        self.phase.store(MEASURING, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.phase.store(OVER, Ordering::Release);
        self.span.write().1 = Some(Instant::now());
    }

    pub(super) fn measuring(&self) -> bool {
        self.phase.load(Ordering::Acquire) == MEASURING
    }

    pub(super) fn over(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OVER
    }

    /// Whether a request that was due then is in the measured span.
    pub(super) fn measures(&self, due: Instant) -> bool {
        let (begin, end) = *self.span.read();
        begin.is_some_and(|begin| due >= begin) && end.is_none_or(|end| due < end)
    }

    pub(super) fn answered(&self) {
        if self.answered.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            self.enough.notify_one();
        }
    }

    /// Waits until the wanted number of requests is answered.
    pub(super) async fn has_enough(&self) {
        self.enough.notified().await;
    }

    /// Stops waiting for answers.
    pub(super) fn give_up(&self) {
        self.gave_up.cancel();
    }

    pub(super) fn has_given_up(&self) -> bool {
        self.gave_up.is_cancelled()
    }

    pub(super) async fn gave_up(&self) {
        self.gave_up.cancelled().await;
    }
}
