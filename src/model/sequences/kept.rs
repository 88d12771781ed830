//! Sequences that do not live here and whose states the server's store keeps, and what the store does for a request before its turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sequor_core::{Id, Req, RequestMeta, Seq, Time};

use crate::error::Failure;
use crate::model::load::{LoadedModel, SequenceStore};
use crate::state::tier::{FoundState, StateHead, TierError, TierKey};
use crate::state::{answer_of, check_snapshot};
use crate::sync::AtomicBool;
use crate::tensor::Tensor;

/// A sequence whose next step goes on from a kept state.
#[derive(Debug, Clone)]
pub(super) struct KeptSequence {
    pub(super) head: StateHead,
    /// When it expires. Idle time passes only while a server runs.
    pub(super) until: Time,
}

/// What the store does for a request before its turn.
#[derive(Debug, Clone)]
pub(in crate::model) struct StoreWork {
    pub(super) kept: KeptSequence,
    /// Whether the request goes on from the kept state. If not, it is a START, and the kept state is to be forgotten.
    pub(super) resumes: bool,
    /// As the request was accepted.
    pub(super) meta: RequestMeta,
}

/// The same on its way to the store.
#[derive(Debug)]
pub(super) struct StoreTask {
    pub(super) req: Req,
    pub(super) seq: Option<Seq>,
    pub(super) load: Arc<LoadedModel>,
    pub(super) key: TierKey,
    pub(super) work: StoreWork,
    /// Whether the store forgets the state. After a crash nothing may go on from a state that was gone on from already.
    pub(super) forgets: bool,
}

/// A kept state that fits, and the answer of its last step by the outputs that clients see.
#[derive(Debug)]
pub(super) struct ResumedState {
    pub(super) snapshot: Bytes,
    pub(super) answer: Vec<Option<Tensor>>,
}

/// A sequence that has ended and is to be forgotten by the store.
#[derive(Debug)]
pub(super) struct Forgotten {
    pub(super) load: Arc<LoadedModel>,
    pub(super) id: Id,
    pub(super) incarnation: u64,
}

/// The store of this server, as one model uses it.
#[derive(Debug)]
pub(super) struct KeptStore {
    store: Option<Arc<SequenceStore>>,
    /// Whether the store had sequences of this model.
    has_kept: AtomicBool,
}

impl KeptStore {
    pub(super) fn new(store: Option<Arc<SequenceStore>>) -> KeptStore {
        KeptStore { store, has_kept: AtomicBool::new(false) }
    }

    pub(super) fn has_kept(&self) -> bool {
        self.has_kept.load(Ordering::Acquire)
    }

    pub(super) fn set_kept(&self, has_kept: bool) {
        self.has_kept.store(has_kept, Ordering::Release);
    }

    pub(super) fn get(&self) -> Option<&Arc<SequenceStore>> {
        self.store.as_ref()
    }

    /// Does the store's part for a request. `done` runs on the store's thread.
    pub(super) fn take(
        &self,
        task: StoreTask,
        done: impl FnOnce(StoreTask, Result<Option<ResumedState>, Failure>) + Send + 'static,
    ) {
        let Some(store) = &self.store else { return };
        store.take(task.key.clone(), task.forgets, move |found| {
            let outcome = checked(&task, found);
            done(task, outcome);
        });
    }

    /// Forgets a sequence that has ended, soon.
    pub(super) fn forget(&self, Forgotten { load, id, incarnation }: &Forgotten) {
        if let Some(store) = &self.store {
            store.forget(TierKey::new(&load.settings.name, id), *incarnation);
        }
    }
}

impl KeptSequence {
    /// Why this load does not go on from the state, if it does not.
    pub(super) fn misfit(&self, load: &LoadedModel) -> Option<String> {
        let version = self.head.version;
        if load.version != version {
            return Some(format!("version {version} made it, which takes no sequences here"));
        }
        match &load.durable {
            None => Some("the model's durability is \"never\" now".to_owned()),
            Some(durable) if durable.digest != self.head.digest => {
                Some(format!("the files of version {version} have changed since"))
            }
            Some(_) => None,
        }
    }
}

/// What a client reads if the store failed.
fn store_failure(model: &str, id: &Id, resumes: bool, error: &TierError) -> Failure {
    let (model, id, why) = (model.to_owned(), id.clone(), error.to_string());
    match error {
        TierError::Checksum { .. } if resumes => Failure::NotResumed { model, id, why },
        _ => Failure::Store { model, id, why },
    }
}

/// What the store has found for a request, checked against its load.
fn checked(task: &StoreTask, found: FoundState) -> Result<Option<ResumedState>, Failure> {
    let (model, id) = (&task.key.model, &task.key.id);
    let found = found.map_err(|error| store_failure(model, id, task.work.resumes, &error))?;
    if !task.work.resumes {
        return Ok(None);
    }
    let refused = |why: String| Failure::NotResumed { model: model.clone(), id: id.clone(), why };
    match found {
        Some((head, file)) if head == task.work.kept.head => {
            check_snapshot(&task.load.states, &file).map_err(|error| refused(error.to_string()))?;
            let mut named = answer_of(&file).map_err(|error| refused(error.to_string()))?;
            let mut tensor = |name: &str| {
                let at = named.iter().position(|output| output.name == name)?;
                Some(named.swap_remove(at).tensor)
            };
            let answer = task.load.client.outputs.iter().map(|output| tensor(&output.name)).collect();
            Ok(Some(ResumedState { snapshot: Bytes::from(file), answer }))
        }
        _ => Err(refused("the store does not have it any more".to_owned())),
    }
}
