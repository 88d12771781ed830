//! A question to an external policy: owned and numbered, so that the core stays unlocked while it is pondered.

use crate::event::Note;
use crate::ids::{Instance, Load, Req, RoundId, Seq};
use crate::policy::{Admission, Columns, Decision, Fault, Picks};

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// Which of `see` this instance runs next.
    Plan(Instance),
    /// Which backlogged sequences of `see` get a slot. `room` counts free slots by instance.
    Admit { load: Load, room: Vec<u32>, victims: Box<Columns> },
}

/// One question. It borrows nothing from the core and is given back with the answer.
#[derive(Debug)]
pub struct Round {
    pub id: RoundId,
    pub asked: Asked,
    pub see: Columns,
    /// What happened since the last round, in order.
    pub notes: Vec<Note>,
    /// More notes were due than could be kept: the policy should ask for the live sequences again.
    pub lost: bool,
    /// Where the policy puts its picks.
    pub picks: Picks,
    /// Who stands behind each index of `see`.
    pub(crate) keys: Vec<Candidate>,
    /// Who stands behind each index of the victims.
    pub(crate) victims: Vec<Seq>,
}

/// The answer.
#[derive(Debug)]
pub enum Said {
    Plan(Result<Decision, Fault>),
    Admit(Result<Vec<Admission>, Fault>),
}

/// Who stands behind an index of what a policy saw, and what the checks of its answer need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) req: Req,
    pub(crate) rows: u32,
    pub(crate) shape: u64,
}
