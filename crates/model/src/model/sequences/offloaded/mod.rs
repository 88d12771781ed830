//! Records of states that are not in the memory of an instance. They are plain values; no code here moves a state.
//!
//! - `stored_sequences`: sequences in the server's store, and the store's work for a request.
//! - `durable_states`: the stored states of live sequences, and the rows of a batch whose states will be stored.
//! - `carried_sequences`: sequences of a replaced load, in transit to the next one.
//! - `memory_waits`: requests that wait for state memory, and the sequences that make room for them.
//!
//! This module names no request, table or model. The only I/O is that of the store, on its own threads.

mod carried_sequences;
mod durable_states;
mod memory_waits;
mod stored_sequences;

pub(in crate::model) use durable_states::RowToSeal;
pub(in crate::model) use memory_waits::RefusedGrowth;

pub(in crate::model::sequences) use carried_sequences::{Carried, CarriedLoad, GivenTo, ImportOrigin};
pub(in crate::model::sequences) use durable_states::WrittenSequence;
pub(in crate::model::sequences) use memory_waits::{MemoryWait, Spilling, WantedMemory};
pub(in crate::model::sequences) use stored_sequences::{
    FailedWrite, Forgotten, KeptSequence, KeptStore, LOOK, LookTask, ResumedState, StoreTask, StoreWork, UnwrittenFile,
    WriteDoubt,
};
