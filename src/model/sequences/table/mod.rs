//! What a model's lock guards: the core, its requests, and what live sequences hold.
//!
//! - `model_table`: the table. `live_sequences`, `imports`, `load_policies`, `job_stage`: what it holds.
//! - `stages`: lends requests to processors and to instances. `store_stages`: to the store. `ensemble_stages`: to the members of an ensemble.
//! - `pending_ends`: ended sequences that the store has still to forget, and the answers that wait for that.
//! - `batch`: what an instance gets and gives back. `deferred_actions`: what is left to do after the lock is released.
//!
//! Everything here runs under the lock: no I/O, payload, log, wake-up or foreign code.

mod batch;
mod deferred_actions;
mod ensemble_stages;
mod imports;
mod job_stage;
mod live_sequences;
mod load_policies;
mod model_table;
mod pending_ends;
mod stages;
pub(in crate::model::sequences) mod store_stages;

pub(in crate::model) use batch::{FinishedBatch, Step, TakenBatch};

pub(in crate::model::sequences) use batch::{PendingSeals, SealAction, SealWaiting, SealingRow};
pub(in crate::model::sequences) use deferred_actions::{Actions, PolicyNotice};
pub(in crate::model::sequences) use ensemble_stages::FlowTable;
pub(in crate::model::sequences) use imports::Import;
pub(in crate::model::sequences) use job_stage::JobPlace;
pub(in crate::model::sequences) use model_table::Table;
pub(in crate::model::sequences) use store_stages::{BY_STORE, KeptStages};
