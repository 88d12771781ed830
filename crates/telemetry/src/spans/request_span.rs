//! The span of one request, from its arrival until its answer is sent.

use std::sync::Arc;
use std::time::Instant;

use sequor_core::Id;

use super::finished_span::{FinishedSpan, SpanEnd};
use super::model_span::ModelSpan;
use super::span_queue::SpanQueue;

/// Maximum bytes of a client's own id of a request.
const REQUEST_ID: usize = 128;

/// The span of a traced request that is not finished.
#[derive(Debug)]
pub struct RequestSpan {
    queue: SpanQueue,
    span: FinishedSpan,
    model: Arc<ModelSpan>,
}

/// A request's place in its sequence, as far as spans show it.
#[derive(Debug, Clone, Copy)]
pub struct TracedStep<'a> {
    pub sequence: &'a Id,
    pub start: bool,
    pub end: bool,
    /// The client's own id of the request.
    pub request: &'a str,
}

impl RequestSpan {
    pub(super) fn new(queue: SpanQueue, span: FinishedSpan, model: Arc<ModelSpan>) -> RequestSpan {
        RequestSpan { queue, span, model }
    }

    /// The part that the model fills.
    pub fn model(&self) -> &Arc<ModelSpan> {
        &self.model
    }

    /// Notes the request's place in its sequence.
    pub fn describe(&mut self, step: TracedStep<'_>) {
        let TracedStep { sequence, start, end, request } = step;
        self.span.sequence = self.queue.name_of(sequence);
        (self.span.start, self.span.end) = (start, end);
        request.get(..request.floor_char_boundary(REQUEST_ID)).unwrap_or_default().clone_into(&mut self.span.request);
    }

    /// Ends the span, and queues it for the exporter.
    pub fn finish(self, outcome: SpanEnd) {
        let RequestSpan { queue, span, model } = self;
        let at_model = model.times().map(|times| (times, [queue.id(), queue.id()]));
        let took = span.until(Instant::now());
        queue.push(FinishedSpan { took, outcome, step: model.step(), at_model, ..span });
    }
}
