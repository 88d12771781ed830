//! The states of sequences: what they look like, where they lie between two steps, and how a batch gets at them. A [`Store`] belongs to one
//! instance thread and knows slots, not sequences: who owns a slot is the core's affair.
//!
//! # Layout
//!
//! - [`spec`]: what a state looks like.
//! - [`way`]: the cheapest way to give a batch its states, as a pure function.
//! - [`arena`]: states of a fixed size, in chunks of slots · [`chunk_cache`]: freed chunks, kept for a while.
//! - [`loose`]: states whose size changes, each in memory of its own, on the host · [`growing`]: the same on an accelerator.
//! - [`store`]: all states of an instance: initialise, free, what is known of a slot; [`run`]: bind and hand out; `commit`: check and take.
//! - [`snapshot`]: a sequence's states as a `.safetensors` file.
//! - [`budget`]: bytes of state held against the server's limit.

mod arena;
pub mod budget;
mod chunk_cache;
mod commit;
mod error;
mod growing;
mod growth;
mod loose;
mod run;
mod snapshot;
mod spec;
mod store;
#[cfg(test)]
mod tests;
mod way;

pub use chunk_cache::ChunkCache;
pub use error::StateError;
pub use run::{Bound, Fresh, StateOut};
pub use snapshot::{SnapshotError, check as check_snapshot};
pub use spec::{Initial, StateSpec};
pub use store::Store;
pub use way::{SlotView, Way, choose};
