//! What operators ask of a model.
//!
//! - `listing`: its sequences, and how one is ended. `usage`: how full a version is, and its counters.
//! - `state_transfer`: exports and imports the state of a sequence. `capture`: the state, and the steps that follow.
//!
//! No request of a client passes here.

pub(in crate::model) mod capture;
pub(in crate::model) mod listing;
pub(in crate::model) mod state_transfer;
pub(in crate::model) mod usage;

pub use capture::CaptureLimits;
pub use listing::{EndedSequence, LiveSequence, ResumableSequence};
pub use state_transfer::TransferError;
pub use usage::VersionStatistics;
