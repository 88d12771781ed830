//! The states of sequences: their form, their memory between two steps, and how a batch reads and writes them.
//!
//! A [`Store`] belongs to one instance thread. It knows slots and no sequences: the core assigns slots to sequences.
//!
//! # Layout
//!
//! - `spec`: what a state looks like.
//! - `bind_plan`: the cheapest way to give a batch its states, as a pure function.
//! - `arena`: states of a fixed size, in chunks of slots · `chunk_cache`: freed chunks, kept for a while.
//! - `host_variable`: states whose size changes, each in memory of its own, on the host · `device_variable`: the same on an accelerator.
//! - `store`: all states of an instance: initialise, free, what is known of a slot; `run`: bind and hand out; `commit`: check and take.
//! - `growth`: how large states of variable size are, now and after a run.
//! - `snapshot`: a sequence's states as a `.safetensors` file · `state_copy`: copies of them, taken with a commit ·
//!   `values`: their values, read from a slot and written to one.
//! - [`answer`]: the answer of the last step, in that file.
//! - [`budget`]: bytes of state held against the server's limit.
//! - [`tier`]: where states are kept outside memory, so that sequences outlive the process.

mod answer;
mod arena;
mod bind_plan;
pub mod budget;
mod chunk_cache;
mod commit;
mod device_variable;
mod error;
mod growth;
mod host_variable;
mod left;
mod run;
mod snapshot;
mod spec;
mod state_copy;
mod store;
#[cfg(test)]
mod tests;
pub mod tier;
mod values;

pub use answer::{answer_of, with_answer};
pub use bind_plan::{BindPlan, SlotView, choose};
pub use chunk_cache::ChunkCache;
pub use error::StateError;
pub use run::{Bound, Fresh, StateOut};
pub use snapshot::{SnapshotError, check as check_snapshot};
pub use spec::{InitialValue, StateSpec};
pub use state_copy::StateCopy;
pub use store::Store;
pub use values::{StateValue, StateValues};
