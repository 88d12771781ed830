//! The span of one request, from its arrival until its answer is sent.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sequor_core::Id;

use super::model_span::{ModelSpan, ModelTimes};
use super::tracer::Tracer;
use crate::telemetry::Surface;

/// Maximum bytes of a client's own id of a request.
const REQUEST_ID: usize = 128;

/// The span of a traced request that is not finished.
#[derive(Debug)]
pub struct RequestSpan {
    tracer: Tracer,
    span: FinishedSpan,
    model: Arc<ModelSpan>,
}

/// The call that a request came with.
#[derive(Debug, Clone, Copy)]
pub struct TracedCall {
    pub surface: Surface,
    /// Whether the request is one message of many.
    pub is_stream: bool,
    pub client: Option<IpAddr>,
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

/// The end of a request, for its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanEnd {
    Answered,
    Refused {
        code: &'static str,
        reason: &'static str,
        grpc: i32,
        /// `None` if no response was sent.
        http: Option<u16>,
    },
}

/// A traced request with all that its spans show.
#[derive(Debug, Clone)]
pub(super) struct FinishedSpan {
    pub(super) trace: u128,
    pub(super) span: u64,
    /// The caller's span.
    pub(super) parent: Option<u64>,
    pub(super) call: TracedCall,
    /// Empty for a model that is not served.
    pub(super) model: String,
    pub(super) began: SystemTime,
    clock: Instant,
    pub(super) took: Duration,
    pub(super) request: String,
    pub(super) sequence: Option<String>,
    pub(super) start: bool,
    pub(super) end: bool,
    pub(super) outcome: SpanEnd,
    pub(super) step: Option<u64>,
    /// The times at its model, with an id for each of its two spans there. `None` if the model has not answered.
    pub(super) at_model: Option<(ModelTimes, [u64; 2])>,
}

impl FinishedSpan {
    pub(super) fn begin((trace, span, parent): (u128, u64, Option<u64>), call: TracedCall, model: String) -> Self {
        FinishedSpan {
            trace,
            span,
            parent,
            call,
            model,
            began: SystemTime::now(),
            clock: Instant::now(),
            took: Duration::ZERO,
            request: String::new(),
            sequence: None,
            start: false,
            end: false,
            outcome: SpanEnd::Answered,
            step: None,
            at_model: None,
        }
    }

    /// Number of its spans.
    pub(super) fn count(&self) -> u64 {
        match &self.at_model {
            None => 1,
            Some((times, _)) if times.run.is_zero() => 2,
            Some(_) => 3,
        }
    }

    /// The time from the request's arrival to this moment.
    pub(super) fn until(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.clock)
    }
}

impl RequestSpan {
    pub(super) fn new(tracer: Tracer, span: FinishedSpan, model: Arc<ModelSpan>) -> RequestSpan {
        RequestSpan { tracer, span, model }
    }

    /// The part that the model fills.
    pub fn model(&self) -> &Arc<ModelSpan> {
        &self.model
    }

    /// Notes the request's place in its sequence.
    pub fn describe(&mut self, step: TracedStep<'_>) {
        let TracedStep { sequence, start, end, request } = step;
        self.span.sequence = self.tracer.name_of(sequence);
        (self.span.start, self.span.end) = (start, end);
        request.get(..request.floor_char_boundary(REQUEST_ID)).unwrap_or_default().clone_into(&mut self.span.request);
    }

    /// Ends the span, and queues it for the exporter.
    pub fn finish(self, outcome: SpanEnd) {
        let RequestSpan { tracer, span, model } = self;
        let at_model = model.times().map(|times| (times, [tracer.id(), tracer.id()]));
        let took = span.until(Instant::now());
        tracer.finish(FinishedSpan { took, outcome, step: model.step(), at_model, ..span });
    }
}
