//! A request as every surface hands it over, and the checks that it must pass before it is queued.
//!
//! - `message`: a request and its answer, in no wire's terms.
//! - `intake`: checks a request against its model's configuration. `features`: what schedulers see of its contents.
//!
//! This module knows no load, queue or lock.

mod features;
pub(in crate::model) mod intake;
mod message;

pub use message::{InferAnswer, InferRequest, Parameter, SequenceStep};

pub(in crate::model) use intake::{Accepted, as_given};
