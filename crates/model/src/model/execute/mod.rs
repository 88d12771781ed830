//! Runs rows: slots, staging, states, a graph's contexts, outputs.
//!
//! - `executor`: the first half of a run; `submitted`: the second. `row_work`: its rows. `contexts`: the graph's contexts. `ports`: the
//!   run's memory. `run_outputs`: the outputs that the graph has written. `reply_shapes`: their shapes for clients. `run_error`: why a run
//!   failed.
//! - `slots`: the states of an instance's sequences. `growth`: state memory beyond the size at START.
//! - `warm_up`: samples that run before a model is ready.
//! - `placement`: the graph and the device of an instance.
//!
//! This module knows no lock, no queue and no client.

mod contexts;
mod executor;
mod growth;
pub(in crate::model) mod placement;
mod ports;
mod reply_shapes;
mod row_work;
mod run_error;
mod run_outputs;
mod slots;
mod submitted;
mod warm_up;

pub(in crate::model) use executor::Executor;
pub(in crate::model) use placement::Placement;
pub(in crate::model) use row_work::{AdoptedState, RowOutcome, RowWork, RunSize, RunTimes};
pub(in crate::model) use run_error::RunError;
pub(in crate::model) use slots::InstanceSlots;
pub(in crate::model) use submitted::Submitted;
pub(in crate::model) use warm_up::warm_up;
