//! Decides which requests are traced, begins their spans, and queues the finished ones for the exporter.

use std::sync::Arc;

use sequor_core::Id;
use tokio::sync::{Notify, mpsc};

use super::ids::{IdSource, SampleShare};
use super::model_span::ModelSpan;
use super::request_span::{FinishedSpan, RequestSpan, TracedCall};
use super::trace_parent::TraceParent;
use crate::telemetry::{SpanCounters, SpanLoss};

/// Maximum number of finished requests that wait for the exporter.
pub(super) const WAITING: usize = 8192;

/// Traces the requests of one server. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Tracer(Arc<TracerState>);

#[derive(Debug)]
struct TracerState {
    ids: IdSource,
    share: SampleShare,
    queue: mpsc::Sender<FinishedSpan>,
    /// Wakes the exporter before its time, because the queue fills.
    fills: Arc<Notify>,
    counters: SpanCounters,
}

impl Tracer {
    /// A tracer with the other end of its queue.
    pub(super) fn new(
        share: f64,
        waiting: usize,
        counters: SpanCounters,
    ) -> (Tracer, mpsc::Receiver<FinishedSpan>, Arc<Notify>) {
        let (queue, receiver) = mpsc::channel(waiting);
        let fills = Arc::new(Notify::new());
        let (ids, share) = (IdSource::default(), SampleShare::new(share));
        let state = TracerState { ids, share, queue, fills: Arc::clone(&fills), counters };
        (Tracer(Arc::new(state)), receiver, fills)
    }

    /// Begins the span of a request, if it is traced. `parent` is its `traceparent` header.
    pub fn begin(&self, parent: Option<&str>, call: TracedCall, model: &str) -> Option<Box<RequestSpan>> {
        let parent = parent.and_then(TraceParent::parse);
        let trace = match parent {
            Some(parent) => parent.is_sampled.then_some(parent.trace)?,
            None => {
                let low = self.0.ids.next();
                self.0.share.keeps(low).then(|| (u128::from(self.0.ids.next()) << 64) | u128::from(low))?
            }
        };
        let parent = parent.map(|parent| parent.span);
        let span = FinishedSpan::begin((trace, self.0.ids.next(), parent), call, model.to_owned());
        Some(Box::new(RequestSpan::new(self.clone(), span, Arc::new(ModelSpan::default()))))
    }

    /// An id for another span of a trace.
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
    pub(super) fn finish(&self, span: FinishedSpan) {
        let spans = span.count();
        if self.0.queue.try_send(span).is_err() {
            self.0.counters.dropped(SpanLoss::QueueFull, spans);
        }
        if self.0.queue.capacity() == self.0.queue.max_capacity() / 2 {
            self.0.fills.notify_one();
        }
    }
}
