//! A request of an ensemble on its way through the members, and what ensembles and members know of each other.
//!
//! - `ensemble_flow`: one request and its steps. `members`: the traits by which each side reaches the other, and the sequences that belong together.
//! - `reply_to`: where an answer goes: to a surface, or to a step of such a request.
//!
//! This room names no table and no lock of a model. Both sides implement its traits in `entry`.

mod ensemble_flow;
mod members;
mod reply_to;

pub(in crate::model) use members::{EnsembleParts, Member};

pub(in crate::model::sequences) use ensemble_flow::{EnsembleFlow, EnsembleMembers, FlowGuard, FlowRequest, FlowState};
pub(in crate::model::sequences) use members::{
    FlowHost, Followup, MemberCall, MemberSequences, MemberUses, Reservation, SequenceHolder,
};
pub(in crate::model::sequences) use reply_to::{Reply, ReplyTo};
