//! The audit trail: a log line for each change that was requested, and the latest changes for the status page.

use std::collections::VecDeque;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::Serialize;

use super::{Caller, Status};
use crate::telemetry::log::AUDIT;

/// Number of changes kept for the status page.
const KEPT: usize = 50;
/// Maximum bytes of a name in a change, because clients choose it.
const LONGEST_NAME: usize = 256;

/// A requested change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Time in RFC 3339 format.
    pub at: String,
    pub by: String,
    /// `plugin replace`, `model load`, `drain`.
    pub what: &'static str,
    /// The plug-in or model that the change is about.
    pub on: String,
    /// The reason of the refusal, if the change was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Whether a change of a sequence names it by the hash of its id: `vad #9f…`, perhaps with a reason behind it.
pub fn names_a_hash(what: &str, on: &str) -> bool {
    what.starts_with("sequence ") && on.split(' ').nth(1).is_some_and(|id| id.starts_with('#'))
}

/// The latest changes of a server.
#[derive(Debug, Default)]
pub(crate) struct Changes(Mutex<VecDeque<Change>>);

impl Changes {
    /// Notes a change of what a client named. A long name is cut.
    pub(crate) fn note(&self, caller: &Caller, what: &'static str, on: &str, outcome: Result<(), &Status>) {
        let on = on.get(..on.floor_char_boundary(LONGEST_NAME)).unwrap_or_default();
        self.note_whole(caller, what, on, outcome);
    }

    /// Notes a change of what the server named itself, for example the keys of its settings.
    pub(crate) fn note_whole(&self, caller: &Caller, what: &'static str, on: &str, outcome: Result<(), &Status>) {
        let Caller { name, address } = caller;
        match outcome {
            Ok(()) => tracing::info!(target: AUDIT, by = %name, from = %address, what, on, "done"),
            Err(status) => {
                let (code, why) = (status.code.name(), &status.message);
                tracing::warn!(target: AUDIT, by = %name, from = %address, what, on, code, why, "refused");
            }
        }
        let at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let refused = outcome.err().map(|status| status.message.clone());
        let mut changes = self.0.lock();
        changes.truncate(KEPT - 1);
        changes.push_front(Change { at, by: name.clone(), what, on: on.to_owned(), refused });
    }

    /// The changes, newest first.
    pub(crate) fn last(&self) -> Vec<Change> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Code;

    #[test]
    fn the_last_changes_are_kept_the_newest_first() {
        let changes = Changes::default();
        let caller = Caller { name: "anna".to_owned(), address: ([127, 0, 0, 1], 9).into() };
        for n in 0..60 {
            changes.note(&caller, "plugin load", &format!("p{n}"), Ok(()));
        }
        let why = Status::new(Code::Conflict, "conflict", "no");
        changes.note(&caller, "plugin park", "p", Err(&why));
        let kept = changes.last();
        assert_eq!((kept.len(), kept[0].refused.as_deref(), kept[1].on.as_str()), (KEPT, Some("no"), "p59"));
        assert_eq!((kept[1].by.as_str(), kept[1].refused.as_deref()), ("anna", None));
        changes.note(&caller, "model load", &"ü".repeat(LONGEST_NAME), Ok(()));
        assert_eq!(changes.last()[0].on, "ü".repeat(LONGEST_NAME / 2));
    }
}
