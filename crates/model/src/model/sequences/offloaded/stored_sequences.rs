//! Sequences that are in the server's store and not in memory, and the store's work for a request before its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{Id, LoadId, Req, RequestMeta, Seq, Time};

use crate::error::Failure;
use crate::model::load::{LoadedModel, SequenceStore, UNRUN};
use crate::processing::SequenceScratch;
use crate::state::tier::{
    AfterTake, ClosedTask, EndedState, FoundHead, StateHead, TakenState, TierError, TierKey, VersionDigest,
};
use crate::state::{answer_of, check_snapshot, scratch_of};
use crate::sync::AtomicBool;
use crate::tensor::Tensor;

/// Minimum time between two looks at all stored sequences, multiplied by their number. So looks alone cannot keep the table locked.
pub(in crate::model::sequences) const LOOK: Duration = Duration::from_micros(10);

/// A sequence whose next step continues from a stored state.
#[derive(Debug, Clone)]
pub(in crate::model::sequences) struct KeptSequence {
    pub(in crate::model::sequences) head: Arc<StateHead>,
    /// Its incarnation here. A sequence that another server had gets a new one.
    pub(in crate::model::sequences) incarnation: u64,
    /// When it expires. Idle time passes only while a server runs.
    pub(in crate::model::sequences) until: Time,
    /// Its file, until the store has written it.
    pub(in crate::model::sequences) unwritten: Option<Arc<UnwrittenFile>>,
    /// What a failed write leaves open. Known on this server alone: another one reads what the store has.
    pub(in crate::model::sequences) doubt: Option<WriteDoubt>,
}

/// What a failed write leaves open of a stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model::sequences) enum WriteDoubt {
    /// The store has the last durable state or that of the failed write. No step continues until it is known which.
    Unread(FailedWrite),
    /// The store has the state of the failed write, although its step was refused. A client that numbers its steps repeats that step and gets
    /// its answer. Another client would count the step twice.
    Ahead,
}

/// A write of a sequence's state that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model::sequences) struct FailedWrite {
    /// The step that was refused.
    pub(in crate::model::sequences) step: u64,
    /// The last durable step before it.
    pub(in crate::model::sequences) durable: u64,
    /// Whether the step was an END, for which the store was to remove the state.
    pub(in crate::model::sequences) end: bool,
    /// Whether the store is being asked what it has.
    pub(in crate::model::sequences) is_asked: bool,
}

impl FailedWrite {
    /// The doubt that is left if the store has this state. `None` if the sequence cannot go on from it.
    pub(in crate::model::sequences) fn doubt_about(&self, head: &StateHead) -> Option<Option<WriteDoubt>> {
        // A state that is behind is continued only by clients that number their steps.
        let is_known = head.step == self.durable || (head.behind && (self.durable..=self.step).contains(&head.step));
        let is_ahead = head.step == self.step;
        (is_known || is_ahead).then(|| (!is_known).then_some(WriteDoubt::Ahead))
    }
}

/// The store's work for a sequence whose last write failed: it says which state it has.
#[derive(Debug, Clone)]
pub(in crate::model::sequences) struct LookTask {
    pub(in crate::model::sequences) key: TierKey,
    /// The incarnation of the sequence here.
    pub(in crate::model::sequences) incarnation: u64,
    pub(in crate::model::sequences) load: LoadId,
}

/// The file of a sequence that has left memory. Its bytes are counted until the store has it, or nothing needs it.
#[derive(Debug)]
pub(in crate::model::sequences) struct UnwrittenFile {
    pub(in crate::model::sequences) file: Bytes,
    counter: Arc<AtomicU64>,
}

/// The store's work for a step before its turn: it reads the state that the step continues from.
#[derive(Debug, Clone)]
pub(in crate::model) struct StoreWork {
    pub(in crate::model::sequences) kept: KeptSequence,
    /// The properties of the request as it was accepted.
    pub(in crate::model::sequences) meta: RequestMeta,
}

/// The same work on its way to the store.
#[derive(Debug)]
pub(in crate::model::sequences) struct StoreTask {
    pub(in crate::model::sequences) req: Req,
    pub(in crate::model::sequences) seq: Option<Seq>,
    pub(in crate::model::sequences) load: Arc<LoadedModel>,
    pub(in crate::model::sequences) key: TierKey,
    pub(in crate::model::sequences) work: Box<StoreWork>,
    /// What the store does with the state after reading it. After a crash no request may continue from a state that was continued already.
    pub(in crate::model::sequences) then: AfterTake,
}

/// A stored state that fits its load, and the answer of its last step by the outputs that clients see.
#[derive(Debug)]
pub(in crate::model::sequences) struct ResumedState {
    pub(in crate::model::sequences) snapshot: Bytes,
    pub(in crate::model::sequences) answer: Vec<Option<Tensor>>,
    /// The scratch of the load's processors, if it has any.
    pub(in crate::model::sequences) scratch: Option<SequenceScratch>,
    /// Whether no step has run with it yet.
    pub(in crate::model::sequences) unrun: bool,
}

/// An ended sequence that the store must forget.
#[derive(Debug)]
pub(in crate::model::sequences) struct Forgotten {
    pub(in crate::model::sequences) id: Id,
    pub(in crate::model::sequences) incarnation: u64,
    pub(in crate::model::sequences) ended: Option<EndedState>,
}

/// The store of this server, as one model uses it.
#[derive(Debug)]
pub(in crate::model::sequences) struct KeptStore {
    store: Option<Arc<SequenceStore>>,
    /// Whether the store may have sequences of this model.
    has_kept: AtomicBool,
}

impl KeptStore {
    pub(in crate::model::sequences) fn new(store: Option<Arc<SequenceStore>>) -> KeptStore {
        KeptStore { store, has_kept: AtomicBool::new(false) }
    }

    pub(in crate::model::sequences) fn has_kept(&self) -> bool {
        self.has_kept.load(Ordering::Acquire)
    }

    pub(in crate::model::sequences) fn set_kept(&self, has_kept: bool) {
        self.has_kept.store(has_kept, Ordering::Release);
    }

    pub(in crate::model::sequences) fn get(&self) -> Option<&Arc<SequenceStore>> {
        self.store.as_ref()
    }

    /// Queues the reading of a request's state, under the lock of the table. `done` runs on the store's thread. Returns the task if the store
    /// is closed.
    pub(in crate::model::sequences) fn queue_take(
        &self,
        task: StoreTask,
        done: impl FnOnce(StoreTask, Result<ResumedState, Failure>) + Send + 'static,
    ) -> Option<ClosedTask> {
        self.store.as_ref()?.queue_take(task.key.clone(), task.then, move |taken| {
            let outcome = checked(&task, taken);
            done(task, outcome);
        })
    }

    /// Queues a look at the state that the store has of a sequence, under the lock of the table. `done` runs on the store's thread. Returns the
    /// task if the store is closed.
    pub(in crate::model::sequences) fn queue_look(
        &self,
        task: &LookTask,
        done: impl FnOnce(FoundHead) + Send + 'static,
    ) -> Option<ClosedTask> {
        self.store.as_ref()?.queue_look(task.key.clone(), task.incarnation, done)
    }

    /// Queues the removal of a sequence that has ended, under the lock of the table. `done` runs on the store's thread, with the error if that
    /// failed. Returns the task if the store is closed.
    pub(in crate::model::sequences) fn queue_forget(
        &self,
        model: &str,
        Forgotten { id, incarnation, ended }: Forgotten,
        done: impl FnOnce(Option<String>) + Send + 'static,
    ) -> Option<ClosedTask> {
        self.store.as_ref()?.queue_forget(TierKey::new(model, &id), incarnation, ended, done)
    }
}

impl KeptSequence {
    /// The version, with its digest, that made the state.
    pub(in crate::model::sequences) fn version_digest(&self) -> VersionDigest {
        VersionDigest { version: self.head.version, digest: self.head.digest }
    }

    /// Why this load cannot continue from the state with such a step. `None` if it can. `successors` may do so besides the version that made it.
    pub(in crate::model::sequences) fn misfit(
        &self,
        load: &LoadedModel,
        counted: bool,
        successors: [VersionDigest; 2],
    ) -> Option<String> {
        let (step, own) = (self.head.step, self.version_digest());
        if self.head.behind && !counted {
            return Some(format!(
                "it is as of step {step}, and later steps may have been answered; a step with its number (sequence_step) goes on from there"
            ));
        }
        if self.doubt == Some(WriteDoubt::Ahead) && !counted {
            return Some(format!(
                "step {step} is stored, although it was refused because the store did not confirm it; a step with its number (sequence_step) goes on from there"
            ));
        }
        let mut takers = successors.into_iter().chain([own]);
        let is_of_version = takers.clone().any(|taker| taker.version == load.version);
        let VersionDigest { version, .. } = own;
        match &load.durable {
            _ if !is_of_version => Some(format!("version {version} made it, which takes no sequences here")),
            None => Some("the model's durability is \"never\" now".to_owned()),
            Some(durable) if !takers.any(|taker| taker == durable.version_digest(load.version)) => {
                Some(format!("the files of version {version} or its processors have changed since"))
            }
            Some(_) => None,
        }
    }
}

impl UnwrittenFile {
    pub(in crate::model::sequences) fn new(file: Bytes, counter: &Arc<AtomicU64>) -> UnwrittenFile {
        counter.fetch_add(file.len() as u64, Ordering::AcqRel);
        UnwrittenFile { file, counter: Arc::clone(counter) }
    }
}

impl Drop for UnwrittenFile {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.file.len() as u64, Ordering::AcqRel);
    }
}

/// The failure that a client gets if the store failed.
fn store_failure(model: &str, id: &Id, error: &TierError) -> Failure {
    let (model, id, why) = (model.to_owned(), id.clone(), error.to_string());
    match error {
        TierError::Checksum { .. } => Failure::NotResumed { model, id, why },
        _ => Failure::Store { model, id, why },
    }
}

/// Checks the store's result for a request against its load. If the store still has a state that another request could continue from after a
/// crash, the request fails. That holds even if its file is in memory.
fn checked(task: &StoreTask, TakenState { found, changed }: TakenState) -> Result<ResumedState, Failure> {
    let (model, id) = (&task.key.model, &task.key.id);
    let failed = |error: TierError| store_failure(model, id, &error);
    changed.map_err(failed)?;
    let KeptSequence { head: wanted, unwritten, .. } = &task.work.kept;
    let found = match (found, unwritten) {
        (Ok(Some((head, file))), _) if head == *wanted => Some((head, Bytes::from(file))),
        // A file that the store could not take is still in memory.
        (_, Some(unwritten)) => Some((Arc::clone(wanted), Bytes::clone(&unwritten.file))),
        (found, None) => found.map_err(failed)?.map(|(head, file)| (head, Bytes::from(file))),
    };
    let refused = |why: String| Failure::NotResumed { model: model.clone(), id: id.clone(), why };
    match found {
        Some((head, file)) if head == *wanted => {
            let header = check_snapshot(&task.load.states, &file).map_err(|error| refused(error.to_string()))?;
            let unrun = header.contains_key(UNRUN);
            let mut named = answer_of(&file).map_err(|error| refused(error.to_string()))?;
            let mut tensor = |name: &str| {
                let at = named.iter().position(|output| output.name == name)?;
                Some(named.swap_remove(at).tensor)
            };
            let answer = task.load.client.outputs.iter().map(|output| tensor(&output.name)).collect();
            let (kept_by, scratch) = scratch_of(&file).map_err(|error| refused(error.to_string()))?;
            let processors = task.load.scratch_owners().unwrap_or_default();
            if kept_by != processors {
                return Err(refused(format!("its processors were [{kept_by}], and are [{processors}] now")));
            }
            let scratch = task.load.processors.as_ref().map(|_| SequenceScratch::new(scratch));
            Ok(ResumedState { snapshot: file, answer, scratch, unrun })
        }
        _ => Err(refused("the store does not have it any more".to_owned())),
    }
}
