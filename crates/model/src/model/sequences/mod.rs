//! The sequences and requests of one model name: a core and the table of its requests under one lock.
//!
//! # Layout
//!
//! Each module may name the modules above it in this list, and none below (`tests/imports.allow`). The rest of `model/` sees only the
//! re-exports below.
//!
//! - `ensembles`: the path of an ensemble's request through its members.
//! - `offloaded`: records of states that are not in an instance's memory: stored, in transit, or between two loads.
//! - `jobs`: a request between its submission and its answer.
//! - `gate`: which sequences this server owns, if several servers share them.
//! - `table`: the data that the lock guards, and the stages of a request in it.
//! - `write_back`: moves states to the store while the model serves.
//! - `scheduler`: the lock, and the actions that follow once it is released.
//! - `entry`: the entry points of the model, for clients and for ensembles.
//! - `migration`: moves live sequences to another load, and across a restart.
//! - `operators`: operators' requests: lists, exports, imports, captures, counters.
//!
//! No code here runs a graph. Under the lock there is no I/O, no copy of a payload and no log.

mod ensembles;
mod entry;
mod gate;
mod jobs;
mod migration;
mod offloaded;
mod operators;
mod scheduler;
mod table;
mod write_back;

pub use entry::Pending;
pub use jobs::{ChosenBy, RequestOrigin, SequenceOwner};
pub use operators::{
    AbsentSequence, CaptureLimits, EndedSequence, LiveSequence, PastRefusal, PastStep, ResumableFrom,
    ResumableSequence, SequenceHistory, TransferError, VersionStatistics,
};

pub(in crate::model) use ensembles::{EnsembleParts, Member};
pub(in crate::model) use entry::{gated, submission};
pub(in crate::model) use jobs::{InheritedContext, Job};
pub(in crate::model) use migration::{carry, handover, restart};
pub(in crate::model) use offloaded::{RefusedGrowth, RowToSeal};
pub(in crate::model) use operators::{capture, history, listing, state_transfer, usage};
pub(in crate::model) use scheduler::{ID_BITS, ModelScheduler};
pub(in crate::model) use table::{FinishedBatch, Step, TakenBatch};
