//! The data under a model's lock: the core, its requests, and the data of live sequences.
//!
//! - `model_table`: the table. `live_sequences`, `imports`, `load_policies`, `job_stage`: its parts.
//! - `sequence_lookup`: looks up the sequence that a request names.
//! - `stages`: lends requests to plug-ins and to instances. `plugin_stages`: applies the answers of plug-ins. `store_stages`,
//!   `ensemble_stages`: the same for the server's store and for the members of an ensemble.
//! - `enders`: the plug-ins and the members that ended sequences. `recent_steps`: the last steps of each sequence.
//! - `pending_ends`: ended sequences that the store must still forget, and the answers that wait for that.
//! - `batch`: the batch that an instance gets and gives back. `deferred_actions`: the actions after the lock is released.
//!
//! Everything here runs under the lock: no I/O, payload, log, wake-up or foreign code.

mod batch;
mod deferred_actions;
mod enders;
mod ensemble_stages;
mod imports;
mod job_stage;
mod live_sequences;
mod load_policies;
mod model_table;
mod pending_ends;
mod plugin_stages;
mod recent_steps;
mod sequence_lookup;
mod stages;
pub(in crate::model::sequences) mod store_stages;

pub(in crate::model) use batch::{FinishedBatch, Step, TakenBatch};

pub(in crate::model::sequences) use batch::{PendingSeals, SealAction, SealWaiting, SealingRow};
pub(in crate::model::sequences) use deferred_actions::{DeferredActions, PolicyNotice, RareActions, StoreAction};
pub(in crate::model) use enders::EndersOf;
pub(in crate::model::sequences) use ensemble_stages::FlowTable;
pub(in crate::model::sequences) use imports::Import;
pub(in crate::model::sequences) use job_stage::JobStage;
pub(in crate::model::sequences) use live_sequences::Live;
pub(in crate::model::sequences) use model_table::Table;
pub(in crate::model::sequences) use plugin_stages::PluginStages;
pub(in crate::model::sequences) use recent_steps::StepRecord;
pub(in crate::model::sequences) use sequence_lookup::SequenceLookup;
pub(in crate::model::sequences) use store_stages::{BY_STORE, KeptStages};
