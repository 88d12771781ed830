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
//! - `catalog`: what is remembered of a model's files and scheduler.
//! - [`repository`]: which models there are, and how they come and go.
//! - `decide`: which plug-in decides for which load.

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
mod interleavings;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tier_tests;

pub use load::{BatchToSeal, Metadata, Sealed, StateTier, StateToSeal, TensorMetadata};
pub use repository::{
    Availability, Control, Counted, EndedSequence, IndexRow, LiveSequence, ModelStatus, Options, Repository, Served,
    VersionOverview,
};
pub use request::{InferAnswer, InferRequest, Parameter, SequenceStep};
pub use runtime::Clock;
pub use sequences::{InlineScope, Pending, SequenceOwner, TransferError, VersionStatistics, wake};

pub use crate::tensor::rows::Texts;
pub use crate::tensor::{Named, Tensor};
