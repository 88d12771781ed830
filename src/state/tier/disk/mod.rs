//! Keeps states on disk.
//!
//! - `disk_tier`: the store as a [`super::contract::Tier`].
//! - `commit_plan`: what the store keeps in memory, and the plan for a batch of changes.
//! - `tables`: the tables in the file. `pieces`: the pieces of a state there.

mod commit_plan;
mod disk_tier;
mod pieces;
mod tables;

pub use disk_tier::DiskTier;

pub(in crate::state::tier) use disk_tier::OpenDatabase;
