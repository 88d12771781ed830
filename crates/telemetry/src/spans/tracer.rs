//! Decides which requests are traced, and begins their spans.

use std::sync::Arc;

use super::finished_span::{FinishedSpan, TracedCall};
use super::ids::SampleShare;
use super::model_span::ModelSpan;
use super::request_span::RequestSpan;
use super::span_queue::SpanQueue;
use super::trace_parent::TraceParent;

/// Traces the requests of one server. Clones share the queue.
#[derive(Debug, Clone)]
pub struct Tracer {
    share: SampleShare,
    /// Whether a caller decides for the requests that it sends.
    follows_parent: bool,
    queue: SpanQueue,
}

impl Tracer {
    pub(super) fn new(share: f64, follows_parent: bool, queue: SpanQueue) -> Tracer {
        Tracer { share: SampleShare::new(share), follows_parent, queue }
    }

    /// Changes the share of requests that are traced.
    pub fn sample(&self, share: f64) {
        self.share.set(share);
    }

    /// Begins the span of a request, if it is traced. `parent` is its `traceparent` header.
    pub fn begin(&self, parent: Option<&str>, call: TracedCall, model: &str) -> Option<Box<RequestSpan>> {
        let parent = parent.and_then(TraceParent::parse);
        let trace = match parent {
            Some(parent) if self.follows_parent => parent.is_sampled.then_some(parent.trace)?,
            Some(parent) => self.share.keeps(low_half(parent.trace)).then_some(parent.trace)?,
            None => {
                let low = self.queue.id();
                self.share.keeps(low).then(|| (u128::from(self.queue.id()) << 64) | u128::from(low))?
            }
        };
        let parent = parent.map(|parent| parent.span);
        let span = FinishedSpan::begin((trace, self.queue.id(), parent), call, model.to_owned());
        Some(Box::new(RequestSpan::new(self.queue.clone(), span, Arc::new(ModelSpan::default()))))
    }
}

/// The random bits of an id. All servers that a trace passes through decide the same from them.
fn low_half(trace: u128) -> u64 {
    u64::try_from(trace & u128::from(u64::MAX)).unwrap_or_default()
}
