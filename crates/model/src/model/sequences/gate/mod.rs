//! Which sequences of a model this server owns, if several servers share them, and the requests that wait until it owns theirs.
//!
//! - `sequence_gate`: the ids, and what happens to each of them.
//! - `look_times`: when to look whether a sequence can be given up.
//! - `deferred_request`: a request that waits, and how it is cancelled.
//!
//! Plain data. Taking over and giving up are in `entry` and `migration`.

mod deferred_request;
mod look_times;
mod sequence_gate;

pub(in crate::model::sequences) use deferred_request::{DeferredRequest, SubmittedRequest};
pub(in crate::model::sequences) use sequence_gate::{
    AfterClaim, AtGate, GatePlace, HandoverGate, HeldPeriod, SequenceGate,
};
