//! Requests as every API passes them on, and the checks before they are queued.
//!
//! - `message`: a request and its answer, independent of the protocol.
//! - `answer_room`: the limit on answers that clients have not taken.
//! - `intake`: checks a request against its model's configuration. `input_checks`: the checks of one tensor. `start_states`: the first state
//!   that a START specifies. `features`: the values of a request that schedulers see.
//!
//! This module knows no load, queue or lock.

mod answer_room;
mod features;
mod input_checks;
pub(in crate::model) mod intake;
mod message;
mod start_states;

pub use answer_room::AnswerLimit;
pub use message::{InferAnswer, InferRequest, Parameter, SequenceStep};

pub(in crate::model) use answer_room::AnswerRoom;
pub(in crate::model) use input_checks::as_given;
pub(in crate::model) use intake::Accepted;
