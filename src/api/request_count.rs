//! Counts each request once, by its outcome: outputs, a refusal, or a cancellation because the client has gone. The span of a traced request
//! ends with it.

use super::{Code, Status};
use crate::spans::{RequestSpan, SpanEnd};
use crate::telemetry::RequestCounters;
use crate::telemetry::Surface;

/// Counts one request when it is dropped. Without a call of [`RequestCount::sent`], the outcome is that the client has gone.
#[derive(Debug)]
#[must_use = "dropping it counts a client that has gone"]
pub(crate) struct RequestCount {
    counters: RequestCounters,
    surface: Surface,
    outcome: SentAnswer,
    /// `None` if the request is not traced.
    span: Option<Box<RequestSpan>>,
}

/// The outcome of a request, for the labels of its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentAnswer {
    Outputs,
    Refusal { code: Code, reason: &'static str },
}

impl SentAnswer {
    const GONE: SentAnswer = SentAnswer::Refusal { code: Code::Cancelled, reason: "cancelled" };

    pub(crate) fn of<T>(answer: &Result<T, Status>) -> SentAnswer {
        match answer {
            Ok(_) => SentAnswer::Outputs,
            Err(status) => SentAnswer::Refusal { code: status.code, reason: status.reason },
        }
    }
}

impl RequestCount {
    pub(super) fn new(counters: RequestCounters, surface: Surface, span: Option<Box<RequestSpan>>) -> RequestCount {
        RequestCount { counters, surface, outcome: SentAnswer::GONE, span }
    }

    /// The span of the request, if it is traced.
    pub(super) fn span(&mut self) -> Option<&mut RequestSpan> {
        self.span.as_deref_mut()
    }

    /// The outcome for the span.
    fn end(&self) -> SpanEnd {
        let SentAnswer::Refusal { code, reason } = self.outcome else { return SpanEnd::Answered };
        let status = if self.surface == Surface::TfsHttp { code.tfs_http() } else { code.http() };
        // No response is sent to a client that has gone.
        let http = (self.outcome != SentAnswer::GONE).then_some(status);
        SpanEnd::Refused { code: code.name(), reason, grpc: code.grpc() as i32, http }
    }

    /// Sets the outcome that is counted: this was passed to the connection.
    pub(crate) fn sent(mut self, outcome: SentAnswer) {
        self.outcome = outcome;
    }

    /// Counts this answer, which is about to be passed to the connection.
    pub(crate) fn answer<T>(self, answer: Result<T, Status>) -> Result<T, Status> {
        self.sent(SentAnswer::of(&answer));
        answer
    }
}

impl Drop for RequestCount {
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            span.finish(self.end());
        }
        match self.outcome {
            SentAnswer::Outputs => self.counters.succeeded(self.surface),
            SentAnswer::Refusal { code, reason } => self.counters.failed(self.surface, code.name(), reason),
        }
    }
}

/// The count of a request whose answer waits until its connection takes it.
#[derive(Debug)]
pub(crate) struct Receipt {
    count: RequestCount,
    outcome: SentAnswer,
}

impl Receipt {
    pub(crate) fn new(count: RequestCount, outcome: SentAnswer) -> Receipt {
        Receipt { count, outcome }
    }

    /// Counts the request: the connection has taken its answer.
    pub(crate) fn taken(self) {
        self.count.sent(self.outcome);
    }
}
