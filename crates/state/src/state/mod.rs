//! The states of sequences: their types, their memory between two steps, and how a batch reads and writes them.
//!
//! A [`Store`] belongs to one instance thread. It knows slots, but no sequences: the core assigns slots to sequences.
//!
//! # Layout
//!
//! - `spec`: the type, the shape and the first value of a state.
//! - `store`: all states of an instance: begin, free, facts of a slot, single values · `run`: a batch, from its binding to the commit.
//! - `stored_state`: one state of all slots, in one of three kinds of memory: `fixed`, of a fixed size, its rows in the arena ·
//!   `host_variable`: its size changes, each value in memory of its own, on the host · `device_variable`: the same on an accelerator.
//! - `slots`: which slots hold states, and on which side · `bind_plan`: the cheapest way to give a batch its states, as a pure function ·
//!   `bound`: how a batch was bound · `left`: the new states of a run, for the commit.
//! - `finite`: looks for NaN and infinity in the new states of a run.
//! - `arena`: the rows of fixed states, in chunks of slots · `chunk_plan`: the sizes of chunks, and when there are more or fewer ·
//!   `chunk_cache`: freed chunks, kept for a while.
//! - `snapshot`: a sequence's states as a `.safetensors` file · `state_copy`: copies of them, taken with a commit · `values`: their values.
//! - `answer`: the answer of the last step, in that file · `capture_file`: the inputs and outputs of the steps that followed it.
//! - [`budget`]: bytes of state held against the server's limit.
//! - [`tier`]: where states are kept outside memory, so that sequences outlive the process.

mod answer;
mod arena;
mod bind_plan;
mod bound;
pub mod budget;
mod capture_file;
mod chunk_cache;
mod chunk_plan;
#[cfg(test)]
mod chunk_tests;
mod device_variable;
mod error;
mod finite;
mod fixed;
mod host_variable;
mod left;
#[cfg(test)]
mod padded_tests;
mod run;
mod slots;
mod snapshot;
mod spec;
mod state_copy;
mod store;
mod stored_state;
#[cfg(test)]
mod tests;
pub mod tier;
mod values;

pub use answer::{answer_of, has_note, scratch_of, with_answer, with_scratch};
pub use bind_plan::{BindPlan, SlotView, choose};
pub use bound::{Bound, Fresh, StateOut};
pub use capture_file::{Capture, CapturedStep, with_steps};
pub use chunk_cache::ChunkCache;
pub use chunk_plan::{ChunkPlan, ChunkSizes};
pub use error::StateError;
pub use finite::{NotFinite, not_finite};
pub use snapshot::{SnapshotError, check as check_snapshot, states_alone};
pub use spec::{InitialValue, StateSpec, sides};
pub use state_copy::StateCopy;
pub use store::Store;
pub use values::{StateValue, StateValues};
