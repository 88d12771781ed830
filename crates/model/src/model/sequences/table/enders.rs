//! The plug-ins, and the members of ensembles, that ended sequences, by the ids of the sequences. The core remembers the ends, but knows no
//! plug-in and no member by name.

use std::collections::{HashMap, VecDeque};

use sequor_core::{Core, EndReason, Id, Refusal, Time, Tombstone};

use crate::error::{EndedBy, Failure};
use crate::model::sequences::jobs::Job;

/// The plug-in that ended a sequence, and the member that ended a sequence of an ensemble.
pub(in crate::model) type EndersOf = (Option<EndedBy>, Option<String>);

/// Maximum number of ends. The core remembers as many.
const ENDS: usize = 4096;

/// The last end of each id, if a plug-in (`EndedBy`) or a member of an ensemble (its name) caused it. The oldest are forgotten first.
#[derive(Debug)]
pub(in crate::model::sequences) struct Enders<B = EndedBy> {
    by_id: HashMap<Id, Ender<B>>,
    order: VecDeque<(u64, Id)>,
    serial: u64,
}

#[derive(Debug)]
struct Ender<B> {
    serial: u64,
    at: Time,
    why: EndReason,
    by: B,
}

impl<B> Default for Enders<B> {
    fn default() -> Enders<B> {
        Enders { by_id: HashMap::new(), order: VecDeque::new(), serial: 0 }
    }
}

impl Enders<EndedBy> {
    /// Records that a plug-in has just ended the sequence of this id, if the sequence has ended.
    pub(super) fn note(&mut self, core: &Core, now: Time, id: &Id, by: EndedBy) {
        if let Some(stone) = core.end_of(id).filter(|stone| stone.at == now && can_be_caused(stone.why)) {
            self.insert(id, stone, by);
        }
    }

    /// The plug-in that caused the end which a refusal reports.
    pub(super) fn of_refusal(&self, id: &Id, refusal: Refusal) -> Option<EndedBy> {
        if self.by_id.is_empty() {
            return None;
        }
        match refusal {
            Refusal::Unknown(stone) => self.of(id, stone?),
            Refusal::Ended(why) => Some(self.by_id.get(id).filter(|ender| ender.why == why)?.by.clone()),
            _ => None,
        }
    }
}

impl Enders<String> {
    /// Records that a member has just ended the ensemble's sequence of this id, if that has ended.
    pub(super) fn note_member(&mut self, core: &Core, now: Time, id: &Id, member: &str) {
        if let Some(stone) = core.end_of(id).filter(|stone| stone.at == now) {
            self.insert(id, stone, member.to_owned());
        }
    }
}

impl<B: Clone> Enders<B> {
    /// Records the cause of an end which the core remembers.
    fn insert(&mut self, id: &Id, Tombstone { at, why, .. }: Tombstone, by: B) {
        self.serial += 1;
        self.order.push_back((self.serial, id.clone()));
        self.by_id.insert(id.clone(), Ender { serial: self.serial, at, why, by });
        while self.order.len() > ENDS {
            let Some((serial, id)) = self.order.pop_front() else { break };
            if self.by_id.get(&id).is_some_and(|ender| ender.serial == serial) {
                self.by_id.remove(&id);
            }
        }
    }

    /// The cause of this very end.
    pub(in crate::model::sequences) fn of(&self, id: &Id, stone: Tombstone) -> Option<B> {
        let ender = self.by_id.get(id).filter(|ender| (ender.at, ender.why) == (stone.at, stone.why))?;
        Some(ender.by.clone())
    }
}

/// Whether a plug-in can cause such an end.
fn can_be_caused(why: EndReason) -> bool {
    matches!(why, EndReason::Rejected | EndReason::Failed | EndReason::Broken | EndReason::Evicted)
}

/// The plug-in whose failure has ended the sequence.
pub(super) fn ended_in_plugin(failure: &Failure) -> Option<EndedBy> {
    let Failure::Processor(failure) = failure else { return None };
    failure.ended.then(|| EndedBy { plugin: failure.plugin.clone(), world: failure.world })
}

/// The id of a request that failed in a plug-in between its runs, and the plug-in.
pub(super) fn failed_in_plugin(job: &Job) -> Option<(Id, EndedBy)> {
    let Some(Err(Failure::Processor(failure))) = &job.answer else { return None };
    Some((job.id.clone(), EndedBy { plugin: failure.plugin.clone(), world: failure.world }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stone(at: u64) -> Tombstone {
        Tombstone { why: EndReason::Rejected, at: Time(at), step: 1, idle: None }
    }

    fn by(plugin: &str) -> EndedBy {
        EndedBy { plugin: plugin.to_owned(), world: "processor" }
    }

    #[test]
    fn a_later_end_of_an_id_is_recorded_separately() {
        let (mut enders, id) = (Enders::<EndedBy>::default(), Id::Int(7));
        assert_eq!(enders.of(&id, stone(1)), None);
        enders.insert(&id, stone(1), by("one"));
        assert_eq!(enders.of(&id, stone(1)), Some(by("one")));
        assert_eq!(enders.of(&id, stone(2)), None, "a later sequence of this id ended without a plug-in");
        assert_eq!(enders.of(&id, Tombstone { why: EndReason::Idle, ..stone(1) }), None);
        assert_eq!(enders.of_refusal(&id, Refusal::Ended(EndReason::Rejected)), Some(by("one")));
        assert_eq!(enders.of_refusal(&id, Refusal::Ended(EndReason::Admin)), None);
        assert_eq!(enders.of_refusal(&id, Refusal::NoId), None);
        enders.insert(&id, stone(3), by("two"));
        assert_eq!(enders.of_refusal(&id, Refusal::Unknown(Some(stone(3)))), Some(by("two")));
    }

    #[test]
    fn the_oldest_successions_are_forgotten() {
        let mut enders = Enders::<EndedBy>::default();
        for n in 0..=ENDS as u64 {
            enders.insert(&Id::Int(n), stone(n), by("one"));
        }
        assert_eq!((enders.of(&Id::Int(0), stone(0)), enders.of(&Id::Int(1), stone(1))), (None, Some(by("one"))));
        assert_eq!(enders.by_id.len(), ENDS);
    }
}
