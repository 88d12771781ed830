//! A question to an external policy: owned and numbered, so that the core stays unlocked while it is pondered.

use crate::event::Note;
use crate::ids::{Instance, Load, Req, RoundId, Seq};
use crate::policy::{Admission, Columns, Decision, Fault};

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
    /// Where the policy puts its picks.
    pub picks: Vec<u32>,
    /// Who stands behind each index of `see`.
    pub(crate) keys: Vec<(Option<Seq>, Req)>,
    /// Who stands behind each index of the victims.
    pub(crate) victims: Vec<Seq>,
}

/// The answer.
#[derive(Debug)]
pub enum Said {
    Plan(Result<Decision, Fault>),
    Admit(Result<Vec<Admission>, Fault>),
}
