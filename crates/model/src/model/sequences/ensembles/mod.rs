//! The path of an ensemble's request through its members, and the interfaces between ensembles and members.
//!
//! - `ensemble_flow`: one request and its steps. `members`: the traits by which each side uses the other, and the sequences that belong
//!   together.
//! - `reply_to`: the destination of an answer: an API, or a step of such a request.
//!
//! This module names no table and no lock of a model. `entry` implements the traits of both sides.

mod ensemble_flow;
mod members;
mod reply_to;

pub(in crate::model) use members::{EnsembleParts, Member};

pub(in crate::model::sequences) use ensemble_flow::{EnsembleFlow, EnsembleMembers, FlowGuard, FlowRequest, FlowState};
pub(in crate::model::sequences) use members::{
    FlowHost, Followup, MemberCall, MemberSequences, MemberUses, Reservation, SequenceHolder, contains_itself,
};
pub(in crate::model::sequences) use reply_to::{Reply, ReplyTo, StepOfFlow, lost};
