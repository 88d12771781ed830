//! Where the states of sequences are kept outside memory, so that they outlive their slots and the process.
//!
//! A tier knows bytes and heads. It does not read states: the parent module makes and checks the file of a state.
//!
//! - `contract`: the trait of every tier. `record`: the facts about a stored state. `error`: why a tier does not keep or find one.
//! - `succession`: which versions of a model continue from states of others.
//! - `disk`: a store on disk. `folder`: its directory and file, readable by the server's user only. `file_user`: which process uses a file.
//! - `shared`: a store that several servers share.
//! - `writer`: combines the changes of all models at one time into one commit. `smaller_commits`: what follows a
//!   failed one. `owed`: changes of failed commits that are tried again later. `trouble`: whether the store fails to write now.

mod contract;
mod disk;
mod error;
mod file_user;
mod folder;
#[cfg(test)]
mod folder_tests;
mod owed;
mod record;
mod shared;
mod smaller_commits;
mod succession;
#[cfg(test)]
mod tests;
mod trouble;
mod writer;
#[cfg(test)]
mod writer_tests;

pub use contract::{FoundState, Released, RunningTime, Tier, TierChange, TierUsage};
pub use disk::DiskTier;
pub use error::TierError;
pub use folder::{OpenedStore, open};
pub use record::{EndedState, IdleTime, StateHead, TierKey};
#[cfg(any(test, feature = "testing"))]
pub use shared::OwnRedis;
pub use shared::{
    ClaimFailure, ClaimOutcome, ClaimTask, HandoverState, LeaseClock, SharedHost, SharedOptions, SharedSequence,
    SharedStore, SharedTier, SharedUsage, UnownedSequence,
};
pub use succession::{Successions, VersionDigest};
pub use trouble::StoreTrouble;
pub use writer::{AfterTake, ClosedTask, FailedChanges, FoundHead, GroupWriter, TakenState, find, task_panicked};
