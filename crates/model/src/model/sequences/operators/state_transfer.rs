//! Exports and imports a sequence's state as a file.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sequor_core::{Id, Seq, Stage};

use crate::executor::ModelStep;
use crate::model::load::{LoadedModel, MODEL, STEP, SnapshotRequest, UNRUN, header};
use crate::model::sequences::offloaded::KeptSequence;
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::Import;
use crate::processing::SequenceScratch;
use crate::state::budget::NoRoom;
use crate::state::tier::{AfterTake, TierKey};
use crate::state::{SnapshotError, check_snapshot, has_note, scratch_of, states_alone, with_answer};

/// While processors work on a step, the state and the scratch belong to different steps. An export is tried again for so long and at this
/// interval.
const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const AGAIN: Duration = Duration::from_millis(1);

/// Why a state was not exported or imported. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("sequence {id} of model '{model}' does not live here")]
    Unknown { model: String, id: Id },
    #[error("sequence {id} of model '{model}' lives here or waits in the store; end it before a state is given to it")]
    Live { model: String, id: Id },
    #[error("sequence {id} of model '{model}' has no state yet: its first request has not run")]
    NoState { model: String, id: Id },
    /// It ended while its state was copied, or its model was unloaded.
    #[error("sequence {id} of model '{model}' has just ended")]
    Gone { model: String, id: Id },
    #[error("a request of sequence {id} of model '{model}' has run in part; ask again once it is answered")]
    InPart { model: String, id: Id },
    #[error("{what} is not state of model '{model}': {why}")]
    Other { model: String, what: &'static str, why: String },
    #[error(
        "the stored state of sequence {id} of model '{model}' is as of step {step}, and later steps may have been answered; \
         ask again once it has gone on"
    )]
    Behind { model: String, id: Id, step: u64 },
    #[error("the stored state of sequence {id} of model '{model}' cannot be read: {why}")]
    Store { model: String, id: Id, why: String },
    #[error("another sequence of model '{model}' is captured now")]
    Busy { model: String },
    #[error(
        "the state of sequence {id} of model '{model}' has {bytes} bytes; a capture may have {limit} (admin.capture)"
    )]
    TooLarge { model: String, id: Id, bytes: u64, limit: u64 },
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

/// The state of a sequence as a file. The sequence lives, or waits in the server's store.
pub(in crate::model) fn export(
    model: &ModelScheduler,
    id: &Id,
    version: Option<u64>,
) -> Result<Vec<u8>, TransferError> {
    let began = Instant::now();
    loop {
        match snapshot(model, id, version) {
            Err(TransferError::Unknown { .. }) => {}
            outcome => return outcome.map(|(_, file)| file),
        }
        match stored(model, id, version) {
            // It has continued meanwhile, or has ended.
            Err(TransferError::Gone { .. }) if began.elapsed() < PATIENCE => std::thread::sleep(AGAIN),
            outcome => return outcome,
        }
    }
}

/// The file of a stored sequence, without the answer that is kept for a repeated step. If the sequence lives, the error is `Gone`.
pub(in crate::model) fn stored(
    model: &ModelScheduler,
    id: &Id,
    version: Option<u64>,
) -> Result<Vec<u8>, TransferError> {
    let (name, of) = (model.name.clone(), id.clone());
    let kept = {
        // In one lock section, because a sequence moves between memory and store.
        let table = model.table.lock();
        if table.core.find(id, version).is_some() {
            return Err(TransferError::Gone { model: name, id: of });
        }
        let is_wanted = |kept: &&KeptSequence| {
            version.is_none_or(|version| version == table.successions.successor_of(kept.version_digest()).version)
        };
        table.kept.get(id).filter(is_wanted).cloned()
    };
    let (Some(kept), Some(store)) = (kept, model.store.get()) else {
        return Err(TransferError::Unknown { model: name, id: of });
    };
    if kept.head.behind {
        return Err(TransferError::Behind { model: name, id: of, step: kept.head.step });
    }
    let file = match &kept.unwritten {
        Some(unwritten) => unwritten.file.to_vec(),
        None => {
            let (found, answer) = sync_channel(1);
            store.take(TierKey::new(&name, id), AfterTake::Keep, move |taken| drop(found.send(taken.found)));
            match answer.recv() {
                Ok(Ok(Some((head, file)))) if head == kept.head => file,
                Ok(Err(error)) => return Err(TransferError::Store { model: name, id: of, why: error.to_string() }),
                _ => return Err(TransferError::Gone { model: name, id: of }),
            }
        }
    };
    let file = with_answer(&file, &[])?;
    match has_note(&file, UNRUN)? {
        true => Err(TransferError::NoState { model: name, id: of }),
        false => Ok(file),
    }
}

/// The load on which a sequence lives, even if it has no state yet.
pub(in crate::model) fn load_of(
    model: &ModelScheduler,
    id: &Id,
    version: Option<u64>,
) -> Result<Arc<LoadedModel>, TransferError> {
    let (name, id) = (model.name.clone(), id.clone());
    let table = model.table.lock();
    let view = table.core.find(&id, version).and_then(|seq| table.core.view_of(seq));
    drop(table);
    let Some(view) = view else { return Err(TransferError::Unknown { model: name, id }) };
    let load = model.loads().iter().find(|load| load.key == view.load).cloned();
    load.ok_or(TransferError::Gone { model: name, id })
}

/// The number of steps and the state of a live sequence. Waits until no processor works for it. If the sequence restarted or moved meanwhile,
/// it is looked up again.
pub(in crate::model::sequences) fn snapshot(
    model: &ModelScheduler,
    id: &Id,
    version: Option<u64>,
) -> Result<(u64, Vec<u8>), TransferError> {
    let began = Instant::now();
    loop {
        match snapshot_now(model, id, version) {
            Err(TransferError::InPart { .. } | TransferError::Gone { .. }) if began.elapsed() < PATIENCE => {
                std::thread::sleep(AGAIN);
            }
            outcome => return outcome,
        }
    }
}

fn snapshot_now(model: &ModelScheduler, id: &Id, version: Option<u64>) -> Result<(u64, Vec<u8>), TransferError> {
    let (name, id) = (model.name.clone(), id.clone());
    let Some((seq, at)) = model.state_of(&id, version) else { return Err(TransferError::Unknown { model: name, id }) };
    let Some(at) = at else { return Err(TransferError::NoState { model: name, id }) };
    let load = model.loads().iter().find(|l| l.key == at.instance.load).cloned();
    let Some(load) = load else { return Err(TransferError::Gone { model: name, id }) };
    let header = header(&name, load.version, at.step);
    let (reply, answer) = sync_channel(1);
    let mailbox = load.mail.get(usize::from(at.instance.n));
    let posted = mailbox.is_some_and(|mailbox| mailbox.post(SnapshotRequest { seq, header, reply }));
    load.wake(at.instance.n);
    match answer.recv() {
        Ok(Some(Err(SnapshotError::InPart))) => Err(TransferError::InPart { model: name, id }),
        Ok(Some(snapshot)) if posted => Ok(snapshot?),
        _ => Err(TransferError::Gone { model: name, id }),
    }
}

/// Keeps a state for the next step of an id that has no live sequence.
pub(in crate::model) fn import(
    model: &Arc<ModelScheduler>,
    load: &LoadedModel,
    id: Id,
    file: &[u8],
) -> Result<(), TransferError> {
    let name = model.name.clone();
    let header = check_snapshot(&load.states, file)?;
    let other = |why: String| TransferError::Other { model: name.clone(), what: "the snapshot", why };
    if let Some(of) = header.get(MODEL).filter(|of| **of != name) {
        return Err(other(format!("it is of model '{of}'")));
    }
    let step = match header.get(STEP) {
        None => 0,
        Some(step) => step.parse().map_err(|_| other(format!("its step is \"{step}\"")))?,
    };
    let scratch = scratch_for(load, file)?;
    // Other tensors would take memory that is not counted.
    let file = states_alone(&load.states, file)?;
    let grown = if load.grows() { file.len() as u64 } else { 0 };
    let ticket = model.budget().take(load.state_bytes_of(grown))?;
    let import = Import { scratch, ..Import::given(load, model.now(), step, Bytes::from(file), ticket) };
    if model.adopt(id.clone(), import) { Ok(()) } else { Err(TransferError::Live { model: name, id }) }
}

/// Adds the scratch of the load's processors to the file of a state of this step. Called by the thread that runs the sequence's steps.
pub(in crate::model) fn with_scratch(
    model: &ModelScheduler,
    seq: Seq,
    step: u64,
    file: Vec<u8>,
) -> Result<Vec<u8>, SnapshotError> {
    let (names, scratch) = {
        let table = model.table.lock();
        let Some(live) = table.live(seq) else { return Ok(file) };
        let Some(names) = live.load.scratch_owners() else { return Ok(file) };
        let at_work = |stage: Stage| matches!(stage, Stage::Running | Stage::Sealing | Stage::Posting);
        let is_of_step = table.core.view_of(seq).is_some_and(|view| view.step == step && !at_work(view.stage));
        if !is_of_step || table.core.is_between_runs(seq) {
            return Err(SnapshotError::InPart);
        }
        (names, live.scratch.clone())
    };
    crate::state::with_scratch(&file, &names, scratch.parts())
}

/// The scratch in a snapshot, if this load's processors keep any. It is an error if it does not fit them.
fn scratch_for(load: &LoadedModel, file: &[u8]) -> Result<Option<SequenceScratch>, TransferError> {
    let (made_by, scratch) = scratch_of(file)?;
    let processors = load.scratch_owners().unwrap_or_default();
    let limit = load.processors.as_ref().map_or(0, |processors| processors.chain.scratch_bytes());
    let other =
        |why: String| Err(TransferError::Other { model: load.settings.name.clone(), what: "the snapshot", why });
    if made_by.is_empty() && limit == 0 {
        return Ok(None);
    }
    if made_by != processors {
        return other(format!("its processors were [{made_by}], and those of the model are [{processors}]"));
    }
    let bytes: u64 = scratch.iter().map(|of| of.len() as u64).sum();
    if bytes > limit {
        return other(format!("its scratch has {bytes} bytes; the model's processors keep {limit} at most"));
    }
    Ok(load.processors.as_ref().map(|_| SequenceScratch::new(scratch)))
}
