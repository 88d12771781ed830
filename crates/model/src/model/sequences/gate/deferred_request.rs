//! A request that waits until this server owns its sequence.

use std::sync::Arc;

use sequor_core::{Req, Time};
use tokio::sync::oneshot;

use crate::error::Failure;
use crate::executor::ExecutorHandle;
use crate::model::request::InferRequest;
use crate::model::sequences::ensembles::Reply;
use crate::model::sequences::jobs::{RequestOrigin, SequenceOwner};
use crate::spans::ModelSpan;

/// A submitted request: the receiver of its answer, and its key. There is no key if it was answered at once.
pub(in crate::model::sequences) type SubmittedRequest = (oneshot::Receiver<Reply>, Option<Req>);

/// Gets the submitted request, or why it was refused. If the client has given up, it is closed.
pub(in crate::model::sequences) type SubmissionSender = oneshot::Sender<Result<SubmittedRequest, Failure>>;

/// A request with its origin.
#[derive(Debug)]
pub(in crate::model::sequences) struct DeferredRequest {
    pub(in crate::model::sequences) request: InferRequest,
    version: Option<u64>,
    submitted: SubmissionSender,
    owner: Option<Arc<dyn SequenceOwner>>,
    awaiting: Option<ExecutorHandle>,
    headers: Vec<(String, String)>,
    callers: Option<Arc<[String]>>,
    /// When the client stops waiting.
    until: Option<Time>,
    fresh_id: u64,
    span: Option<Arc<ModelSpan>>,
}

impl DeferredRequest {
    pub(in crate::model::sequences) fn new(
        request: InferRequest,
        version: Option<u64>,
        origin: RequestOrigin<'_>,
        submitted: SubmissionSender,
        now: Time,
    ) -> DeferredRequest {
        DeferredRequest {
            request,
            version,
            submitted,
            owner: origin.owner.cloned(),
            awaiting: origin.awaiting.or(origin.connection).cloned(),
            headers: origin.headers.to_vec(),
            callers: origin.callers.cloned(),
            until: origin.patience.map(|patience| now + patience),
            fresh_id: origin.fresh_id,
            span: origin.span.cloned(),
        }
    }

    /// Submits it, unless the client has given up. If the client gives up meanwhile, `cancel` gets its key.
    pub(in crate::model::sequences) fn submit(
        self,
        now: Time,
        submit: impl FnOnce(InferRequest, Option<u64>, RequestOrigin<'_>) -> Result<SubmittedRequest, Failure>,
        cancel: impl FnOnce(Req),
    ) {
        if self.submitted.is_closed() {
            return;
        }
        let origin = RequestOrigin {
            owner: self.owner.as_ref(),
            // Another thread submits it, so the connection does not run its step.
            connection: None,
            awaiting: self.awaiting.as_ref(),
            patience: self.until.map(|until| until - now),
            headers: &self.headers,
            callers: self.callers.as_ref(),
            fresh_id: self.fresh_id,
            span: self.span.as_ref(),
        };
        let outcome = submit(self.request, self.version, origin);
        if let Err(Ok((_, Some(req)))) = self.submitted.send(outcome) {
            cancel(req);
        }
    }

    /// Refuses it.
    pub(in crate::model::sequences) fn refuse(self, failure: Failure) {
        // The client may have gone, which is not an error.
        drop(self.submitted.send(Err(failure)));
    }
}
