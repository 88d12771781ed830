//! Operations on one sequence: end, export, import, copy, capture. States are shown only if [admin] peek allows it. `sequence_list` lists
//! the sequences.

use std::time::Duration;

use sequor_core::Id;

use super::sequence_list::absent;
use super::{Admin, Caller, refused};
use crate::api::control::aside;
use crate::api::{Code, Status, refusal};
use crate::model::{CaptureLimits, ModelHandle, TransferError};

/// Default and maximum number of captured steps.
const CAPTURED: usize = 100;
const MOST_CAPTURED: usize = 10_000;
/// Default and maximum time that a capture waits for the steps.
const CAPTURE_WAIT: Duration = Duration::from_secs(30);
const LONGEST_CAPTURE: Duration = Duration::from_secs(100);

/// The limits of a capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedCapture {
    pub(super) steps: Option<usize>,
    pub(super) wait: Option<Duration>,
}

/// Parses an id from a path or a command: a number, unless it is declared to be a text. 0 and an empty text are no sequences.
pub(super) fn id(text: &str, is_text: bool) -> Result<Id, Status> {
    let id = match text.parse::<u64>() {
        Ok(number) if !is_text => Id::from(number),
        _ => Id::from(text),
    };
    match id {
        Id::None => Err(refused::bad_input(format!(
            "\"{text}\" is no sequence: an id is a number above 0, or a text that is not empty"
        ))),
        id => Ok(id),
    }
}

impl Admin {
    pub(super) async fn drop_sequence(
        &self,
        caller: &Caller,
        model: String,
        id: Id,
        why: Option<String>,
    ) -> Result<(), Status> {
        self.run_change(caller, |admin, caller| async move {
            let (repository, of, dropped) = (admin.api().repository().clone(), model.clone(), id.clone());
            let outcome = aside(move || repository.drop_sequence(&of, &dropped)).await;
            let outcome = outcome.and_then(|there| if there { Ok(()) } else { Err(absent(&model, &id)) });
            let why = why.filter(|why| !why.is_empty()).map(|why| format!(" ({why})")).unwrap_or_default();
            admin.note_sequence(&caller, "sequence drop", &model, &id, &why, outcome.as_ref().copied());
            outcome
        })
        .await
    }

    /// The state of a live or stored sequence, as a `.safetensors` file.
    pub(super) async fn export(&self, caller: &Caller, model: String, id: Id) -> Result<Vec<u8>, Status> {
        self.run_change(caller, |admin, caller| async move {
            let outcome = match admin.served(&model) {
                _ if !admin.rights().peek() => {
                    Err(refused::denied("states of sequences are not shown: set [admin] peek = true"))
                }
                Err(status) => Err(status),
                Ok(served) => {
                    let of = id.clone();
                    kept(move || served.export(&of)).await
                }
            };
            admin.note_sequence(&caller, "sequence export", &model, &id, "", outcome.as_ref().map(|_| ()));
            outcome
        })
        .await
    }

    /// Imports a state for a sequence that is not live here. Its next step continues from that state.
    pub(super) async fn import(&self, caller: &Caller, model: String, id: Id, file: Vec<u8>) -> Result<(), Status> {
        self.run_change(caller, |admin, caller| async move {
            let outcome = match admin.served(&model) {
                _ if !admin.rights().upload() => {
                    Err(refused::denied("states are not taken over the wire: set [admin] upload = true"))
                }
                Err(status) => Err(status),
                Ok(served) => {
                    let of = id.clone();
                    kept(move || served.import(of, &file)).await
                }
            };
            admin.note_sequence(&caller, "sequence import", &model, &id, "", outcome.as_ref().copied());
            outcome
        })
        .await
    }

    /// Copies a live sequence's state to another sequence, which must not be live here.
    pub(super) async fn fork(&self, caller: &Caller, model: String, id: Id, to: Id) -> Result<(), Status> {
        self.run_change(caller, |admin, caller| async move {
            let outcome = match admin.served(&model) {
                Err(status) => Err(status),
                Ok(served) => {
                    let (of, copy) = (id.clone(), to.clone());
                    kept(move || served.fork(&of, copy)).await
                }
            };
            let copy = format!(" as {}", admin.shown(&to));
            admin.note_sequence(&caller, "sequence fork", &model, &id, &copy, outcome.as_ref().copied());
            outcome
        })
        .await
    }

    /// Captures the state of a live sequence, and the inputs and outputs of its next steps.
    pub(super) async fn capture(
        &self,
        caller: &Caller,
        model: String,
        id: Id,
        wanted: WantedCapture,
    ) -> Result<Vec<u8>, Status> {
        let steps = wanted.steps.unwrap_or(CAPTURED).clamp(1, MOST_CAPTURED);
        let wait = wanted.wait.unwrap_or(CAPTURE_WAIT).min(LONGEST_CAPTURE);
        let limits = CaptureLimits { steps, bytes: self.rights().capture(), wait };
        let allowed = match self.rights().capture() {
            0 => Err(refused::denied(
                "sequences are not captured: set [admin] capture to the maximum bytes of a capture, such as \"64MiB\"",
            )),
            _ => self.capturing().try_acquire_owned().map_err(|_| {
                Status::new(Code::Conflict, "conflict", "another sequence is captured now; wait until that is done")
            }),
        };
        let count = format!(" (at most {steps} steps)");
        // Written before the capture begins, because an operator who does not wait for the file has captured the sequence, too.
        self.note_sequence(caller, "sequence capture", &model, &id, &count, allowed.as_ref().map(|_| ()));
        let permit = allowed?;
        let outcome = match self.served(&model) {
            Err(refused) => Err(refused),
            Ok(served) => {
                let of = id.clone();
                kept(move || {
                    let _permit = permit;
                    served.capture(&of, limits)
                })
                .await
            }
        };
        if let Err(status) = &outcome {
            self.note_sequence(caller, "sequence capture", &model, &id, &count, Err(status));
        }
        outcome
    }

    fn served(&self, model: &str) -> Result<ModelHandle, Status> {
        self.api().find(model, "").map_err(|failure| refused::failure(&failure))
    }

    /// An id as audit lines show it.
    fn shown(&self, id: &Id) -> String {
        let row = self.row(id, "", 0);
        row.id.map(|id| id.to_string()).or(row.id_hash.map(|hash| format!("#{hash}"))).unwrap_or_default()
    }

    /// Writes the audit line of a change. It hides texts that must not be shown.
    fn note_sequence(
        &self,
        caller: &Caller,
        what: &'static str,
        model: &str,
        id: &Id,
        why: &str,
        outcome: Result<(), &Status>,
    ) {
        let id = self.shown(id);
        self.changes().note(caller, what, &format!("{model} {id}{why}"), outcome);
    }
}

/// Waits for the thread that has the state, on a thread for blocking work.
async fn kept<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    let done =
        done.map_err(|e| Status::new(Code::Internal, "internal", format!("it was not brought to its end: {e}")))?;
    done.map_err(|error| {
        let text = error.to_string();
        match error {
            TransferError::Unknown { .. } | TransferError::Gone { .. } => Status::new(Code::NotFound, "absent", text),
            TransferError::Live { .. }
            | TransferError::NoState { .. }
            | TransferError::Behind { .. }
            | TransferError::Busy { .. }
            | TransferError::InPart { .. } => Status::new(Code::Conflict, "conflict", text),
            TransferError::Store { .. } => {
                Status::new(Code::Unavailable, "store_failed", text).retry_after(refusal::RETRY_AFTER)
            }
            TransferError::TooLarge { .. } => Status::new(Code::TooLarge, "bad_input", text),
            TransferError::Other { .. } | TransferError::Snapshot(_) => {
                Status::new(Code::InvalidArgument, "invalid", text)
            }
            TransferError::NoRoom(_) => {
                Status::new(Code::Unavailable, "state_memory", text).retry_after(refusal::RETRY_AFTER)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_id_is_a_number_unless_a_text_is_requested() {
        let id = |text, is_text| id(text, is_text).unwrap();
        assert_eq!((id("7", false), id("7", true), id("0", true)), (Id::Int(7), Id::from("7"), Id::from("0")));
        assert_eq!((id("call-77", false), id("-1", false)), (Id::from("call-77"), Id::from("-1")));
    }

    #[test]
    fn an_id_of_no_sequence_is_refused() {
        for (text, is_text) in [("0", false), ("00", false), ("", false), ("", true)] {
            assert_eq!(id(text, is_text).map_err(|status| status.reason), Err("bad_input"), "{text}");
        }
    }
}
