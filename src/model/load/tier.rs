//! Makes states durable, so that sequences outlive the process. With `[durability] when = "step"`, an answer leaves only after its state is durable.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sequor_core::{EndReason, Id, Refusal};

use crate::config::model::settings::DurabilityWhen;
use crate::state::tier::{FoundState, GroupWriter, StateHead, Tier, TierChange, TierError, TierKey, TierUsage};
use crate::state::{SnapshotError, StateCopy, StateSpec, with_answer};
use crate::tensor::NamedTensor;

/// Keys of a snapshot's header: which model and version it is of, and the steps that it contains.
pub(in crate::model) const MODEL: &str = "sequor.model";
pub(in crate::model) const VERSION: &str = "sequor.version";
pub(in crate::model) const STEP: &str = "sequor.step";

/// A sequence's state as of one step.
#[derive(Debug)]
pub struct StateToSeal {
    pub id: Id,
    /// Which sequence of this id it is: a later one has a larger number.
    pub incarnation: u64,
    /// Steps of the sequence that the state contains.
    pub step: u64,
    /// The last step of the sequence.
    pub end: bool,
    /// How long the sequence may be idle; `None` is for ever.
    pub idle: Option<Duration>,
    /// The state. `None`: the step ran nothing, and the state is that of the step before.
    pub copy: Option<StateCopy>,
    /// What the step is answered with, if its client counts steps.
    pub answer: Option<Vec<NamedTensor>>,
}

/// The states of one batch, to be made durable together.
#[derive(Debug)]
pub struct BatchToSeal {
    pub model: String,
    pub version: u64,
    /// SHA-256 of the version's files.
    pub digest: [u8; 32],
    pub specs: Vec<StateSpec>,
    pub states: Vec<StateToSeal>,
}

/// Reports that a batch is durable, or why it is not. If it is not, its sequences end.
pub type Sealed = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

pub trait StateTier: Send + Sync + fmt::Debug {
    /// Makes these states durable, and calls `sealed` once. Called by threads that run models, without a lock: it returns soon.
    fn seal(&self, batch: BatchToSeal, sealed: Sealed);
}

/// How the sequences of a load outlive the process.
#[derive(Debug, Clone)]
pub(in crate::model) struct LoadDurability {
    pub(in crate::model) when: DurabilityWhen,
    pub(in crate::model) store: Arc<SequenceStore>,
    /// SHA-256 of the version's files.
    pub(in crate::model) digest: [u8; 32],
}

/// The tier of this server, and the thread that writes to it for all models.
#[derive(Debug)]
pub struct SequenceStore {
    writer: GroupWriter,
    /// The number of the next sequence. Numbers of a server that was started later are larger.
    incarnations: AtomicU64,
}

impl SequenceStore {
    /// `first` is larger than any number that a server gave before with this tier.
    pub fn new(tier: Arc<dyn Tier>, first: u64) -> std::io::Result<SequenceStore> {
        Ok(SequenceStore { writer: GroupWriter::start(tier)?, incarnations: AtomicU64::new(first) })
    }

    pub(in crate::model) fn next_incarnation(&self) -> u64 {
        self.incarnations.fetch_add(1, Ordering::Relaxed)
    }

    /// The sequences of a model that are kept.
    pub(in crate::model) fn list(&self, model: &str) -> Vec<(Id, StateHead)> {
        self.writer.tier().list(model)
    }

    pub fn usage(&self) -> TierUsage {
        self.writer.tier().usage()
    }

    /// Reads a kept state, and forgets it where it says so. `done` runs on the store's thread.
    pub(in crate::model) fn take(&self, key: TierKey, forget: bool, done: impl FnOnce(FoundState) + Send + 'static) {
        self.writer.take(key, forget, done);
    }

    /// Writes these changes. `done` runs on the store's thread.
    pub(in crate::model) fn write(
        &self,
        changes: Vec<TierChange>,
        done: impl FnOnce(Result<(), TierError>) + Send + 'static,
    ) {
        self.writer.write(move || Ok(changes), done);
    }

    /// Forgets a sequence that has ended, soon.
    pub(in crate::model) fn forget(&self, key: TierKey, incarnation: u64) {
        let model = key.model.clone();
        self.write(vec![TierChange::Remove { key, incarnation }], move |forgotten| {
            if let Err(error) = forgotten {
                tracing::error!(model, %error, "the kept state of an ended sequence is not removed; a restart may resume it");
            }
        });
    }

    /// Writes what waits and closes the tier.
    pub(in crate::model) fn close(&self) {
        self.writer.close();
    }
}

impl StateTier for SequenceStore {
    fn seal(&self, batch: BatchToSeal, sealed: Sealed) {
        let (model, tier) = (batch.model.clone(), Arc::clone(self.writer.tier()));
        let done = move |written: Result<(), TierError>| {
            sealed(written.map_err(|error| {
                tracing::error!(model, %error, "the states of a batch could not be stored; its sequences are dropped");
                Refusal::Ended(EndReason::Unsealed)
            }));
        };
        self.writer.write(move || changes(&*tier, batch), done);
    }
}

fn changes(tier: &dyn Tier, batch: BatchToSeal) -> Result<Vec<TierChange>, TierError> {
    let BatchToSeal { model, version, digest, specs, states } = batch;
    let change = |state: StateToSeal| {
        let StateToSeal { id, incarnation, step, end, idle, copy, answer } = state;
        let key = TierKey { model: model.clone(), id };
        if end {
            return Ok(TierChange::Remove { key, incarnation });
        }
        let broken =
            |e: SnapshotError| TierError::Io { path: format!("the state of sequence {}", key.id), what: e.to_string() };
        let file = match copy {
            Some(copy) => copy.file(&specs, &header(&model, version, step)).map_err(broken)?,
            // It ran nothing: the state is the one that is kept.
            None => tier.get(&key)?.map(|(_, file)| file).ok_or(TierError::Checksum { step })?,
        };
        let file = match &answer {
            Some(answer) => with_answer(&file, answer).map_err(broken)?,
            None => file,
        };
        let head = StateHead::new((version, digest), (incarnation, step), (idle, idle), answer.is_some(), &file);
        Ok(TierChange::Put { key, head, file })
    };
    states.into_iter().map(change).collect()
}

/// The header of a sequence's file.
pub(in crate::model) fn header(model: &str, version: u64, step: u64) -> BTreeMap<String, String> {
    let pairs = [(MODEL, model.to_owned()), (VERSION, version.to_string()), (STEP, step.to_string())];
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}
