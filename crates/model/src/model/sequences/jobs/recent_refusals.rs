//! The last refused requests of sequences, for operators. A request that is answered with outputs costs nothing here.

use std::collections::VecDeque;

use sequor_core::{Id, Time};

use crate::error::Failure;
use crate::sync::Mutex;

/// Refusals that are kept of a model.
const REFUSALS: usize = 256;

/// The last refusals of one model. It has a lock of its own, because refusals happen after the model's lock is released.
#[derive(Debug)]
pub(in crate::model::sequences) struct RecentRefusals(Mutex<VecDeque<RefusalRecord>>);

/// A refused or failed request.
#[derive(Debug, Clone)]
pub(in crate::model::sequences) struct RefusalRecord {
    pub(in crate::model::sequences) id: Id,
    pub(in crate::model::sequences) at: Time,
    /// `None`: the request did not fit the model. What it had is not kept, because a client chooses its size.
    pub(in crate::model::sequences) failure: Option<Failure>,
}

impl RecentRefusals {
    pub(in crate::model::sequences) fn new() -> RecentRefusals {
        RecentRefusals(Mutex::new(VecDeque::new()))
    }

    /// Keeps a refusal. Requests without a sequence are left out.
    pub(in crate::model::sequences) fn note(&self, at: Time, id: &Id, failure: &Failure) {
        if *id == Id::None {
            return;
        }
        let failure = Some(failure).filter(|failure| !matches!(failure, Failure::Invalid { .. })).cloned();
        let record = RefusalRecord { id: id.clone(), at, failure };
        let mut refusals = self.0.lock();
        let oldest = if refusals.len() >= REFUSALS { refusals.pop_front() } else { None };
        refusals.push_back(record);
        drop(refusals);
        drop(oldest);
    }

    /// The refusals of an id, the latest first.
    pub(in crate::model::sequences) fn of(&self, id: &Id) -> Vec<RefusalRecord> {
        self.0.lock().iter().rev().filter(|refusal| refusal.id == *id).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Invalid;

    #[test]
    fn the_last_refusals_are_kept_without_what_clients_sent() {
        let refusals = RecentRefusals::new();
        let internal = || Failure::Internal("first".to_owned());
        refusals.note(Time(1), &Id::None, &internal());
        refusals.note(Time(2), &Id::Int(7), &internal());
        let what = Box::new(Invalid::NoData { input: "long".to_owned() });
        refusals.note(Time(3), &Id::Int(7), &Failure::Invalid { model: "m".to_owned(), id: String::new(), what });
        let of = |id: u64| {
            let kept = refusals.of(&Id::Int(id)).into_iter();
            kept.map(|kept| (kept.at.0, kept.failure.map(|failure| failure.to_string()))).collect::<Vec<_>>()
        };
        assert_eq!(of(7), [(3, None), (2, Some("first".to_owned()))]);
        for n in 0..REFUSALS as u64 {
            refusals.note(Time(n), &Id::Int(100 + n), &internal());
        }
        assert_eq!((of(7).len(), of(100).len()), (0, 1));
    }
}
