//! Requests as every API passes them on, and the checks before they are queued.
//!
//! - `message`: a request and its answer, independent of the protocol.
//! - `intake`: checks a request against its model's configuration. `features`: the values of a request that schedulers see.
//!
//! This module knows no load, queue or lock.

mod features;
pub(in crate::model) mod intake;
mod message;

pub use message::{InferAnswer, InferRequest, Parameter, SequenceStep};

pub(in crate::model) use intake::{Accepted, as_given};
