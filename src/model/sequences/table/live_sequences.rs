//! What a live sequence holds beside its place in the core.

use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{EndReason, FEATURES, Id, Req, Seq};

use crate::model::load::{FirstValues, LoadInitializer, LoadedModel};
use crate::model::sequences::ensembles::{MemberSequences, SequenceHolder};
use crate::model::sequences::jobs::{Job, SequencePermit};
use crate::model::sequences::offloaded::{ImportOrigin, KeptSequence, WrittenSequence};
use crate::processing::SequenceScratch;
use crate::state::budget::Ticket;
use crate::tensor::Tensor;

/// What all live sequences hold, by the index of their key.
#[derive(Debug, Default)]
pub(super) struct LiveSequences(Vec<Option<Live>>);

impl LiveSequences {
    pub(in crate::model::sequences) fn get(&self, seq: Seq) -> Option<&Live> {
        self.0.get(seq.ix as usize)?.as_ref()
    }

    pub(in crate::model::sequences) fn get_mut(&mut self, seq: Seq) -> Option<&mut Live> {
        self.0.get_mut(seq.ix as usize)?.as_mut()
    }

    pub(in crate::model::sequences) fn insert(&mut self, seq: Seq, live: Live) {
        let ix = seq.ix as usize;
        if self.0.len() <= ix {
            self.0.resize_with(ix + 1, || None);
        }
        if let Some(place) = self.0.get_mut(ix) {
            *place = Some(live);
        }
    }

    pub(in crate::model::sequences) fn remove(&mut self, seq: Seq) -> Option<Live> {
        self.0.get_mut(seq.ix as usize)?.take()
    }
}

/// Where the state of a sequence was found that goes on here.
#[derive(Debug)]
pub(in crate::model::sequences) enum StateOrigin {
    Stored(Id, KeptSequence),
    Given(Id, ImportOrigin),
}

/// A live sequence: its load, its state memory, its owner's permit, and its last answer where the client counts its steps.
#[derive(Debug)]
pub(in crate::model::sequences) struct Live {
    pub(in crate::model::sequences) load: Arc<LoadedModel>,
    pub(in crate::model::sequences) ticket: Option<Ticket>,
    pub(in crate::model::sequences) permit: Option<SequencePermit>,
    pub(in crate::model::sequences) kept: Option<Vec<Option<Tensor>>>,
    /// What the store has of it, where its states are written while it lives.
    pub(in crate::model::sequences) written: Option<WrittenSequence>,
    /// The state that the request of this key brought for it, until its first run.
    pub(in crate::model::sequences) first_state: Option<(Req, Bytes)>,
    /// Where that state was found. It goes back there if nothing of the sequence runs.
    pub(in crate::model::sequences) origin: Option<Box<StateOrigin>>,
    /// None of its steps has run, though its state was kept.
    pub(in crate::model::sequences) unrun: bool,
    /// Its END is on its way to the store, which forgets it with that.
    pub(in crate::model::sequences) is_forgotten: bool,
    /// The bytes that processors keep for it.
    pub(in crate::model::sequences) scratch: SequenceScratch,
    /// What it begins with, until its first run.
    pub(in crate::model::sequences) first: Option<FirstValues>,
    /// Key features of the START of its life, where an initializer may ask for a copy of its state.
    pub(in crate::model::sequences) keys: [u64; FEATURES],
    /// What it holds in the members, where the load is an ensemble.
    pub(in crate::model::sequences) members: Option<Arc<MemberSequences>>,
    /// The sequence of an ensemble that it belongs to.
    pub(in crate::model::sequences) holder: Option<SequenceHolder>,
}

impl Live {
    /// The sequence that this request starts. It takes what the request holds for it.
    pub(in crate::model::sequences) fn begin(req: Req, job: &mut Job) -> Live {
        let (load, ticket, permit) = (Arc::clone(&job.load), job.claims.ticket.take(), job.claims.permit.take());
        let first_state = job.source.snapshot.take().map(|snapshot| (req, snapshot));
        let given = job.source.imported.take().map(|origin| StateOrigin::Given(job.id.clone(), *origin));
        let stored = job.source.kept.take().map(|kept| StateOrigin::Stored(job.id.clone(), *kept));
        // A sequence of an ensemble ends with the server, so nothing of it is written.
        let continual =
            load.durable.as_ref().filter(|durable| durable.is_continual() && job.in_ensemble.holder.is_none());
        let written = continual.map(|durable| WrittenSequence::new(durable, job.id.clone(), job.source.resumed));
        Live {
            ticket,
            permit,
            kept: None,
            written,
            first_state,
            origin: stored.or(given).map(Box::new),
            unrun: std::mem::take(&mut job.source.unrun),
            is_forgotten: false,
            scratch: job.source.kept_scratch.take().unwrap_or_default(),
            first: None,
            keys: job.start_keys(),
            members: load.ensemble.as_ref().map(|_| Arc::new(MemberSequences::new(job.id.clone()))),
            holder: job.in_ensemble.holder.take(),
            load,
        }
    }

    /// It begins anew, in the memory that it has.
    pub(in crate::model::sequences) fn begin_anew(&mut self) {
        (self.kept, self.scratch) = (None, SequenceScratch::default());
        (self.first_state, self.origin) = (None, None);
        self.written.iter_mut().for_each(WrittenSequence::begin_anew);
    }

    /// A START came on its id. It belongs to the client that started it last.
    pub(super) fn started_again(
        &mut self,
        keys: [u64; FEATURES],
        permit: Option<SequencePermit>,
        holder: Option<SequenceHolder>,
    ) {
        (self.keys, self.holder) = (keys, holder);
        if permit.is_some() {
            self.permit = permit;
        }
    }

    /// It has ended. Takes what the store has of it and must forget.
    pub(super) fn take_obsolete(&mut self, why: EndReason) -> Option<WrittenSequence> {
        let stays = why == EndReason::Spilled || (self.is_forgotten && why == EndReason::End);
        self.written.take().filter(|_| !stays)
    }

    /// Whether the store has its state of this step.
    pub(in crate::model::sequences) fn is_written(&self, step: u64) -> bool {
        self.written.as_ref().is_some_and(|of| of.has_state && !of.is_stale && of.durable == step)
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
