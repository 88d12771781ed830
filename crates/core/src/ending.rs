//! Reasons for the end of a sequence, and the tombstone that remembers it.

use std::time::Duration;

use crate::time::Time;

/// Why a sequence ended. The names match the reasons that clients receive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EndReason {
    End,
    /// Idle for too long.
    Idle,
    /// A START arrived for the live id.
    Restarted,
    Cancelled,
    /// Its slot was needed, or a policy took it.
    Evicted,
    /// Its load was retired and the time limit passed.
    Drained,
    /// Another node owns it now.
    Fenced,
    /// Its state could not be made durable, and the store has none from which it could go on.
    Unsealed,
    /// Its state left memory for the store, or returns there because no step of it has run. Its next step finds it there, so no tombstone
    /// is kept.
    Spilled,
    Admin,
    /// A policy rejected one of its steps.
    Rejected,
    /// The START did not take effect: refused after admission, or failed where the dialect rolls it back.
    Failed,
    /// A member of its ensemble failed or refused a step that others may have run.
    Member,
    /// A step after its START failed and left no state for the next step.
    Broken,
    /// A step left a state with a NaN or an infinity. Its load checks for these.
    NotFinite,
    /// The accelerator that held its state has failed.
    DeviceLost,
    /// No slot was free in time. Stores keep the number of a reason, so a new one goes last.
    NoSlot,
    /// The state after its last step could not be made durable. The store has an earlier state, from which its next step continues, so no
    /// tombstone is kept.
    RolledBack,
}

impl EndReason {
    pub const ALL: [EndReason; 18] = [
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
        EndReason::DeviceLost,
        EndReason::NoSlot,
        EndReason::RolledBack,
    ];

    /// Whether the sequence has only left memory: its next step continues from the store, so clients hear of no end.
    pub fn continues_from_store(self) -> bool {
        matches!(self, EndReason::Spilled | EndReason::RolledBack)
    }

    /// Whether the sequence may go on from a state that is kept outside its slot: this server lost the sequence, and no client ended it.
    pub fn leaves_stored_state(self) -> bool {
        matches!(self, EndReason::Fenced | EndReason::DeviceLost)
    }
}

/// The record of a sequence that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tombstone {
    pub why: EndReason,
    pub at: Time,
    /// Its last committed step.
    pub step: u64,
    /// Its idle time; `None` means no limit.
    pub idle: Option<Duration>,
}
