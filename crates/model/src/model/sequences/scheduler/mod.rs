//! The scheduler of one model name: a table under one short lock, and the actions that follow once the lock is released.
//!
//! - `model_scheduler`: the lock and its sections. `loads`: the loads of the name. `admission`: the resources of a request before it enters
//!   the table.
//! - `to_store`: queues the work for the store, under the lock. `carry_out`: the actions after the lock. `inline`: leaves a short step to a
//!   connection's thread.
//! - `hosts`, `plugin_host`: the scheduler as the modules below and plug-ins use it.
//!
//! No code here runs a graph.

mod admission;
mod carry_out;
mod hosts;
mod inline;
mod loads;
mod model_scheduler;
mod plugin_host;
mod to_store;

pub(in crate::model) use admission::ID_BITS;
pub(in crate::model) use model_scheduler::ModelScheduler;

pub(in crate::model::sequences) use admission::make_whole;
pub(in crate::model::sequences) use carry_out::{ActingThread, carry_out};
