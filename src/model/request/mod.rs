//! Requests as every API passes them on, and the checks before they are queued.
//!
//! - `message`: a request and its answer, independent of the protocol.
//! - `intake`: checks a request against its model's configuration. `input_checks`: the checks of one tensor. `start_states`: the first state
//!   that a START specifies. `features`: the values of a request that schedulers see.
//!
//! This module knows no load, queue or lock.

mod features;
mod input_checks;
pub(in crate::model) mod intake;
mod message;
mod start_states;

pub use message::{InferAnswer, InferRequest, Parameter, SequenceStep};

pub(in crate::model) use input_checks::as_given;
pub(in crate::model) use intake::Accepted;
