//! Loads of model versions: their settings, the values derived from them, and how other threads reach their instances.
//!
//! - `loaded`: the load. `parts`: its parts besides the settings. `core_spec`: the load as the core sees it. `initial_states`: the initial
//!   states of its sequences. `metadata`: its metadata for clients. `load_key`: its key within the model.
//! - `instance_handle`: wakes an instance. `mailbox`: asks an instance for a sequence's state.
//! - `record`: the records of loads and requests in a recording.
//! - `processors`: the processors in front of the graph, and the settings that clients then see. `initializer`: makes first states.
//!   `brought_states`: the first state that a START itself specifies.
//!   `plugin_threads`: the threads of both.
//! - `ensemble`: the plan of a load that is an ensemble.
//! - `response_cache`: answers of models without sequences, kept for the same inputs.
//! - `quiet_lines`: limits the rate of log lines about a model.
//! - `sequence_store`: the store of this server's sequences. `sealing`: makes the states of a batch durable, as a trait.
//!
//! This module runs nothing and holds no request.

mod brought_states;
mod core_spec;
mod ensemble;
mod initial_states;
mod initializer;
mod instance_handle;
mod load_key;
mod loaded;
mod mailbox;
mod metadata;
mod parts;
mod plugin_threads;
mod processors;
mod quiet_lines;
pub(in crate::model) mod record;
mod response_cache;
mod sealing;
mod sequence_store;

pub use metadata::{Metadata, TensorMetadata};
pub use sealing::{BatchToSeal, Sealed, StateTier, StateToSeal, UnstoredState};
pub use sequence_store::SequenceStore;

pub(in crate::model) use brought_states::BroughtStates;
pub(in crate::model) use core_spec::strategy_name;
pub(in crate::model) use ensemble::LoadEnsemble;
pub(in crate::model) use initializer::{FirstValues, LoadInitializer};
pub(in crate::model) use instance_handle::{Handle, InlineStep};
pub(in crate::model) use load_key::{LoadKey, LoadKeys};
pub(in crate::model) use loaded::LoadedModel;
pub(in crate::model) use mailbox::{
    LeaveRequest, Leaving, LeftState, MailReply, Mailbox, Postman, SnapshotRequest, ValuesRequest,
};
pub(in crate::model) use parts::LoadParts;
pub(in crate::model) use plugin_threads::{run_with_plugins, submit_to_plugins};
pub(in crate::model) use processors::Processors;
pub(in crate::model) use record::RequestFacts;
pub(in crate::model) use response_cache::{CacheLookup, CacheMiss, LoadCache, ResponseCache};
pub(in crate::model) use sealing::{MODEL, STEP, UNRUN, first_file, header};
pub(in crate::model) use sequence_store::LoadDurability;
