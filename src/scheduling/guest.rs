//! A running plug-in as the rest of the server sees it: a [`Source`] starts [`Guest`]s, and a guest answers questions. A component, its native twin
//! and a stand-in of a test look the same.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sequor_core::{Admission, Columns, Decision, EndReason, Hooks, Observed, ObservedKind, Picks, PolicyFault};
use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::limits::Limits;
use sequor_wasm::services::Services;

use crate::config::model::LoadFacts;
use crate::error::RejectionReason;

/// Events in columns, as the contract's `events`: entry `i` of each is of event `i`; `keys` row by row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Events {
    pub kind: Vec<u32>,
    pub sequence: Vec<u64>,
    pub amount: Vec<u64>,
    pub keys: Vec<u64>,
}

impl Events {
    /// Appends what happened; `keys` is the number of key features of the model.
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

    /// Empties every column, keeping its memory.
    pub fn clear(&mut self) {
        let Events { kind, sequence, amount, keys } = self;
        kind.clear();
        [sequence, amount, keys].into_iter().for_each(Vec::clear);
    }
}

/// The contract's number for why a sequence ended.
fn code(why: EndReason) -> u64 {
    match why {
        EndReason::End => 1,
        EndReason::Idle => 2,
        EndReason::Restarted => 3,
        EndReason::Cancelled => 4,
        // For a plug-in it is gone for the same reason, and begins anew with its next step.
        EndReason::Evicted | EndReason::Spilled => 5,
        EndReason::Drained => 6,
        EndReason::Fenced => 7,
        EndReason::Unsealed => 8,
        // Ended from outside.
        EndReason::Admin | EndReason::Member => 9,
        EndReason::Rejected => 10,
        EndReason::Failed | EndReason::Broken | EndReason::NotFinite => 11,
    }
}

/// Why a plug-in gets a strike: the rule it broke in the core's words, and what happened in words for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Strike {
    pub fault: PolicyFault,
    pub what: String,
}

/// The core's word for a failed call.
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

/// A live instance of a plug-in. One call at a time; after a [`CallError`] it is of no use any more.
pub trait Guest: Send + fmt::Debug {
    /// An error is the guest's own sentence.
    fn configure(&mut self, config: &str, model: &LoadFacts) -> Result<Result<(), String>, CallError>;

    /// Chooses what runs. `news` happened since the last call.
    fn plan(&mut self, instance: u32, see: &Columns, news: &Events, picks: &mut Picks) -> Result<Decision, CallError>;

    /// Decides which sequences get a slot. `news` happened since the last call.
    fn admit(
        &mut self,
        see: &Columns,
        room: &[u32],
        victims: &Columns,
        news: &Events,
    ) -> Result<Vec<Admission>, CallError>;

    /// Learns what happened, without a question.
    fn observe(&mut self, events: &Events) -> Result<(), CallError>;

    /// Without more it has nothing to hand on.
    fn save(&mut self) -> Result<Vec<u8>, CallError> {
        Ok(Vec::new())
    }

    /// An error is the guest's own sentence.
    fn restore(&mut self, saved: &[u8]) -> Result<Result<(), String>, CallError> {
        let _ = saved;
        Ok(Ok(()))
    }

    /// Bytes of its linear memories; 0 of one that has none.
    fn memory(&self) -> u64 {
        0
    }

    /// Bytes they may have.
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
}

/// What a plug-in says of itself (its plugin.toml, carried in the component). Without a plugin.toml it wants every hook and column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub name: String,
    pub version: String,
    /// The hooks it wants called, and the columns it wants filled.
    pub hooks: Hooks,
    /// Names of the features it needs.
    pub features: Vec<String>,
    /// What clients read of the codes with which it rejects requests.
    pub codes: Codes,
}

/// Codes of a plug-in, and what clients read of each.
pub type Codes = Arc<BTreeMap<u32, RejectionReason>>;
