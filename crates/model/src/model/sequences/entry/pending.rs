//! A submitted request, as the API that sent it holds it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sequor_core::Req;
use tokio::sync::oneshot;

use crate::error::Failure;
use crate::model::sequences::ensembles::{Reply, lost};
use crate::model::sequences::gate::{GatePlace, SubmittedRequest};
use crate::model::sequences::scheduler::ModelScheduler;

/// A submitted request. Dropping it cancels the request. If the request already runs, its state is still committed.
#[derive(Debug)]
pub struct Pending {
    answer: AwaitedAnswer,
    /// `None` once the answer has arrived.
    request: Option<(Arc<ModelScheduler>, Req)>,
}

/// The answer to a request: Deferred → Submitted.
#[derive(Debug)]
enum AwaitedAnswer {
    Submitted(oneshot::Receiver<Reply>),
    /// The request waits until this server owns its sequence.
    Deferred(Arc<ModelScheduler>, GatePlace, oneshot::Receiver<Result<SubmittedRequest, Failure>>),
}

/// A request on its way to its model.
#[derive(Debug)]
pub(in crate::model) enum Submission {
    /// It has this key, unless it was answered at once.
    Submitted(oneshot::Receiver<Reply>, Option<Req>),
    Deferred(GatePlace, oneshot::Receiver<Result<SubmittedRequest, Failure>>),
}

impl Pending {
    pub(in crate::model) fn new(submission: Submission, model: Arc<ModelScheduler>) -> Pending {
        match submission {
            Submission::Submitted(answer, req) => {
                Pending { answer: AwaitedAnswer::Submitted(answer), request: req.map(|req| (model, req)) }
            }
            Submission::Deferred(place, submitted) => {
                Pending { answer: AwaitedAnswer::Deferred(model, place, submitted), request: None }
            }
        }
    }
}

impl Future for Pending {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        if let AwaitedAnswer::Deferred(model, _, submitted) = &mut self.answer {
            let model = Arc::clone(model);
            match ready!(Pin::new(submitted).poll(cx)) {
                Ok(Ok((answer, req))) => {
                    self.request = req.map(|req| (model, req));
                    self.answer = AwaitedAnswer::Submitted(answer);
                }
                Ok(Err(failure)) => return Poll::Ready(Err(failure)),
                Err(_) => return Poll::Ready(Err(lost())),
            }
        }
        let AwaitedAnswer::Submitted(answer) = &mut self.answer else { return Poll::Ready(Err(lost())) };
        let answer = ready!(Pin::new(answer).poll(cx));
        self.request = None;
        Poll::Ready(answer.unwrap_or_else(|_| Err(lost())))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let AwaitedAnswer::Deferred(model, place, submitted) = &mut self.answer {
            submitted.close();
            place.leave();
            // It may have been submitted just before.
            if let Ok(Ok((_, Some(req)))) = submitted.try_recv() {
                model.cancel(req);
            }
        }
        if let Some((model, req)) = self.request.take() {
            model.cancel(req);
        }
    }
}
