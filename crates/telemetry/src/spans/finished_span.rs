//! A finished request with all that its spans show.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use super::model_span::ModelTimes;
use crate::telemetry::Surface;

/// The call that a request came with.
#[derive(Debug, Clone, Copy)]
pub struct TracedCall {
    pub surface: Surface,
    /// Whether the request is one message of many.
    pub is_stream: bool,
    pub client: Option<IpAddr>,
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

/// A traced request.
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
    pub(super) clock: Instant,
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
