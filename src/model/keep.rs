//! A sequence's state, out as a file and in again. Only the thread that owns a slot touches its state: it is asked by letter, and does it
//! between two batches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use bytes::Bytes;
use sequor_core::{Id, Seq};

use crate::state::budget::NoRoom;
use crate::state::{SnapshotError, check_snapshot};

use super::driver::Model;
use super::loaded::Loaded;
use super::slots::Slots;
use super::sync::Mutex;
use super::table::Import;

/// Why a state does not go out or in. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("sequence {id} of model '{model}' does not live here")]
    Unknown { model: String, id: Id },
    #[error("sequence {id} of model '{model}' lives here; end it before a state is given to it")]
    Live { model: String, id: Id },
    #[error("sequence {id} of model '{model}' has no state yet: its first request has not run")]
    NoState { model: String, id: Id },
    /// It ended while its state was asked for, or its model was unloaded.
    #[error("sequence {id} of model '{model}' has just ended")]
    Gone { model: String, id: Id },
    #[error("{what} is not state of model '{model}': {why}")]
    Other { model: String, what: &'static str, why: String },
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

/// Keys of a snapshot's header.
const MODEL: &str = "sequor.model";
const VERSION: &str = "sequor.version";
const STEP: &str = "sequor.step";

/// What an instance's thread is asked to do between two batches.
#[derive(Debug, Default)]
pub(super) struct Mailbox(Mutex<Letters>);

#[derive(Debug, Default)]
struct Letters {
    closed: bool,
    open: Vec<Letter>,
}

/// Asks for the state of a sequence.
#[derive(Debug)]
struct Letter {
    seq: Seq,
    header: BTreeMap<String, String>,
    reply: SyncSender<Option<Result<Vec<u8>, SnapshotError>>>,
}

impl Mailbox {
    /// False if nobody reads it any more.
    fn post(&self, letter: Letter) -> bool {
        let mut letters = self.0.lock();
        let open = !letters.closed;
        if open {
            letters.open.push(letter);
        }
        open
    }

    /// Whether letters lie in it.
    pub(super) fn is_full(&self) -> bool {
        !self.0.lock().open.is_empty()
    }

    pub(super) fn close(&self) {
        let mut letters = self.0.lock();
        letters.closed = true;
        letters.open.clear();
    }

    /// Answers every letter. Called by the thread whose box it is, between two batches.
    pub(super) fn serve(&self, model: &Model, slots: &mut Slots) {
        let letters = std::mem::take(&mut self.0.lock().open);
        for Letter { seq, mut header, reply } in letters {
            // It may have ended since; its slot may be another's.
            let snapshot = model.state_now(seq).map(|at| {
                header.insert(STEP.to_owned(), at.step.to_string());
                slots.snapshot(at.slot.ix, &header)
            });
            // Whoever asked may have gone.
            let _ = reply.send(snapshot);
        }
    }
}

impl Model {
    /// The state of a live sequence as a file.
    pub(super) fn export(self: &Arc<Self>, id: &Id, version: Option<u64>) -> Result<Vec<u8>, KeepError> {
        let (model, id) = (self.name.clone(), id.clone());
        let Some((seq, at)) = self.state_of(&id, version) else { return Err(KeepError::Unknown { model, id }) };
        let Some(at) = at else { return Err(KeepError::NoState { model, id }) };
        let load = self.loads().iter().find(|l| l.key == at.instance.load).cloned();
        let Some(load) = load else { return Err(KeepError::Gone { model, id }) };
        let header = [(MODEL, model.clone()), (VERSION, load.version.to_string())];
        let header = header.map(|(key, value)| (key.to_owned(), value)).into();
        let (reply, answer) = sync_channel(1);
        let posted =
            load.mail.get(usize::from(at.instance.n)).is_some_and(|mail| mail.post(Letter { seq, header, reply }));
        load.wake(at.instance.n);
        match answer.recv() {
            Ok(Some(snapshot)) if posted => Ok(snapshot?),
            _ => Err(KeepError::Gone { model, id }),
        }
    }

    /// Keeps a state for the next step of a sequence that does not live here.
    pub(super) fn import(&self, load: &Loaded, id: Id, file: Vec<u8>) -> Result<(), KeepError> {
        let model = self.name.clone();
        let header = check_snapshot(&load.states, &file)?;
        let other = |why: String| KeepError::Other { model: model.clone(), what: "the snapshot", why };
        if let Some(of) = header.get(MODEL).filter(|of| **of != model) {
            return Err(other(format!("it is of model '{of}'")));
        }
        let step = match header.get(STEP) {
            None => 0,
            Some(step) => step.parse().map_err(|_| other(format!("its step is \"{step}\"")))?,
        };
        let ticket = self.budget().take(load.state_bytes())?;
        let import = Import { step, snapshot: Bytes::from(file), ticket };
        if self.adopt(id.clone(), import) { Ok(()) } else { Err(KeepError::Live { model, id }) }
    }
}
