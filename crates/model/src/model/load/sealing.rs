//! Makes the states of a batch durable, as a trait: what a batch hands over, and the changes of the store that follow.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{EndReason, Id};

use crate::error::StoreFault;
use crate::processing::SequenceScratch;
use crate::state::tier::{ClosedTask, EndedState, IdleTime, StateHead, Tier, TierChange, TierError, TierKey, find};
use crate::state::{SnapshotError, StateCopy, StateSpec, StateValues, with_answer, with_scratch};
use crate::tensor::NamedTensor;

/// Keys of a snapshot's header: the model and the version that made it, and the number of steps that it contains.
pub(in crate::model) const MODEL: &str = "sequor.model";
pub(in crate::model) const VERSION: &str = "sequor.version";
pub(in crate::model) const STEP: &str = "sequor.step";
/// Header key of a stored state whose sequence has not run a step. Its next step is its first run.
pub(in crate::model) const UNRUN: &str = "sequor.unrun";

/// A sequence's state as of one step.
#[derive(Debug)]
pub struct StateToSeal {
    pub id: Id,
    /// The incarnation of the sequence id. A later one has a larger number.
    pub incarnation: u64,
    /// Steps of the sequence that the state contains.
    pub step: u64,
    /// Whether this is the last step of the sequence.
    pub end: bool,
    /// Whether the START failed. The store then removes the state that the id had before it.
    pub forgets: bool,
    /// The present time, since 1970.
    pub at: Duration,
    /// Maximum idle time of the sequence; `None` is no limit.
    pub idle: Option<Duration>,
    /// The copied state. `None` if the step did not run: the state is then that of the step before, or `first`.
    pub copy: Option<StateCopy>,
    /// The first state of the sequence, if none of its steps has run.
    pub first: Option<StateValues>,
    /// The names of the processors, and their scratch.
    pub scratch: Option<(String, SequenceScratch)>,
    /// The answer of the step, if its client numbers steps.
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
    /// Whether Sequor may answer further steps before their states are durable.
    pub behind: bool,
    pub states: Vec<StateToSeal>,
}

/// A state of a batch that is not durable. If an answer waits for it, its sequence ends, or goes back to the state that the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnstoredState {
    /// Its place in the batch.
    pub place: usize,
    /// Why its sequence ends, if it does not go back.
    pub why: EndReason,
    pub fault: StoreFault,
    /// Whether the stored state that the new one was to be made from is damaged or gone. No step can go on from it.
    pub is_damaged: bool,
    /// The error of the store.
    pub error: String,
}

/// Reports that the states of a batch are durable, except for these.
pub type Sealed = Box<dyn FnOnce(Vec<UnstoredState>) + Send>;

/// Where the states of sequences become durable.
pub trait StateTier: Send + Sync + fmt::Debug {
    /// Queues these states, behind those of earlier calls. `sealed` is called once: not by this call, because the caller holds the lock of a
    /// model, so that its changes are queued in the order in which it makes them. Returns the task if the tier is closed.
    fn seal(&self, batch: BatchToSeal, sealed: Sealed) -> Option<ClosedTask>;

    /// Begins with the queued states, if it rests. Called without the lock.
    fn wake(&self);
}

/// The changes for a batch: one for each of its states, then the ends of sequences.
pub(super) fn changes(
    tier: &dyn Tier,
    before: &[TierChange],
    batch: BatchToSeal,
    running: Duration,
) -> Vec<Result<TierChange, TierError>> {
    let BatchToSeal { model, version, digest, specs, behind, states } = batch;
    let mut ends = Vec::new();
    let change = |state: StateToSeal| {
        let StateToSeal { id, incarnation, step, end, forgets, at, idle, copy, first, scratch, answer } = state;
        let key = TierKey { model: model.clone(), id };
        if end {
            let ended = EndedState { why: EndReason::End, step, idle, at };
            ends.push(Ok(TierChange::Remember { key: key.clone(), ended }));
        }
        if end || forgets {
            return Ok(TierChange::Remove { key, incarnation });
        }
        let broken =
            |e: SnapshotError| TierError::Io { path: format!("the state of sequence {}", key.id), what: e.to_string() };
        let header = header(&model, version, step);
        let file = match (copy, first) {
            (Some(copy), _) => copy.file(&specs, &header).map_err(broken)?,
            (None, Some(first)) => first_file(&first, &specs, header).map_err(broken)?,
            // The step did not run, so its state is the stored one.
            (None, None) => {
                let kept = find(tier, before, &key)?.filter(|(head, _)| tier.is_of(&key, head, incarnation));
                kept.map(|(_, file)| file).ok_or(TierError::Checksum { step })?
            }
        };
        let file = match &scratch {
            Some((names, scratch)) => with_scratch(&file, names, scratch.parts()).map_err(broken)?,
            None => file,
        };
        let file = match &answer {
            Some(answer) => with_answer(&file, answer).map_err(broken)?,
            None => file,
        };
        let time = IdleTime { idle, left: idle, running };
        let head = StateHead::new((version, digest), (incarnation, step), time, answer.is_some(), &file);
        let head = if behind { head.behind(&file, running) } else { head };
        Ok(TierChange::Put { key, head: Arc::new(head), file: Bytes::from(file) })
    };
    let mut changes: Vec<_> = states.into_iter().map(change).collect();
    changes.append(&mut ends);
    changes
}

/// The stored first state of a sequence that has not run a step yet.
pub(in crate::model) fn first_file(
    first: &StateValues,
    specs: &[StateSpec],
    mut header: BTreeMap<String, String>,
) -> Result<Vec<u8>, SnapshotError> {
    header.insert(UNRUN.to_owned(), "1".to_owned());
    first.file(specs, &header)
}

/// The header of a sequence's file.
pub(in crate::model) fn header(model: &str, version: u64, step: u64) -> BTreeMap<String, String> {
    let pairs = [(MODEL, model.to_owned()), (VERSION, version.to_string()), (STEP, step.to_string())];
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}
