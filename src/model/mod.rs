//! Models: the repository of what is served, and the way of a request through it.
//!
//! # Layout
//!
//! - [`request`]: a request and its answer, in no wire's terms.
//! - [`repository`]: which models there are · `loading`: how they get there · [`control`]: who says so, and what is told of it ·
//!   `fingerprint`: whether their files have changed.
//! - `loaded`: a loaded incarnation of a version · `intake`: a request held against it · `features`: what schedulers see of it.
//! - `driver`: a core and its requests under one lock; `table`: what that lock guards · `job`: a request on its way · `pending`: how its surface holds it.
//! - `instance`: the threads that pull, [`Turn`]: a socket's thread in place of one of them · `site`: where each runs, `crew`: with which threads ·
//!   `ahead`, `flights`: the next batch is asked for while one runs, on accelerators · [`wake`]: the answers of a batch leave together.
//! - `taken`: a batch between its taking and its giving back · `execute`: a run in two halves, `ports`: its memory, `work`: its rows, `slots`: their states,
//!   `run_error`: why it gave nothing.
//! - [`overview`]: all of that of every version, for operators.
//! - `usage`: how full a model is, and what was counted of it.
//! - [`sequences`]: who lives on a model, and who did.
//! - `keep`: a sequence's state, out as a file and in again.
//! - `clock`, `timer`: real time · `sync`: locks and threads.
//! - `plugins`: which plug-in decides for which load; what operators do with them · `schedule_file`: that, written into a model's file.
//! - `record`: what a recording is told of loads and requests.

mod ahead;
mod burst;
mod clock;
pub mod control;
mod crew;
mod driven;
mod driver;
mod execute;
mod features;
mod fingerprint;
mod flights;
mod instance;
mod intake;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings;
mod job;
mod keep;
mod loaded;
mod loading;
pub mod overview;
mod pending;
mod plugin_files;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod plugin_files_tests;
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
mod schedule_file;
pub mod sequences;
mod site;
mod slots;
mod sync;
mod table;
mod taken;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
mod timer;
mod turn;
mod usage;
mod work;

use sequor_core::{DataType, Dims};

pub use burst::wake;
pub use control::{Control, IndexRow};
pub use keep::KeepError;
pub use overview::{Counted, VersionOverview};
pub use pending::Pending;
pub use repository::{Availability, ModelStatus, Options, Repository, Served, VersionStatistics};
pub use request::{InferAnswer, InferRequest, Parameter, SequenceStep};
pub use sequences::{EndedSequence, LiveSequence};
pub use turn::Turn;

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
