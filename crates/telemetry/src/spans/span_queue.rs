//! The queue of finished requests for the exporter, and the ids of spans.

use std::sync::Arc;

use sequor_core::Id;
use tokio::sync::{Notify, mpsc};

use super::finished_span::FinishedSpan;
use super::ids::IdSource;
use crate::telemetry::{SpanCounters, SpanLoss};

/// The exporter's end of a queue: the requests, and what wakes it before its time because the queue fills.
pub(super) type QueueEnd = (mpsc::Receiver<FinishedSpan>, Arc<Notify>);

/// A bounded queue. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct SpanQueue(Arc<SpanQueueState>);

#[derive(Debug)]
struct SpanQueueState {
    ids: IdSource,
    sender: mpsc::Sender<FinishedSpan>,
    fills: Arc<Notify>,
    counters: SpanCounters,
}

impl SpanQueue {
    /// A queue with its other end.
    pub(super) fn new(waiting: usize, counters: SpanCounters) -> (SpanQueue, QueueEnd) {
        let (sender, receiver) = mpsc::channel(waiting);
        let fills = Arc::new(Notify::new());
        let state = SpanQueueState { ids: IdSource::default(), sender, fills: Arc::clone(&fills), counters };
        (SpanQueue(Arc::new(state)), (receiver, fills))
    }

    /// An id for a span or for half of a trace.
    pub(super) fn id(&self) -> u64 {
        self.0.ids.next()
    }

    /// How spans name a sequence. A number is no secret. A text may be a client's own, so only its hash is exported.
    pub(super) fn name_of(&self, id: &Id) -> Option<String> {
        match id {
            Id::None => None,
            Id::Int(number) => Some(number.to_string()),
            text => Some(format!("{:016x}", self.0.ids.hash(text))),
        }
    }

    /// Queues a finished request. If the queue is full, its spans are dropped and counted.
    pub(super) fn push(&self, span: FinishedSpan) {
        let spans = span.count();
        if self.0.sender.try_send(span).is_err() {
            self.0.counters.dropped(SpanLoss::QueueFull, spans);
        }
        if self.0.sender.capacity() == self.0.sender.max_capacity() / 2 {
            self.0.fills.notify_one();
        }
    }
}
