//! Looks up the sequence that a request names: whether it lives, who started it, and where its state waits.

use std::sync::Arc;

use sequor_core::{Id, LoadId, Seq, Submit, Time};

use crate::model::load::LoadedModel;
use crate::model::sequences::jobs::{Job, SequenceOwner, named};
use crate::model::sequences::offloaded::KeptSequence;
use crate::tensor::NamedTensor;

use super::model_table::Table;

/// The lookups in a table for admitting requests and moving sequences.
pub(in crate::model::sequences) trait SequenceLookup {
    /// Whether a sequence of this id lives on this load, with memory of its own.
    fn holds(&self, id: &Id, version: Option<u64>, load: LoadId) -> bool;

    /// Whether a sequence of this id lives, and this client started it.
    fn is_owned(&self, id: &Id, version: Option<u64>, owner: &Arc<dyn SequenceOwner>) -> bool;

    /// Whether a START of this id would restart a sequence of another owner. That is a sequence of another ensemble, one of a client if an
    /// ensemble sends the START, or one of an ensemble if a client sends it.
    fn is_of_another(&self, job: &Job, submit: &Submit) -> bool;

    /// Whether a request goes to another load than the one that it was checked for.
    fn goes_elsewhere(&self, job: &Job, submit: &Submit) -> bool;

    /// Whether a given or stored state waits for the next step of this id.
    fn has_elsewhere(&self, id: &Id) -> bool;

    /// Whether this is the live sequence that requests of its id go to, and no state of the id waits elsewhere.
    fn is_sole(&self, seq: Seq, id: &Id) -> bool;

    /// Whether this sequence has not ended, no other one has its id on any version, and no state of the id waits elsewhere or is about to be removed.
    fn is_alone(&self, seq: Seq, id: &Id) -> bool;

    /// Whether the next step of this id begins a live sequence with a stored state.
    fn resumes(&self, id: &Id, version: Option<u64>) -> bool;

    /// Whether the next step of this id continues from a stored state on this load and on no other one. The load made that state. It may have
    /// been replaced already, if its time is not over.
    fn wakes_on(&self, now: Time, id: &Id, load: &LoadedModel) -> bool;

    /// The outputs of the last step of a sequence, if its client numbers steps.
    fn last_answer(&self, seq: Seq) -> Option<Vec<NamedTensor>>;
}

impl SequenceLookup for Table {
    fn holds(&self, id: &Id, version: Option<u64>, load: LoadId) -> bool {
        let seq = self.core.find(id, version);
        let live = seq.and_then(|seq| self.live(seq));
        live.is_some_and(|live| live.load.key == load && live.has_memory())
    }

    fn is_owned(&self, id: &Id, version: Option<u64>, owner: &Arc<dyn SequenceOwner>) -> bool {
        let seq = self.core.find(id, version);
        let live = seq.and_then(|seq| self.live(seq));
        live.and_then(|live| live.permit.as_ref()).is_some_and(|permit| permit.is_of(owner))
    }

    fn is_of_another(&self, job: &Job, submit: &Submit) -> bool {
        let find = || self.core.find(&submit.id, submit.version);
        let Some(seq) = (if submit.start { find() } else { None }) else { return false };
        // A sequence that waits for its stored state has no data here yet. Only those of clients are stored.
        let holder = self.live(seq).and_then(|live| live.holder.as_ref());
        match (holder, &job.in_ensemble.holder) {
            (None, None) => false,
            (Some(one), Some(other)) => !one.is(other),
            _ => true,
        }
    }

    fn goes_elsewhere(&self, job: &Job, submit: &Submit) -> bool {
        let load = self.core.route(&submit.id, submit.version, submit.start);
        load.is_some_and(|load| load != job.load.key)
    }

    fn has_elsewhere(&self, id: &Id) -> bool {
        self.has_import(id) || self.kept.contains_key(id)
    }

    fn is_sole(&self, seq: Seq, id: &Id) -> bool {
        self.core.find(id, None) == Some(seq) && !self.has_elsewhere(id)
    }

    fn is_alone(&self, seq: Seq, id: &Id) -> bool {
        let is_only = self.core.is_only(seq) && !self.core.is_leaving(id);
        is_only && !self.has_elsewhere(id) && !self.pending_ends.has(id)
    }

    fn resumes(&self, id: &Id, version: Option<u64>) -> bool {
        !self.kept.is_empty() && self.kept.contains_key(id) && self.core.find(id, version).is_none()
    }

    fn wakes_on(&self, now: Time, id: &Id, load: &LoadedModel) -> bool {
        let Some(maker) = self.kept.get(id).map(KeptSequence::version_digest) else { return false };
        let made_it = load.durable.as_ref().is_some_and(|of| of.version_digest(load.version) == maker);
        let stays_there = made_it && self.successors(maker).iter().all(|next| *next == maker);
        stays_there && self.core.find(id, None).is_none() && self.core.takes_back(now, load.key)
    }

    fn last_answer(&self, seq: Seq) -> Option<Vec<NamedTensor>> {
        let live = self.live(seq)?;
        Some(named(&live.load, &live.kept.as_ref()?.outputs))
    }
}
