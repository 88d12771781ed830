//! The parts of a job that only some requests have: where the state of its sequence comes from, what it takes of limits, what is written of it, and its
//! place in an ensemble. `Job` itself holds what every request has.

use bytes::Bytes;

use crate::model::load::{BroughtStates, FirstValues};
use crate::model::sequences::ensembles::{FlowGuard, FlowRequest, Reservation, SequenceHolder};
use crate::model::sequences::offloaded::{ImportOrigin, KeptSequence, RowToSeal, StoreWork, WantedMemory};
use crate::processing::SequenceScratch;
use crate::state::budget::Ticket;

use super::owner::SequencePermit;

/// What its sequence goes on from or begins with, if that is not the first state of config.pbtxt.
#[derive(Debug, Default)]
pub(in crate::model) struct StateSource {
    /// The state its sequence goes on from, if that was kept elsewhere.
    pub(in crate::model) snapshot: Option<Bytes>,
    /// The states that its sequence begins with, if they are not those of config.pbtxt. Known once it runs.
    pub(in crate::model) first: Option<FirstValues>,
    /// What a START brings for the beginning of its sequence, until that is made of it.
    pub(in crate::model::sequences) brought: Option<Box<BroughtStates>>,
    /// The step of the state that was given to the server for its sequence, and where that came from.
    pub(in crate::model::sequences) imported: Option<Box<ImportOrigin>>,
    /// What the server's store does for it before its turn.
    pub(in crate::model::sequences) store: Option<Box<StoreWork>>,
    /// The stored sequence that it goes on with, until that begins here.
    pub(in crate::model::sequences) kept: Option<Box<KeptSequence>>,
    /// Of a START on the id of a stored sequence: which sequence of the id that is. It ends once the START takes effect.
    pub(in crate::model::sequences) replaces: Option<u64>,
    /// Which sequence of its id it goes on with, and as of which step, if that was kept.
    pub(in crate::model::sequences) resumed: Option<(u64, u64)>,
    /// The scratch that its sequence goes on from, if that was kept.
    pub(in crate::model::sequences) kept_scratch: Option<SequenceScratch>,
    /// The run of it that comes is the first of its sequence, though its state was kept.
    pub(in crate::model::sequences) unrun: bool,
}

/// What the sequence that it starts takes of the limits.
#[derive(Debug, Default)]
pub(in crate::model) struct SequenceClaims {
    /// State memory for the sequence it starts.
    pub(in crate::model) ticket: Option<Ticket>,
    /// Counts the sequence it starts for the client that owns it.
    pub(in crate::model::sequences) permit: Option<SequencePermit>,
    /// The state memory that it waits for.
    pub(in crate::model::sequences) wants: Option<Box<WantedMemory>>,
}

/// What the store is to write of its sequence, or has written.
#[derive(Debug, Default)]
pub(in crate::model) struct StateWrite {
    /// The state that its run has left, until its processors are done.
    pub(in crate::model::sequences) to_seal: Option<RowToSeal>,
    /// Whether the state that its run leaves is to be written.
    pub(in crate::model::sequences) due: bool,
    /// The last durable step of its sequence, where answers do not wait for theirs.
    pub(in crate::model::sequences) durable_step: Option<u64>,
}

/// Its part in a request of an ensemble.
#[derive(Debug, Default)]
pub(in crate::model) struct EnsembleRole {
    /// Of a START that an ensemble sent and whose inputs are not here yet: takes the report of its slot.
    pub(in crate::model::sequences) reservation: Option<Reservation>,
    /// The sequence of an ensemble that the sequence it starts belongs to.
    pub(in crate::model::sequences) holder: Option<SequenceHolder>,
    /// Where the load is an ensemble: the request as it came, until its turn.
    pub(in crate::model::sequences) flow_request: Option<Box<FlowRequest>>,
    /// Its way through the members, once that has begun.
    pub(in crate::model::sequences) flow: Option<FlowGuard>,
}
