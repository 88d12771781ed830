//! Keeps states on disk.
//!
//! - `disk_tier`: the store as a [`super::contract::Tier`].
//! - `commit_plan`: what the store keeps in memory, and the plan for a batch of changes.
//! - `found_facts`: the facts that a file has when it is opened. `store_error`: what the errors of the store mean.
//! - `tables`: the tables in the file. `pieces`: the pieces of a state there.

mod commit_plan;
mod disk_tier;
mod found_facts;
mod pieces;
mod store_error;
mod tables;

pub use disk_tier::DiskTier;

pub(in crate::state::tier) use disk_tier::{OpenStoreFile, StoreFile};
pub(in crate::state::tier) use store_error::tier_error;
