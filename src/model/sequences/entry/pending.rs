//! A submitted request, as the API that sent it holds it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sequor_core::Req;
use tokio::sync::oneshot;

use crate::error::Failure;
use crate::model::sequences::ensembles::Reply;
use crate::model::sequences::scheduler::ModelScheduler;

/// A submitted request. Dropping it cancels the request. If the request already runs, its state is still committed.
#[derive(Debug)]
pub struct Pending {
    answer: oneshot::Receiver<Reply>,
    /// `None` once the answer has arrived.
    request: Option<(Arc<ModelScheduler>, Req)>,
}

impl Pending {
    /// `req` is `None` for a request that was answered at once.
    pub(in crate::model) fn new(
        answer: oneshot::Receiver<Reply>,
        model: Arc<ModelScheduler>,
        req: Option<Req>,
    ) -> Pending {
        Pending { answer, request: req.map(|req| (model, req)) }
    }
}

impl Future for Pending {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(cx));
        self.request = None;
        Poll::Ready(answer.unwrap_or_else(|_| Err(Failure::Internal("the request was lost in the server".to_owned()))))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some((model, req)) = self.request.take() {
            model.cancel(req);
        }
    }
}
