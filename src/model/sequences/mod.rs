//! The sequences and requests of one model name: a core and the table of its requests under one lock.
//!
//! # Layout
//!
//! Each room may name the rooms above it in this list, and none below (`tests/imports.allow`). The rest of `model/` sees only what stands below.
//!
//! - `ensembles`: a request of an ensemble on its way through the members.
//! - `offloaded`: records of states that are not in the memory of an instance: stored, on their way, or between two loads.
//! - `jobs`: a request between its submission and its answer.
//! - `table`: what the lock guards, and the stages of a request in it.
//! - `write_back`: moves states to the store while the model serves.
//! - `scheduler`: the lock, and what follows once it is released.
//! - `entry`: the ways into the model, for clients and for ensembles.
//! - `migration`: moves live sequences to another load, and over a restart.
//! - `operators`: what operators ask: lists, exports, imports, captures, counters.
//!
//! Nothing here runs a graph. Under the lock there is no I/O, payload or log.

mod ensembles;
mod entry;
mod jobs;
mod migration;
mod offloaded;
mod operators;
mod scheduler;
mod table;
mod write_back;

pub use entry::Pending;
pub use jobs::{RequestOrigin, SequenceOwner};
pub use operators::{CaptureLimits, EndedSequence, LiveSequence, ResumableSequence, TransferError, VersionStatistics};

pub(in crate::model) use ensembles::{EnsembleParts, Member};
pub(in crate::model) use entry::submission;
pub(in crate::model) use jobs::{InheritedContext, Job};
pub(in crate::model) use migration::{carry, restart};
pub(in crate::model) use offloaded::{RefusedGrowth, RowToSeal};
pub(in crate::model) use operators::{capture, listing, state_transfer, usage};
pub(in crate::model) use scheduler::{ID_BITS, ModelScheduler};
pub(in crate::model) use table::{FinishedBatch, Step, TakenBatch};
