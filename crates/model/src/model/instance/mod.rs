//! The threads of an instance: each pulls its next step from the model and carries it out.
//!
//! - `runner`: starts the threads. `identity`: which instance they run, and the steps that run no batch.
//! - `serial`: finishes each batch before it takes the next. `pipelined`, `in_flight`: on accelerators, submits the next batch while one
//!   runs.
//! - `batch_run`: the life of one batch, row by row.
//!
//! This module knows no repository.

mod batch_run;
mod identity;
mod in_flight;
mod pipelined;
mod runner;
mod serial;

pub(in crate::model) use identity::Identity;
pub(in crate::model) use runner::Runner;
