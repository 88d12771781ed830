//! States that wait for the next step of an id without a live sequence. An operator gave them, or a replaced load left them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{EndReason, Id, Submit, Time, Tombstone};

use crate::error::Failure;
use crate::model::load::LoadedModel;
use crate::model::sequences::jobs::Job;
use crate::model::sequences::offloaded::{Carried, GivenTo, ImportOrigin, LOOK};
use crate::processing::SequenceScratch;
use crate::state::StateSpec;
use crate::state::budget::Ticket;

/// Maximum time for which a given state waits for the next step of its id.
const WAITS: Duration = Duration::from_secs(600);

/// A state and its memory.
#[derive(Debug)]
pub(in crate::model::sequences) struct Import {
    pub(in crate::model::sequences) origin: ImportOrigin,
    pub(in crate::model) snapshot: Bytes,
    /// `None` if the model has no states.
    pub(in crate::model) ticket: Option<Ticket>,
    /// The scratch of the load's processors, if it has any.
    pub(in crate::model::sequences) scratch: Option<SequenceScratch>,
}

impl Import {
    /// A state that an operator gives to an id, for this load.
    pub(in crate::model::sequences) fn given(
        load: &LoadedModel,
        now: Time,
        step: u64,
        snapshot: Bytes,
        ticket: Ticket,
    ) -> Import {
        let given = GivenTo { version: load.version, states: load.states.clone(), until: now + WAITS };
        let origin = ImportOrigin { step, carried: None, given: Some(given) };
        Import { origin, snapshot, ticket: Some(ticket), scratch: None }
    }

    /// A state that a replaced load left.
    pub(in crate::model::sequences) fn carried(
        step: u64,
        carried: Carried,
        snapshot: Bytes,
        ticket: Option<Ticket>,
    ) -> Import {
        let origin = ImportOrigin { step, carried: Some(carried), given: None };
        Import { origin, snapshot, ticket, scratch: None }
    }

    /// The time until which it waits.
    pub(in crate::model::sequences) fn until(&self) -> Time {
        let ImportOrigin { carried, given, .. } = &self.origin;
        let until = carried.as_ref().map(|carried| carried.until);
        until.or(given.as_ref().map(|given| given.until)).unwrap_or(Time::NEVER)
    }
}

/// All waiting states, by the ids of their sequences.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct Imports {
    by_id: BTreeMap<Id, Import>,
    /// When to look for expired states.
    due: Time,
}

impl Imports {
    pub(in crate::model::sequences) fn has(&self, id: &Id) -> bool {
        !self.by_id.is_empty() && self.by_id.contains_key(id)
    }

    pub(in crate::model::sequences) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(in crate::model::sequences) fn insert(&mut self, id: Id, import: Import) {
        self.due = self.due.min(import.until());
        self.by_id.insert(id, import);
    }

    /// The load that a step of this id goes to, if a replaced load left its state.
    pub(in crate::model::sequences) fn load_of(&self, submit: &Submit) -> Option<Arc<LoadedModel>> {
        if submit.start { None } else { self.goes_to(&submit.id) }
    }

    /// The load that a state of this id was left for.
    pub(in crate::model::sequences) fn goes_to(&self, id: &Id) -> Option<Arc<LoadedModel>> {
        if self.by_id.is_empty() {
            return None;
        }
        self.by_id.get(id)?.origin.carried.as_ref().map(|carried| Arc::clone(&carried.load))
    }

    /// Refuses a step if the state that waits for it was given to, or left for, a load whose states differ from those of the step's load.
    pub(in crate::model::sequences) fn check(&self, load: &LoadedModel, submit: &Submit) -> Result<(), Failure> {
        if self.by_id.is_empty() || submit.start {
            return Ok(());
        }
        let Some(ImportOrigin { carried, given, .. }) = self.by_id.get(&submit.id).map(|import| &import.origin) else {
            return Ok(());
        };
        let given = given.as_ref().filter(|given| given.states != load.states).map(|given| given.version);
        let carried = carried.as_ref().filter(|carried| !are_alike(&carried.load.states, &load.states));
        let Some(version) = given.or(carried.map(|carried| carried.load.version)) else { return Ok(()) };
        let why = format!("it is for version {version}, whose states differ from those of version {}", load.version);
        Err(Failure::NotResumed { model: load.settings.name.clone(), id: submit.id.clone(), why })
    }

    /// Removes and returns the state that waits for a step of this id.
    pub(in crate::model::sequences) fn remove(&mut self, id: &Id) -> Option<Import> {
        if self.by_id.is_empty() { None } else { self.by_id.remove(id) }
    }

    /// The state that waits for a step of this id.
    pub(in crate::model::sequences) fn get(&self, id: &Id) -> Option<&Import> {
        self.by_id.get(id)
    }

    /// The waiting states in the order of their ids, from the first one after this id.
    pub(in crate::model::sequences) fn after(&self, id: Option<&Id>) -> impl Iterator<Item = (&Id, &Import)> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range::<Id, _>((from, Bound::Unbounded))
    }

    /// Gives a request the state that waits for it. A START does not get it: the state is removed once its sequence begins.
    pub(super) fn give(&mut self, job: &mut Job, submit: &mut Submit) {
        // Usually no state waits.
        if self.by_id.is_empty() || submit.start {
            return;
        }
        let names_another = |import: &Import| {
            let version = import.origin.carried.as_ref().map(|carried| carried.load.version);
            version.zip(submit.version).is_some_and(|(there, named)| there != named)
        };
        if self.by_id.get(&submit.id).is_none_or(names_another) {
            return;
        }
        let Some(import) = self.by_id.remove(&submit.id) else { return };
        submit.adopt = Some(import.origin.step);
        submit.idle = import.origin.carried.as_ref().map_or(submit.idle, |carried| carried.idle);
        (job.source.snapshot, job.claims.ticket, job.source.kept_scratch) =
            (Some(import.snapshot), import.ticket, import.scratch);
        job.source.imported = Some(Box::new(import.origin));
    }

    /// Takes back the state of a request that was refused before its sequence began.
    pub(super) fn keep_on(&mut self, job: &mut Job) {
        let Some(origin) = job.source.imported.take() else { return };
        if let Some(snapshot) = job.source.snapshot.take() {
            let (ticket, scratch) = (job.claims.ticket.take(), job.source.kept_scratch.take());
            self.insert(job.id.clone(), Import { origin: *origin, snapshot, ticket, scratch });
        }
    }

    /// Takes the states that wait for this load.
    pub(in crate::model::sequences) fn take_for(&mut self, load: &LoadedModel) -> Vec<(Id, Import)> {
        let goes_there =
            |import: &Import| import.origin.carried.as_ref().is_some_and(|carried| carried.load.key == load.key);
        let ids: Vec<Id> =
            self.by_id.iter().filter(|(_, import)| goes_there(import)).map(|(id, _)| id.clone()).collect();
        ids.into_iter().filter_map(|id| self.by_id.remove(&id).map(|import| (id, import))).collect()
    }

    /// Takes all states that replaced loads left.
    pub(in crate::model::sequences) fn take_carried(&mut self) -> Vec<(Id, Import)> {
        let ids: Vec<Id> =
            self.by_id.iter().filter(|(_, import)| import.origin.carried.is_some()).map(|(id, _)| id.clone()).collect();
        ids.into_iter().filter_map(|id| self.by_id.remove(&id).map(|import| (id, import))).collect()
    }

    /// Removes the states that have expired. Returns how their sequences ended, and when to look again.
    pub(in crate::model::sequences) fn expire(&mut self, now: Time) -> (Vec<(Id, Tombstone)>, Time) {
        let (mut ended, mut next) = (Vec::new(), Time::NEVER);
        if self.by_id.is_empty() || now < self.due {
            return (ended, if self.by_id.is_empty() { next } else { self.due });
        }
        self.by_id.retain(|id, import| {
            let until = import.until();
            if until > now {
                next = next.min(until);
                return true;
            }
            // A given state was not a sequence yet, so its expiry is not an end.
            let ImportOrigin { step, carried, .. } = &import.origin;
            ended.extend(carried.as_ref().map(|carried| {
                (id.clone(), Tombstone { why: EndReason::Idle, at: until, step: *step, idle: carried.idle })
            }));
            false
        });
        if next != Time::NEVER {
            next = next.max(now + LOOK * u32::try_from(self.by_id.len()).unwrap_or(u32::MAX));
        }
        self.due = next;
        (ended, next)
    }
}

/// Whether the states of two loads have the same names, types and dimensions.
fn are_alike(one: &[StateSpec], other: &[StateSpec]) -> bool {
    let fits = |state: &StateSpec| {
        other.iter().any(|of| (&of.input, of.dtype, &of.dims) == (&state.input, state.dtype, &state.dims))
    };
    one.len() == other.len() && one.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_expiring_imports_cost_few_scans() {
        let mut imports = Imports::default();
        for n in 0..1000u64 {
            let given = GivenTo { version: 1, states: Vec::new(), until: Time(1_000 + n) };
            let origin = ImportOrigin { step: 1, carried: None, given: Some(given) };
            imports.insert(Id::from(n), Import { origin, snapshot: Bytes::new(), ticket: None, scratch: None });
        }
        let (mut now, mut looks) = (Time(1_000), 0);
        while now != Time::NEVER {
            now = imports.expire(now).1;
            looks += 1;
        }
        assert!(looks <= 3 && imports.is_empty(), "{looks} looks");
    }
}
