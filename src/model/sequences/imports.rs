//! States that wait for the next step of a sequence that does not live here: an operator gave them, or a replaced load left them.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{EndReason, Id, Submit, Time, Tombstone};

use super::carried::Carried;
use super::job::Job;
use crate::model::load::LoadedModel;
use crate::state::budget::Ticket;

/// A state and its memory.
#[derive(Debug)]
pub(super) struct Import {
    /// The step it is as of.
    pub(in crate::model) step: u64,
    pub(in crate::model) snapshot: Bytes,
    /// `None` if the model has no states.
    pub(in crate::model) ticket: Option<Ticket>,
    /// Where it goes, if a replaced load left it.
    pub(in crate::model) carried: Option<Carried>,
}

/// All of them, by the ids of their sequences.
#[derive(Debug, Default)]
pub(super) struct Imports {
    by_id: HashMap<Id, Import>,
    /// When the first of them expires, or earlier.
    due: Time,
}

impl Imports {
    pub(super) fn has(&self, id: &Id) -> bool {
        !self.by_id.is_empty() && self.by_id.contains_key(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn insert(&mut self, id: Id, import: Import) {
        if let Some(carried) = &import.carried {
            self.due = self.due.min(carried.until);
        }
        self.by_id.insert(id, import);
    }

    /// The load that a step of this id goes to, if a replaced load left its state.
    pub(super) fn load_of(&self, submit: &Submit) -> Option<Arc<LoadedModel>> {
        if self.by_id.is_empty() || submit.start {
            return None;
        }
        self.by_id.get(&submit.id)?.carried.as_ref().map(|carried| Arc::clone(&carried.load))
    }

    /// Gives a request the state that waits for it. A START begins without.
    pub(super) fn give(&mut self, job: &mut Job, submit: &mut Submit) {
        if self.by_id.is_empty() {
            // As nearly always: nothing to look up.
            return;
        }
        if submit.start {
            self.by_id.remove(&submit.id);
            return;
        }
        let names_another = |import: &Import| {
            let version = import.carried.as_ref().map(|carried| carried.load.version);
            version.zip(submit.version).is_some_and(|(there, named)| there != named)
        };
        if self.by_id.get(&submit.id).is_none_or(names_another) {
            return;
        }
        let Some(import) = self.by_id.remove(&submit.id) else { return };
        submit.adopt = Some(import.step);
        submit.idle = import.carried.as_ref().map_or(submit.idle, |carried| carried.idle);
        (job.snapshot, job.ticket) = (Some(import.snapshot), import.ticket);
        job.imported = Some((import.step, import.carried));
    }

    /// Takes back what a request was given that was refused before its sequence began.
    pub(super) fn keep_on(&mut self, job: &mut Job) {
        let Some((step, carried)) = job.imported.take() else { return };
        if let Some(snapshot) = job.snapshot.take() {
            let import = Import { step, snapshot, ticket: job.ticket.take(), carried };
            self.insert(job.id.clone(), import);
        }
    }

    /// Takes those that wait for this load.
    pub(super) fn take_for(&mut self, load: &LoadedModel) -> Vec<(Id, Import)> {
        let goes_there = |import: &Import| import.carried.as_ref().is_some_and(|carried| carried.load.key == load.key);
        let ids: Vec<Id> =
            self.by_id.iter().filter(|(_, import)| goes_there(import)).map(|(id, _)| id.clone()).collect();
        ids.into_iter().filter_map(|id| self.by_id.remove(&id).map(|import| (id, import))).collect()
    }

    /// Takes all that replaced loads left.
    pub(super) fn take_carried(&mut self) -> Vec<(Id, Import)> {
        let ids: Vec<Id> =
            self.by_id.iter().filter(|(_, import)| import.carried.is_some()).map(|(id, _)| id.clone()).collect();
        ids.into_iter().filter_map(|id| self.by_id.remove(&id).map(|import| (id, import))).collect()
    }

    /// Forgets those that have expired. Returns how they ended, and when the next one expires.
    pub(super) fn expire(&mut self, now: Time) -> (Vec<(Id, Tombstone)>, Time) {
        let (mut ended, mut next) = (Vec::new(), Time::NEVER);
        if self.by_id.is_empty() || now < self.due {
            return (ended, if self.by_id.is_empty() { next } else { self.due });
        }
        self.by_id.retain(|id, import| {
            let Some(Carried { until, idle, .. }) = &import.carried else { return true };
            if *until > now {
                next = next.min(*until);
                return true;
            }
            ended.push((id.clone(), Tombstone { why: EndReason::Idle, at: *until, step: import.step, idle: *idle }));
            false
        });
        self.due = next;
        (ended, next)
    }
}
