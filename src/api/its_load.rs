//! Decodes a request for the load that runs it. After a reload a live sequence stays for a time on the load before, whose inputs may be others.

use super::status::Status;
use crate::model::{ModelHandle, SequenceStep};

/// Decodes a message for the load that its step goes to. Which one that is stands in the message itself, so with several loads the newest is tried
/// first, and then the others. What none of them takes is refused as the first one refuses it.
pub(crate) fn for_its_load<M: Clone, R>(
    model: &ModelHandle,
    message: M,
    mut decode: impl FnMut(&ModelHandle, M) -> Result<R, Status>,
    step: impl Fn(&R) -> &SequenceStep,
) -> Result<R, Status> {
    let others = model.others();
    if others.is_empty() {
        return decode(model, message);
    }
    let first = decode(model, message.clone());
    if first.as_ref().is_ok_and(|request| model.runs(step(request))) {
        return first;
    }
    let of_its_own = |other: &ModelHandle| {
        let request = decode(other, message.clone()).ok()?;
        other.runs(step(&request)).then_some(request)
    };
    others.iter().find_map(of_its_own).map_or(first, Ok)
}
