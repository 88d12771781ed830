//! The data of a live sequence beside its entry in the core.

use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{EndReason, FEATURES, Id, Req, Seq};

use crate::model::load::{FirstValues, LoadDurability, LoadInitializer, LoadedModel};
use crate::model::sequences::ensembles::{MemberSequences, SequenceHolder};
use crate::model::sequences::jobs::{Job, SequencePermit};
use crate::model::sequences::offloaded::{ImportOrigin, KeptSequence, WrittenSequence};
use crate::processing::SequenceScratch;
use crate::state::budget::{Budget, Ticket};
use crate::state::tier::TierKey;
use crate::tensor::Tensor;

/// Whether a START finds a stored state of its id that is not listed as a sequence ([`EndReason::leaves_stored_state`]).
fn leaves_state(durable: &LoadDurability, job: &Job) -> bool {
    let is_new = job.source.resumed.is_none() && job.source.replaces.is_none();
    let key = || TierKey::new(&job.load.settings.name, &job.id);
    is_new && durable.store.head(&key()).is_some()
}

/// The data of all live sequences.
pub(super) type LiveSequences = BySequence<Live>;

/// Values of sequences, by the index of their keys. Another sequence takes an index once it is free, so each value has its whole key: a key
/// that is kept too long finds nothing.
#[derive(Debug)]
pub(super) struct BySequence<T>(Vec<Option<(Seq, T)>>);

impl<T> Default for BySequence<T> {
    fn default() -> BySequence<T> {
        BySequence(Vec::new())
    }
}

impl<T> BySequence<T> {
    pub(super) fn get(&self, seq: Seq) -> Option<&T> {
        let (of, value) = self.0.get(seq.ix as usize)?.as_ref()?;
        (*of == seq).then_some(value)
    }

    pub(super) fn get_mut(&mut self, seq: Seq) -> Option<&mut T> {
        let (of, value) = self.0.get_mut(seq.ix as usize)?.as_mut()?;
        (*of == seq).then_some(value)
    }

    pub(super) fn insert(&mut self, seq: Seq, value: T) {
        let ix = seq.ix as usize;
        if self.0.len() <= ix {
            self.0.resize_with(ix + 1, || None);
        }
        if let Some(place) = self.0.get_mut(ix) {
            *place = Some((seq, value));
        }
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<T> {
        self.0.get_mut(seq.ix as usize)?.take_if(|(of, _)| *of == seq).map(|(_, value)| value)
    }
}

/// The origin of the state of a sequence that continues here.
#[derive(Debug)]
pub(in crate::model::sequences) enum StateOrigin {
    Stored(Id, KeptSequence),
    Given(Id, ImportOrigin),
}

/// The answer of a sequence's last step, for a client that repeats the step. It may ask for other outputs then, so all are kept.
#[derive(Debug)]
pub(in crate::model::sequences) struct KeptAnswer {
    pub(in crate::model::sequences) outputs: Vec<Option<Tensor>>,
    /// Its bytes count against the limit of states: it stays as long as the state.
    counted: Option<Ticket>,
}

impl KeptAnswer {
    /// Keeps this answer. A run's outputs do not share memory with those of many other rows, so nothing is copied here.
    pub(super) fn new(outputs: &[Option<Tensor>], budget: Option<&Budget>) -> KeptAnswer {
        let bytes = outputs.iter().flatten().map(|tensor| tensor.data.len() as u64).sum();
        KeptAnswer { outputs: outputs.to_vec(), counted: budget.map(|budget| budget.count(bytes)) }
    }
}

/// A live sequence: its load, its state memory, its owner's permit, and its last answer if the client counts its steps.
#[derive(Debug)]
pub(in crate::model::sequences) struct Live {
    pub(in crate::model::sequences) load: Arc<LoadedModel>,
    pub(in crate::model::sequences) ticket: Option<Ticket>,
    pub(in crate::model::sequences) permit: Option<SequencePermit>,
    pub(in crate::model::sequences) kept: Option<KeptAnswer>,
    /// Its stored state, if its states are written while it is live.
    pub(in crate::model::sequences) written: Option<WrittenSequence>,
    /// The state that the request of this key brought for it. Kept until its first run.
    pub(in crate::model::sequences) first_state: Option<(Req, Bytes)>,
    /// The origin of that state. If no step of the sequence runs, the state returns there.
    pub(in crate::model::sequences) origin: Option<Box<StateOrigin>>,
    /// Whether none of its steps has run, although its state was stored.
    pub(in crate::model::sequences) unrun: bool,
    /// Whether its END is on its way to the store, which then removes the sequence.
    pub(in crate::model::sequences) is_forgotten: bool,
    /// The bytes that processors keep for it.
    pub(in crate::model::sequences) scratch: SequenceScratch,
    /// Its first states, until its first run.
    pub(in crate::model::sequences) first: Option<FirstValues>,
    /// Key features of the START of its incarnation, if an initializer may copy its state.
    pub(in crate::model::sequences) keys: [u64; FEATURES],
    /// Its members' sequences, if the load is an ensemble.
    pub(in crate::model::sequences) members: Option<Arc<MemberSequences>>,
    /// The sequence of an ensemble that it belongs to.
    pub(in crate::model::sequences) holder: Option<SequenceHolder>,
    /// Its id, if several servers share the store.
    pub(in crate::model::sequences) shared_id: Option<Id>,
    /// Whether another server owns it now.
    pub(in crate::model::sequences) is_fenced: bool,
    /// Only while it leaves as [`EndReason::RolledBack`]: the stored state from which it goes on.
    pub(in crate::model::sequences) rolls_back: Option<Box<KeptSequence>>,
}

impl Live {
    /// The sequence that this request starts. Takes over the resources that the request holds for it.
    pub(in crate::model::sequences) fn begin(req: Req, job: &mut Job) -> Live {
        let (load, ticket, permit) = (Arc::clone(&job.load), job.claims.ticket.take(), job.claims.permit.take());
        let first_state = job.source.snapshot.take().map(|snapshot| (req, snapshot));
        let given = job.source.imported.take().map(|origin| StateOrigin::Given(job.id.clone(), *origin));
        let stored = job.source.kept.take().map(|kept| StateOrigin::Stored(job.id.clone(), *kept));
        // A sequence of an ensemble ends with the server, so its states are not stored.
        let continual =
            load.durable.as_ref().filter(|durable| durable.is_continual() && job.in_ensemble.holder.is_none());
        let is_shared = |durable: &&LoadDurability| durable.store.shared().is_some();
        let shared_id = load.durable.as_ref().filter(is_shared).map(|_| job.id.clone());
        let written = continual.map(|durable| {
            let written = WrittenSequence::new(durable, job.id.clone(), job.source.resumed);
            WrittenSequence { is_stale: leaves_state(durable, job), ..written }
        });
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
            shared_id,
            is_fenced: false,
            rolls_back: None,
            load,
        }
    }

    /// Restarts the sequence in the memory that it has.
    pub(in crate::model::sequences) fn begin_anew(&mut self) {
        (self.kept, self.scratch) = (None, SequenceScratch::default());
        (self.first_state, self.origin) = (None, None);
        self.written.iter_mut().for_each(WrittenSequence::begin_anew);
    }

    /// Records a START on its live id. The sequence now belongs to the client that started it last.
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

    /// Records that it has ended. Takes its stored state, if the store must remove that.
    pub(super) fn take_obsolete(&mut self, why: EndReason) -> Option<WrittenSequence> {
        let stays =
            why.continues_from_store() || why.leaves_stored_state() || (self.is_forgotten && why == EndReason::End);
        self.written.take().filter(|_| !stays)
    }

    /// Whether the store has its state of this step.
    pub(in crate::model::sequences) fn is_written(&self, step: u64) -> bool {
        self.written.as_ref().is_some_and(|of| of.has_state && !of.is_stale && of.durable == step)
    }

    /// Counted bytes of its kept answer.
    pub(in crate::model::sequences) fn answer_bytes(&self) -> u64 {
        self.kept.as_ref().and_then(|kept| kept.counted.as_ref()).map_or(0, Ticket::bytes)
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A value is found, changed and removed by the key that it was inserted with, and by no other one of its index.
        #[test]
        fn a_value_is_touched_through_its_own_key_alone(steps in proptest::collection::vec((0u8..4, 0u32..4, 1u32..4), 0..200)) {
            let mut values = BySequence::default();
            let mut model: HashMap<u32, (Seq, usize)> = HashMap::new();
            for (n, (what, ix, generation)) in steps.into_iter().enumerate() {
                let seq = Seq::new(ix, NonZeroU32::new(generation).unwrap());
                let of = model.get(&ix).copied().filter(|(of, _)| *of == seq).map(|(_, value)| value);
                match what {
                    0 => {
                        values.insert(seq, n);
                        model.insert(ix, (seq, n));
                    }
                    1 => {
                        prop_assert_eq!(values.remove(seq), of);
                        model.retain(|_, (of, _)| *of != seq);
                    }
                    2 => {
                        if let Some(value) = values.get_mut(seq) {
                            *value = n;
                        }
                        if of.is_some() {
                            model.insert(ix, (seq, n));
                        }
                    }
                    _ => prop_assert_eq!(values.get(seq).copied(), of),
                }
            }
        }
    }
}
