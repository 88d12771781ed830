//! Models: the repository of what is served, and the way of a request through it.
//!
//! # Layout
//!
//! - [`request`]: a request and its answer, in no wire's terms.
//! - [`repository`]: which models there are · `loading`: how they get there · `lifecycle`: who says so ([`control`]) ·
//!   `fingerprint`: whether their files have changed · `index`: what is told of them.
//! - `loaded`: a loaded incarnation of a version · `intake`: a request held against it · `features`: what schedulers see of it.
//! - `driver`: a core and its requests under one lock; `table`: what that lock guards · `job`: a request on its way · `pending`: how its surface holds it.
//! - `runner`: the threads of an instance, `placement`: where they run, `placing`: how they come there · `instance`: what they have in common · `serial`: one batch after the other ·
//!   `pipelined`, `in_flight`: the next batch is asked for while one runs, on accelerators · `handle`: how others reach an instance, `mailbox`: what
//!   they ask of it · [`InlineScope`]: a socket's thread does a short step itself · [`wake`]: the answers of a batch leave together.
//! - `batch_run`: a batch between its taking and its giving back · `execute`: a run in two halves, `ports`: its memory, `work`: its rows, `slots`: their
//!   states, `run_error`: why it gave nothing.
//! - [`overview`]: all of that of every version, for operators.
//! - `usage`: how full a model is, and what was counted of it.
//! - [`sequences`]: who lives on a model, and who did.
//! - `state_transfer`: a sequence's state, out as a file and in again.
//! - `clock`, `timer`: real time · `sync`: locks and threads.
//! - `plugins`: which plug-in decides for which load, `scheduler_choice`: who says so; what operators do with them · `schedule_file`: that, written into a model's file.
//! - `record`: what a recording is told of loads and requests.

mod batch_run;
mod clock;
pub mod control;
mod driver;
mod execute;
mod features;
mod fingerprint;
mod growth;
mod handle;
mod in_flight;
mod index;
mod inline;
mod instance;
mod intake;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings;
mod job;
mod job_place;
mod lifecycle;
mod load_key;
mod loaded;
mod loading;
mod mailbox;
pub mod overview;
mod pending;
mod pipelined;
mod placement;
mod placing;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod plugin_admission_tests;
mod plugin_driver;
mod plugin_files;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod plugin_files_tests;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod plugin_inline_tests;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod plugin_swap_tests;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod plugin_tests;
mod plugins;
mod ports;
mod record;
pub mod repository;
pub mod request;
mod run_error;
mod runner;
mod schedule_file;
mod scheduler_choice;
pub mod sequences;
mod serial;
mod slots;
mod state_transfer;
mod sync;
mod table;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
mod timer;
mod upkeep;
mod usage;
mod wakeups;
mod work;

use sequor_core::{DataType, Dims};

pub use clock::Clock;
pub use control::Control;
pub use index::IndexRow;
pub use inline::InlineScope;
pub use overview::{Counted, VersionOverview};
pub use pending::Pending;
pub use repository::{Availability, ModelStatus, Options, Repository, Served, VersionStatistics};
pub use request::{InferAnswer, InferRequest, Parameter, SequenceStep};
pub use sequences::{EndedSequence, LiveSequence};
pub use state_transfer::TransferError;
pub use wakeups::wake;

pub use crate::tensor::rows::Texts;
pub use crate::tensor::{Named, Tensor};

/// What clients are told of a model. Controls, states and batch inputs are not listed; shapes have the batch dimension in front.
#[derive(Debug, Clone)]
pub struct Metadata {
    pub name: String,
    pub versions: Vec<u64>,
    pub platform: String,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
}

#[derive(Debug, Clone)]
pub struct TensorMetadata {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
}
