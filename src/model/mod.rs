//! Models: the repository of what is served, and the way of a request through it.
//!
//! # Layout
//!
//! Each room may name the rooms above it in this list, and none below (`tests/imports.allow`). The head of its `mod.rs` says what lives there.
//!
//! - `runtime`: locks, threads, the clock, the timer.
//! - [`request`]: a request and its answer, and its checks.
//! - `load`: a loaded incarnation of a version.
//! - `execute`: runs rows through a graph.
//! - `sequences`: the core and the requests of one model name, under one lock.
//! - `instance`: the threads that pull steps and run batches.
//! - `catalog`: the models by name, and what is shown of them.
//! - `decide`: which plug-in decides for which load.
//! - [`repository`]: loads models, and is the face of all this.

mod catalog;
mod decide;
mod execute;
mod instance;
mod load;
pub mod repository;
pub mod request;
mod runtime;
mod sequences;

#[cfg(test)]
#[cfg(feature = "shuttle")]
#[path = "tests/interleavings.rs"]
mod interleavings;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;

pub use catalog::{
    Availability, Counted, IndexRow, ModelHandle, ModelStatus, TemporaryFolder, VersionOverview,
    remove_abandoned_folders,
};
pub use load::{BatchToSeal, Metadata, Sealed, SequenceStore, StateTier, StateToSeal, TensorMetadata};
pub use repository::{Repository, RepositoryControl, RepositoryOptions, RepositorySource};
pub use request::{InferAnswer, InferRequest, Parameter, SequenceStep};
pub use runtime::Clock;
pub use sequences::{
    CaptureLimits, EndedSequence, LiveSequence, Pending, RequestOrigin, ResumableSequence, SequenceOwner,
    TransferError, VersionStatistics,
};

pub use crate::tensor::rows::BytesElements;
pub use crate::tensor::{NamedTensor, Tensor};
