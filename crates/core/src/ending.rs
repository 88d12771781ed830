//! How sequences end, and what is known of them then.

use std::time::Duration;

use crate::time::Time;

/// Why a sequence ended. The names are those of the reasons clients read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EndReason {
    End,
    /// Idle for too long.
    Idle,
    /// A START came on the live id.
    Restarted,
    Cancelled,
    /// Its slot was needed, or a policy took it.
    Evicted,
    /// Its load was retired and the limit came.
    Drained,
    /// Another node owns it now.
    Fenced,
    /// Its state could not be made durable.
    Unsealed,
    /// Its state was moved out of memory, to where its next step finds it, or goes back there because nothing of it has run. Nothing remembers
    /// this as an end.
    Spilled,
    Admin,
    /// A policy rejected one of its steps.
    Rejected,
    /// The START did not take effect: refused after admission, or failed where the dialect rolls it back.
    Failed,
    /// A member of its ensemble failed or refused a step that others may have run.
    Member,
    /// A step after its START failed and left no state to go on from.
    Broken,
    /// A step left a state with a NaN or an infinity, which its load watches for.
    NotFinite,
}

impl EndReason {
    pub const ALL: [EndReason; 15] = [
        EndReason::End,
        EndReason::Idle,
        EndReason::Restarted,
        EndReason::Cancelled,
        EndReason::Evicted,
        EndReason::Drained,
        EndReason::Fenced,
        EndReason::Unsealed,
        EndReason::Spilled,
        EndReason::Admin,
        EndReason::Rejected,
        EndReason::Failed,
        EndReason::Member,
        EndReason::Broken,
        EndReason::NotFinite,
    ];
}

/// Remembers a sequence that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tombstone {
    pub why: EndReason,
    pub at: Time,
    /// Its last committed step.
    pub step: u64,
    /// How long it was allowed to be idle; `None` is for ever.
    pub idle: Option<Duration>,
}
