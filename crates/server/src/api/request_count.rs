//! Counts each request once, by its outcome: outputs, a refusal, or a cancellation because the client has gone. The span of a traced request
//! ends with it.

use super::queued::AnswerPermit;
use super::{Code, Status};
use crate::spans::{RequestSpan, SpanEnd};
use crate::telemetry::{RequestCounters, Surface};

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
    Refusal {
        code: Code,
        reason: &'static str,
    },
    /// None: the client has gone.
    Nothing,
}

impl SentAnswer {
    pub(crate) fn of<T>(answer: &Result<T, Status>) -> SentAnswer {
        match answer {
            Ok(_) => SentAnswer::Outputs,
            Err(status) => SentAnswer::Refusal { code: status.code, reason: status.reason },
        }
    }
}

impl RequestCount {
    pub(super) fn new(counters: RequestCounters, surface: Surface, span: Option<Box<RequestSpan>>) -> RequestCount {
        RequestCount { counters, surface, outcome: SentAnswer::Nothing, span }
    }

    /// The span of the request, if it is traced.
    pub(super) fn span(&mut self) -> Option<&mut RequestSpan> {
        self.span.as_deref_mut()
    }

    /// The outcome for the span.
    fn end(&self) -> SpanEnd {
        let (code, reason, http) = match self.outcome {
            SentAnswer::Outputs => return SpanEnd::Answered,
            SentAnswer::Nothing => (Code::Cancelled, "cancelled", None),
            SentAnswer::Refusal { code, reason } if self.surface == Surface::TfsHttp => {
                (code, reason, Some(code.tfs_http()))
            }
            SentAnswer::Refusal { code, reason } => (code, reason, Some(code.http())),
        };
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
            SentAnswer::Nothing => self.counters.gone(self.surface, Code::Cancelled.name()),
        }
    }
}

/// The counts of a request whose answer waits until its connection takes it.
#[derive(Debug)]
pub(crate) struct Receipt {
    count: RequestCount,
    outcome: SentAnswer,
    #[allow(dead_code, reason = "only its drop matters")]
    permit: Option<AnswerPermit>,
}

impl Receipt {
    pub(crate) fn new(count: RequestCount, outcome: SentAnswer) -> Receipt {
        Receipt { count, outcome, permit: None }
    }

    /// The same, with the permit of the answer's bytes.
    pub(crate) fn holding(self, permit: AnswerPermit) -> Receipt {
        Receipt { permit: Some(permit), ..self }
    }

    /// Counts the request: the connection has taken its answer.
    pub(crate) fn taken(self) {
        self.count.sent(self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    #[test]
    fn a_client_that_has_gone_is_counted_and_was_not_refused() {
        let metrics = Metrics::new(true);
        let count = || RequestCount::new(metrics.unserved().clone(), Surface::KserveGrpc, None);
        drop(count());
        assert!(metrics.refused().is_empty());
        let counted = "sequor_requests_total{model=\"\",api=\"kserve_grpc\",code=\"CANCELLED\",reason=\"cancelled\"} 1";
        assert!(metrics.encode().contains(counted), "{}", metrics.encode());
        count().sent(SentAnswer::Refusal { code: Code::InvalidArgument, reason: "cancelled" });
        let refused: Vec<_> = metrics.refused().into_values().flatten().collect();
        assert_eq!(refused, [("cancelled", 1)], "the next step of a sequence that its cancelled request ended");
    }
}
