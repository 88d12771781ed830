//! Decodes a request for the load that runs it. After a reload, live sequences may stay on the previous load, whose inputs may differ.

use sequor_core::Id;

use super::queued::QueuedBytesPermit;
use super::refusal::{PEER_LIMIT, QUEUE_FULL};
use super::status::Status;
use crate::model::{ModelHandle, SequenceStep};

/// Decodes a message for the load of its sequence. Only the decoded message names the sequence, so with several loads each is tried, newest
/// first. If no load takes the message, the newest load's result counts. The permit counts the bytes of the last attempt only.
pub(crate) fn for_its_load<M: Clone, R>(
    model: &ModelHandle,
    message: M,
    permit: &mut QueuedBytesPermit,
    mut decode: impl FnMut(&ModelHandle, M, &mut QueuedBytesPermit) -> Result<R, Status>,
    step: impl Fn(&R) -> &SequenceStep,
) -> Result<R, Status> {
    let others = model.others();
    if others.is_empty() {
        return decode(model, message, permit);
    }
    let before = permit.bytes();
    let first = decode(model, message.clone(), permit);
    let is_its_own = |request: &R, of: &ModelHandle| step(request).id == Id::None || of.runs(step(request));
    if first.as_ref().is_ok_and(|request| is_its_own(request, model)) {
        return first;
    }
    for other in &others {
        // Fewer bytes always fit.
        if permit.resize(before).is_err() {
            break;
        }
        match decode(other, message.clone(), permit) {
            Ok(request) if is_its_own(&request, other) => return Ok(request),
            Err(status) if [QUEUE_FULL, PEER_LIMIT].contains(&status.reason) => return Err(status),
            _ => {}
        }
    }
    first
}
