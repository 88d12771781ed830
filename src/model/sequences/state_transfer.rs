//! A sequence's state, out as a file and in again.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use bytes::Bytes;
use sequor_core::Id;

use crate::executor::ModelStep;
use crate::model::load::{LoadedModel, MODEL, STEP, SnapshotRequest, header};
use crate::state::budget::NoRoom;
use crate::state::{SnapshotError, check_snapshot, states_alone};

use super::driver::ModelScheduler;
use super::imports::Import;

/// Why a state does not go out or in. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("sequence {id} of model '{model}' does not live here")]
    Unknown { model: String, id: Id },
    #[error("sequence {id} of model '{model}' lives here; end it before a state is given to it")]
    Live { model: String, id: Id },
    #[error("sequence {id} of model '{model}' has no state yet: its first request has not run")]
    NoState { model: String, id: Id },
    /// It ended while its state was asked for, or its model was unloaded.
    #[error("sequence {id} of model '{model}' has just ended")]
    Gone { model: String, id: Id },
    #[error("a request of sequence {id} of model '{model}' has run in part; ask again once it is answered")]
    InPart { model: String, id: Id },
    #[error("{what} is not state of model '{model}': {why}")]
    Other { model: String, what: &'static str, why: String },
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

/// The state of a live sequence as a file.
pub(in crate::model) fn export(
    model: &ModelScheduler,
    id: &Id,
    version: Option<u64>,
) -> Result<Vec<u8>, TransferError> {
    snapshot(model, id, version).map(|(_, file)| file)
}

/// The load on which a sequence lives.
pub(in crate::model) fn load_of(
    model: &ModelScheduler,
    id: &Id,
    version: Option<u64>,
) -> Result<Arc<LoadedModel>, TransferError> {
    let (name, id) = (model.name.clone(), id.clone());
    let Some((_, at)) = model.state_of(&id, version) else { return Err(TransferError::Unknown { model: name, id }) };
    let Some(at) = at else { return Err(TransferError::NoState { model: name, id }) };
    let load = model.loads().iter().find(|l| l.key == at.instance.load).cloned();
    load.ok_or(TransferError::Gone { model: name, id })
}

/// The state of a live sequence, and the steps that it contains.
pub(super) fn snapshot(model: &ModelScheduler, id: &Id, version: Option<u64>) -> Result<(u64, Vec<u8>), TransferError> {
    let (name, id) = (model.name.clone(), id.clone());
    let Some((seq, at)) = model.state_of(&id, version) else { return Err(TransferError::Unknown { model: name, id }) };
    let Some(at) = at else { return Err(TransferError::NoState { model: name, id }) };
    let load = model.loads().iter().find(|l| l.key == at.instance.load).cloned();
    let Some(load) = load else { return Err(TransferError::Gone { model: name, id }) };
    check_scratch(&load)?;
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

/// Keeps a state for the next step of a sequence that does not live here.
pub(in crate::model) fn import(
    model: &Arc<ModelScheduler>,
    load: &LoadedModel,
    id: Id,
    file: &[u8],
) -> Result<(), TransferError> {
    let name = model.name.clone();
    check_scratch(load)?;
    let header = check_snapshot(&load.states, file)?;
    let other = |why: String| TransferError::Other { model: name.clone(), what: "the snapshot", why };
    if let Some(of) = header.get(MODEL).filter(|of| **of != name) {
        return Err(other(format!("it is of model '{of}'")));
    }
    let step = match header.get(STEP) {
        None => 0,
        Some(step) => step.parse().map_err(|_| other(format!("its step is \"{step}\"")))?,
    };
    // Other tensors would be kept without being counted.
    let file = states_alone(&load.states, file)?;
    let grown = if load.grows() { file.len() as u64 } else { 0 };
    let ticket = model.budget().take(load.state_bytes().max(grown))?;
    let import = Import::given(load, model.now(), step, Bytes::from(file), ticket);
    if model.adopt(id.clone(), import) { Ok(()) } else { Err(TransferError::Live { model: name, id }) }
}

/// A snapshot does not hold the scratch of processors yet.
pub(super) fn check_scratch(load: &LoadedModel) -> Result<(), TransferError> {
    if load.processors.as_ref().is_none_or(|processors| processors.chain.scratch_bytes() == 0) {
        return Ok(());
    }
    let why = "its processors keep scratch, which a snapshot does not hold yet".to_owned();
    Err(TransferError::Other { model: load.settings.name.clone(), what: "a snapshot", why })
}
