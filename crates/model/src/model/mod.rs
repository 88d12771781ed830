//! Models: the repository of served models, and the path of a request through it.
//!
//! # Layout
//!
//! Each module may name the modules above it in this list, and none below (`tests/imports.allow`). The head of its `mod.rs` lists its
//! parts.
//!
//! - `runtime`: locks, threads, the clock, the timer.
//! - [`request`]: a request and its answer, and its checks.
//! - `load`: one loaded copy of a model version.
//! - `execute`: runs rows through a graph.
//! - `sequences`: the core and the requests of one model name, under one lock.
//! - `instance`: the threads that pull steps and run batches.
//! - `catalog`: the models by name, and the views that clients and operators get.
//! - `decide`: which plug-in decides for which load.
//! - [`repository`]: loads models, and is the interface of all these modules.

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
pub use load::{BatchToSeal, Metadata, Sealed, SequenceStore, StateTier, StateToSeal, TensorMetadata, UnstoredState};
pub use repository::{Repository, RepositoryControl, RepositoryOptions, RepositorySource};
pub use request::{AnswerLimit, InferAnswer, InferRequest, Parameter, SequenceStep};
pub use runtime::Clock;
pub use sequences::{
    AbsentSequence, CaptureLimits, ChosenBy, EndedSequence, LiveSequence, PastRefusal, PastStep, Pending,
    RequestOrigin, ResumableFrom, ResumableSequence, SequenceHistory, SequenceOwner, TransferError, VersionStatistics,
};

pub use crate::tensor::rows::BytesElements;
pub use crate::tensor::{NamedTensor, Tensor};
