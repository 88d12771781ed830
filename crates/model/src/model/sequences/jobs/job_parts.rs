//! The parts of a job that only some requests have: the source of its sequence's state, its claims on limits, its writes to the store, and
//! its role in an ensemble. `Job` itself has the fields that every request uses.

use bytes::Bytes;

use crate::model::load::{BroughtStates, FirstValues};
use crate::model::sequences::ensembles::{FlowGuard, FlowRequest, Reservation, SequenceHolder};
use crate::model::sequences::offloaded::{ImportOrigin, KeptSequence, RowToSeal, StoreWork, WantedMemory};
use crate::processing::SequenceScratch;
use crate::state::budget::Ticket;

use super::owner::SequencePermit;

/// The state that its sequence continues or begins with, if it is not the first state of config.pbtxt.
#[derive(Debug, Default)]
pub(in crate::model) struct StateSource {
    /// The snapshot that its sequence continues from, if that was kept outside the slots.
    pub(in crate::model) snapshot: Option<Bytes>,
    /// The first states of its sequence, if they are not those of config.pbtxt. Known once it runs.
    pub(in crate::model) first: Option<FirstValues>,
    /// The first state that a START specifies, until it is prepared.
    pub(in crate::model::sequences) brought: Option<Box<BroughtStates>>,
    /// The step and the origin of a state that was given to the server for its sequence.
    pub(in crate::model::sequences) imported: Option<Box<ImportOrigin>>,
    /// The store's work for it before its turn.
    pub(in crate::model::sequences) store: Option<Box<StoreWork>>,
    /// The stored sequence that it continues, until that sequence begins here.
    pub(in crate::model::sequences) kept: Option<Box<KeptSequence>>,
    /// Only for a START on the id of a stored sequence: the incarnation of that sequence. It ends once the START takes effect.
    pub(in crate::model::sequences) replaces: Option<u64>,
    /// The incarnation and the step that it continues from, if its sequence was stored.
    pub(in crate::model::sequences) resumed: Option<(u64, u64)>,
    /// The scratch that its sequence continues from, if that was stored.
    pub(in crate::model::sequences) kept_scratch: Option<SequenceScratch>,
    /// Whether its next run is the first of its sequence, although the state was stored.
    pub(in crate::model::sequences) unrun: bool,
}

/// The shares of limits that its new sequence takes.
#[derive(Debug, Default)]
pub(in crate::model) struct SequenceClaims {
    /// State memory for the sequence that it starts.
    pub(in crate::model) ticket: Option<Ticket>,
    /// Counts the sequence it starts for the client that owns it.
    pub(in crate::model::sequences) permit: Option<SequencePermit>,
    /// The state memory that it waits for.
    pub(in crate::model::sequences) wants: Option<Box<WantedMemory>>,
}

/// The state of its sequence that the store must write or has written.
#[derive(Debug, Default)]
pub(in crate::model) struct StateWrite {
    /// The state after its run, until its processors are done.
    pub(in crate::model::sequences) to_seal: Option<RowToSeal>,
    /// Whether the state after its run must be written.
    pub(in crate::model::sequences) due: bool,
    /// The last durable step of its sequence, if answers do not wait for their states.
    pub(in crate::model::sequences) durable_step: Option<u64>,
}

/// Its role in a request of an ensemble.
#[derive(Debug, Default)]
pub(in crate::model) struct EnsembleRole {
    /// Only for a START that an ensemble sent and that has no inputs yet: receives the report of its slot.
    pub(in crate::model::sequences) reservation: Option<Reservation>,
    /// The ensemble's sequence to which the sequence that it starts belongs.
    pub(in crate::model::sequences) holder: Option<SequenceHolder>,
    /// If the load is an ensemble: the request as it arrived, until its turn.
    pub(in crate::model::sequences) flow_request: Option<Box<FlowRequest>>,
    /// Its flow through the members, once that has begun.
    pub(in crate::model::sequences) flow: Option<FlowGuard>,
}
