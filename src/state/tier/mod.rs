//! Where the states of sequences are kept outside memory, so that they outlive their slots and the process.
//!
//! A tier knows bytes and heads. It reads no state: the parent module makes and checks the file of a state.
//!
//! - `contract`: what every tier does, as a trait. `record`: what a tier knows of a stored state. `error`: why it does not keep or find one.
//! - `succession`: which versions of a model go on from states of others.
//! - `disk`: a store on disk. `folder`: its directory and file, readable by the server's user only.
//! - `writer`: gathers what all models write at one time into one commit. `owed`: what failed commits leave to do.

mod contract;
mod disk;
mod error;
mod folder;
mod owed;
mod record;
mod succession;
#[cfg(test)]
mod tests;
mod writer;
#[cfg(test)]
mod writer_tests;

pub use contract::{FoundState, RunningTime, Tier, TierChange, TierUsage};
pub use disk::DiskTier;
pub use error::TierError;
pub use folder::{OpenedStore, open};
pub use record::{EndedState, IdleTime, StateHead, TierKey};
pub use succession::{Successions, VersionDigest};
pub use writer::{AfterTake, FailedChanges, GroupWriter, TakenState, find};
