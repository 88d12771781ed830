//! Submits a request of a client. If servers share the sequences of its model, this server must own the sequence of the request first.

use std::sync::Arc;

use crate::error::Failure;
use crate::model::request::InferRequest;
use crate::model::sequences::jobs::RequestOrigin;
use crate::model::sequences::scheduler::ModelScheduler;

use super::claims::{self, AfterGate};
use super::pending::Submission;
use super::submission::submit_past_gate;

/// Checks a request and puts it in its queue, or lets it wait until this server owns its sequence.
pub(in crate::model) fn submit(
    model: &Arc<ModelScheduler>,
    request: InferRequest,
    version: Option<u64>,
    origin: RequestOrigin<'_>,
) -> Result<Submission, Failure> {
    let submitted = |(answer, req)| Submission::Submitted(answer, req);
    let Some(gate) = model.gate.as_ref().filter(|gate| gate.is_active()) else {
        return submit_past_gate(model, request, version, origin).map(submitted);
    };
    match claims::pass(model, gate, request, version, origin)? {
        AfterGate::Waits(place, submitted) => Ok(Submission::Deferred(place, submitted)),
        AfterGate::Enters(request, held) => {
            let outcome = submit_past_gate(model, request, version, origin);
            if let Some((id, period)) = held {
                gate.entered(&id, period);
                if outcome.is_err() {
                    gate.note_unused(vec![id]);
                }
            }
            outcome.map(submitted)
        }
    }
}
