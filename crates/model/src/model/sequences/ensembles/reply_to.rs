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
    Step(StepOfFlow),
}

/// The failure of a request that nothing can answer any more.
pub(in crate::model::sequences) fn lost() -> Failure {
    Failure::Internal("the request was lost in the server".to_owned())
}

/// A step of an ensemble's request.
#[derive(Debug, Clone)]
pub(in crate::model) struct StepOfFlow {
    pub(in crate::model::sequences) flow: Arc<dyn StepReply>,
    pub(in crate::model::sequences) step: usize,
}

impl StepOfFlow {
    fn send(self, reply: Reply, compute: &RunTimes, thread: Option<&ExecutorHandle>) {
        self.flow.answered(self.step, reply, compute, thread);
    }

    /// Answers a step whose request was lost in a panic.
    pub(in crate::model::sequences) fn lose(self, thread: Option<&ExecutorHandle>) {
        self.send(Err(lost()), &RunTimes::default(), thread);
    }
}

impl ReplyTo {
    /// The step that it is the answer to, if an ensemble waits for it.
    pub(in crate::model::sequences) fn step(&self) -> Option<&StepOfFlow> {
        match self {
            ReplyTo::Surface(_) => None,
            ReplyTo::Step(step) => Some(step),
        }
    }

    pub(in crate::model::sequences) fn send(self, reply: Reply, compute: &RunTimes, thread: Option<&ExecutorHandle>) {
        match self {
            // The client may have gone, which is not an error.
            ReplyTo::Surface(sender) => drop(sender.send(reply)),
            ReplyTo::Step(step) => step.send(reply, compute, thread),
        }
    }
}
