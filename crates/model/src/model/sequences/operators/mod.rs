//! Operators' requests to a model.
//!
//! - `listing`: its sequences, and ending one. `history`: the last steps and refusals of one sequence. `usage`: the use of a version, and its counters.
//! - `state_transfer`: exports and imports the state of a sequence. `capture`: records the state and the steps that follow.
//!
//! Requests of clients do not pass through here.

pub(in crate::model) mod capture;
pub(in crate::model) mod history;
pub(in crate::model) mod listing;
pub(in crate::model) mod state_transfer;
pub(in crate::model) mod usage;

pub use capture::CaptureLimits;
pub use history::{PastRefusal, PastStep, SequenceHistory};
pub use listing::{AbsentSequence, EndedSequence, LiveSequence, ResumableFrom, ResumableSequence};
pub use state_transfer::TransferError;
pub use usage::VersionStatistics;
