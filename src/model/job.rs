//! A request on its way through the server: what it brought, who waits for it, and what its run has left.

use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{Id, Refusal, Seq, Time};
use tokio::sync::oneshot;

use crate::error::Failure;
use crate::state::budget::Ticket;
use crate::tensor::{Named, Tensor};

use super::loaded::Loaded;
use super::record::Facts;
use super::request::{InferAnswer, Parameter};

/// Lives in the driver's table, under the core's lock but for the time of its run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) load: Arc<Loaded>,
    /// The client's mark.
    pub(super) mark: String,
    pub(super) id: Id,
    pub(super) inputs: Vec<Option<Tensor>>,
    /// The outputs wanted, by their place in the settings.
    pub(super) outputs: Vec<usize>,
    pub(super) rows: u64,
    pub(super) arrived: Time,
    /// When its batch was taken.
    pub(super) taken: Time,
    /// State memory for the sequence it starts.
    pub(super) ticket: Option<Ticket>,
    /// Known once it runs.
    pub(super) seq: Option<Seq>,
    /// Whether the client counts its steps.
    pub(super) counted: bool,
    /// The state its sequence goes on from, if that was kept elsewhere.
    pub(super) snapshot: Option<Bytes>,
    /// What a recording tells of it.
    pub(super) facts: Facts,
    /// What its run has left.
    pub(super) answer: Option<Result<Vec<Tensor>, Failure>>,
    /// The answer is that of an earlier request of the same step.
    pub(super) replayed: bool,
    pub(super) reply: oneshot::Sender<Result<InferAnswer, Failure>>,
}

impl Job {
    /// Sends what the run has left.
    pub(super) fn release(self) {
        let answer = match self.answer {
            Some(Ok(tensors)) => Ok(tensors),
            Some(Err(failure)) => Err(failure),
            None => Err(Failure::Internal(format!("a request to model '{}' was lost", self.load.settings.name))),
        };
        let replayed = self.replayed.then(|| ("sequor_replayed".to_owned(), Parameter::Bool(true)));
        let parameters = replayed.into_iter().collect();
        let answer = answer.map(|tensors| {
            let mut tensors: Vec<Option<Tensor>> = tensors.into_iter().map(Some).collect();
            let mut outputs = Vec::with_capacity(self.outputs.len());
            for (at, n) in self.outputs.iter().enumerate() {
                // Whoever asks for an output twice gets it twice.
                let again = self.outputs.iter().skip(at + 1).any(|later| later == n);
                let tensor = tensors.get_mut(*n).and_then(|t| if again { t.clone() } else { t.take() });
                let name = self.load.settings.outputs.get(*n).map(|o| o.name.clone());
                outputs.extend(name.zip(tensor).map(|(name, tensor)| Named { name, tensor }));
            }
            let (model, version) = (self.load.settings.name.clone(), self.load.version);
            InferAnswer { model, version, id: self.mark, outputs, parameters }
        });
        // Nobody may be listening any more; that is no fault.
        let _ = self.reply.send(answer);
    }

    /// Says why it was not run.
    pub(super) fn refuse(self, refusal: Refusal, now: Time) {
        let refused = self.load.refused(refusal, self.id.clone(), now);
        let _ = self.reply.send(Err(refused));
    }
}
