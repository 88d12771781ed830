//! The destination of the answer to a request: the API that waits for it, or the ensemble whose step it is.

use std::fmt::Debug;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::error::Failure;
use crate::executor::ExecutorHandle;
use crate::model::execute::RunTimes;
use crate::model::request::InferAnswer;

/// The answer to a request, or its failure.
pub(in crate::model) type Reply = Result<InferAnswer, Failure>;

/// Takes the answers to the steps of an ensemble's request, with the times of their runs. Called without any lock of a model. Steps that
/// follow may be left to `thread`.
pub(in crate::model) trait StepReply: Debug + Send + Sync {
    fn answered(self: Arc<Self>, step: usize, reply: Reply, compute: &RunTimes, thread: Option<&ExecutorHandle>);
}

#[derive(Debug)]
pub(in crate::model) enum ReplyTo {
    Surface(oneshot::Sender<Reply>),
    Step(Arc<dyn StepReply>, usize),
}

impl ReplyTo {
    pub(in crate::model::sequences) fn send(self, reply: Reply, compute: &RunTimes, thread: Option<&ExecutorHandle>) {
        match self {
            // The client may have gone, which is not an error.
            ReplyTo::Surface(sender) => drop(sender.send(reply)),
            ReplyTo::Step(flow, step) => flow.answered(step, reply, compute, thread),
        }
    }
}
