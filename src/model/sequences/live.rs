//! What a live sequence holds beside its place in the core.

use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{FEATURES, Id, Req, Seq};

use crate::config::model::settings::DurabilityWhen;
use crate::model::load::{FirstValues, LoadInitializer, LoadedModel};
use crate::processing::SequenceScratch;
use crate::state::budget::Ticket;
use crate::tensor::Tensor;

use super::job::Job;
use super::owner::SequencePermit;

/// What all live sequences hold, by the index of their key.
#[derive(Debug, Default)]
pub(super) struct LiveSequences(Vec<Option<Live>>);

impl LiveSequences {
    pub(super) fn get(&self, seq: Seq) -> Option<&Live> {
        self.0.get(seq.ix as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut Live> {
        self.0.get_mut(seq.ix as usize)?.as_mut()
    }

    pub(super) fn insert(&mut self, seq: Seq, live: Live) {
        let ix = seq.ix as usize;
        if self.0.len() <= ix {
            self.0.resize_with(ix + 1, || None);
        }
        if let Some(place) = self.0.get_mut(ix) {
            *place = Some(live);
        }
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<Live> {
        self.0.get_mut(seq.ix as usize)?.take()
    }
}

/// A live sequence: its load, its state memory, its owner's permit, and its last answer where the client counts its steps.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) load: Arc<LoadedModel>,
    ticket: Option<Ticket>,
    pub(super) permit: Option<SequencePermit>,
    pub(super) kept: Option<Vec<Option<Tensor>>>,
    /// Its id, and which sequence of that it is, where its states are written after each step.
    pub(super) sealed: Option<(Id, u64)>,
    /// The state that the request of this key brought for it, until its first run.
    pub(super) first_state: Option<(Req, Bytes)>,
    /// Its END is on its way to the store, which forgets it with that.
    pub(super) is_forgotten: bool,
    /// The bytes that processors keep for it.
    pub(super) scratch: SequenceScratch,
    /// What it begins with, until its first run.
    pub(super) first: Option<FirstValues>,
    /// Key features of the START of its life, where an initializer may ask for a copy of its state.
    pub(super) keys: [u64; FEATURES],
}

impl Live {
    /// The sequence that this request starts. It takes what the request holds for it.
    pub(super) fn begin(req: Req, job: &mut Job) -> Live {
        let (load, ticket, permit) = (Arc::clone(&job.load), job.ticket.take(), job.permit.take());
        let first_state = job.snapshot.take().map(|snapshot| (req, snapshot));
        let seals = load.durable.as_ref().filter(|durable| durable.when == DurabilityWhen::Step);
        let incarnation = seals.map(|d| job.incarnation.unwrap_or_else(|| d.store.next_incarnation()));
        let sealed = incarnation.map(|incarnation| (job.id.clone(), incarnation));
        Live {
            ticket,
            permit,
            kept: None,
            sealed,
            first_state,
            is_forgotten: false,
            scratch: SequenceScratch::default(),
            first: None,
            keys: job.start_keys(),
            load,
        }
    }

    /// Whether it has state memory of its own.
    pub(super) fn has_memory(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether a START of this load with these key features may begin with a copy of its state.
    pub(super) fn may_be_copied(&self, of: &LoadInitializer, load: &Arc<LoadedModel>, keys: &[u64]) -> bool {
        Arc::ptr_eq(&self.load, load) && of.may_copy(&self.keys, keys)
    }
}
