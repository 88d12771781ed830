//! The interface of a running plug-in: a [`Source`] starts [`Guest`]s, and a guest answers questions. A component, its native twin and a
//! test's stand-in look the same.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sequor_core::{Admission, Columns, Decision, EndReason, Hooks, Observed, ObservedKind, Picks, PolicyFault};
use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::limits::Limits;
use sequor_wasm::room::{GuestRoom, NoGuestRoom, RoomPurpose, RoomShare};
use sequor_wasm::services::Services;

use crate::config::model::LoadFacts;
use crate::error::RejectionReason;

/// Events in columns, as the contract's `events`. Entry `i` of each column belongs to event `i`; `keys` row by row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Events {
    pub kind: Vec<u32>,
    pub sequence: Vec<u64>,
    pub amount: Vec<u64>,
    pub keys: Vec<u64>,
}

impl Events {
    /// Appends an event; `keys` is the number of key features of the model.
    pub fn add(&mut self, one: &Observed, keys: usize) {
        let (kind, amount) = match one.what {
            ObservedKind::Began { steps } => (1, steps),
            ObservedKind::Slotted { waited } => (2, u64::try_from(waited.as_micros()).unwrap_or(u64::MAX)),
            ObservedKind::Done { rows } => (3, u64::from(rows)),
            ObservedKind::Failed { rows } => (4, u64::from(rows)),
            ObservedKind::Ended(why) => (5, code(why)),
            ObservedKind::BatchRan { took } => (6, u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
        };
        self.kind.push(kind);
        self.sequence.push(one.seq);
        self.amount.push(amount);
        self.keys.extend(one.keys.iter().take(keys));
    }

    pub fn len(&self) -> usize {
        self.kind.len()
    }

    pub fn is_empty(&self) -> bool {
        self.kind.is_empty()
    }

    /// Empties every column and keeps its memory.
    pub fn clear(&mut self) {
        let Events { kind, sequence, amount, keys } = self;
        kind.clear();
        [sequence, amount, keys].into_iter().for_each(Vec::clear);
    }
}

/// The contract's number for the reason of a sequence's end.
fn code(why: EndReason) -> u64 {
    match why {
        EndReason::End => 1,
        EndReason::Idle => 2,
        EndReason::Restarted => 3,
        // A request that waited was given up: by its client, or because no slot was free in time.
        EndReason::Cancelled | EndReason::NoSlot => 4,
        // For a plug-in both mean the same: the sequence is gone, and begins again with its next step.
        EndReason::Evicted | EndReason::Spilled => 5,
        EndReason::Drained => 6,
        EndReason::Fenced => 7,
        // Its state could not be written. Whether the store has an earlier one makes no difference to a plug-in.
        EndReason::Unsealed | EndReason::RolledBack => 8,
        // Ended from outside.
        EndReason::Admin | EndReason::Member => 9,
        EndReason::Rejected => 10,
        EndReason::Failed | EndReason::Broken | EndReason::NotFinite | EndReason::DeviceLost => 11,
    }
}

/// The cause of a strike: the core's fault, and a sentence for the plug-in's author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Strike {
    pub fault: PolicyFault,
    pub what: String,
}

/// The core's fault for a failed call.
pub fn fault_of(fault: CallFault) -> PolicyFault {
    match fault {
        CallFault::Trap => PolicyFault::Trap,
        CallFault::Time => PolicyFault::Time,
        CallFault::Memory | CallFault::Full => PolicyFault::Memory,
    }
}

impl From<CallError> for Strike {
    fn from(CallError { fault, what }: CallError) -> Strike {
        Strike { fault: fault_of(fault), what }
    }
}

/// A running instance of a plug-in. One call at a time. After a [`CallError`] it can no longer be used.
pub trait Guest: Send + fmt::Debug {
    /// Configures the guest. An error of the inner result is the guest's own sentence.
    fn configure(&mut self, config: &str, model: &LoadFacts) -> Result<Result<(), String>, CallError>;

    /// Chooses the requests to run. `news`: the events since the last call.
    fn plan(&mut self, instance: u32, see: &Columns, news: &Events, picks: &mut Picks) -> Result<Decision, CallError>;

    /// Chooses the sequences that get a slot. `news`: the events since the last call.
    fn admit(
        &mut self,
        see: &Columns,
        room: &[u32],
        victims: &Columns,
        news: &Events,
    ) -> Result<Vec<Admission>, CallError>;

    /// Reports events without a question.
    fn observe(&mut self, events: &Events) -> Result<(), CallError>;

    /// The state for the guest's successor. By default there is none.
    fn save(&mut self) -> Result<Vec<u8>, CallError> {
        Ok(Vec::new())
    }

    /// Restores a saved state. An error of the inner result is the guest's own sentence.
    fn restore(&mut self, saved: &[u8]) -> Result<Result<(), String>, CallError> {
        let _ = saved;
        Ok(Ok(()))
    }

    /// Bytes of its linear memories; 0 if it has none.
    fn memory(&self) -> u64 {
        0
    }

    /// Maximum bytes of its linear memories.
    fn memory_limit(&self) -> u64 {
        0
    }
}

/// One version of a plug-in, ready to be started any number of times.
pub trait Source: Send + Sync + fmt::Debug {
    fn manifest(&self) -> &Manifest;

    /// SHA-256 of the file, in hex.
    fn sha256(&self) -> &str;

    fn start(&self, services: Arc<dyn Services>, limits: Limits) -> Result<Box<dyn Guest>, CallError>;

    /// How much of the room for guests an instance needs.
    fn weight(&self) -> u32 {
        1
    }

    /// A share of the room, for the guests of this version at one load. Without WebAssembly there is always room.
    fn open_share(&self, purpose: RoomPurpose) -> Result<RoomShare, NoGuestRoom> {
        GuestRoom::default().open(self.weight(), purpose)
    }
}

/// The `plugin.toml` of a plug-in, carried in the component. Without one, the plug-in gets every hook and column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub name: String,
    pub version: String,
    /// The hooks that the core calls, and the columns that it fills in.
    pub hooks: Hooks,
    /// Names of the features it needs.
    pub features: Vec<String>,
    /// The codes with which it rejects requests, and the text that clients read of each.
    pub codes: Codes,
}

/// Codes of a plug-in, with the text that clients read of each.
pub type Codes = Arc<BTreeMap<u32, RejectionReason>>;
