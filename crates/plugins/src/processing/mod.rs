//! Plug-ins that prepare a model's inputs and finish its outputs. This module works with tensors, guests and threads. It does not know
//! models, the core's lock or clients: the module of models passes requests in and takes the results.
//!
//! # Layout
//!
//! - [`chain`]: the processors of one load, in order · [`link`]: one processor of a chain; `link_answer` checks its answers against its
//!   ports, `link_place` is the place of its versions · `version`: one version of a processor, with `guests`, its guests and the requests
//!   that wait for one · `fit`: whether tensors and signatures fit · [`health`]: strikes and parking · [`source`]: a processor as a model
//!   names it · `calls`: one call into a guest.
//! - [`registry`]: the plug-ins of one world that models name, and their versions · [`operators`]: the registry's operations for operators ·
//!   [`place`]: the interface of a place where a version serves · [`status`]: the status for operators · `place_models`: the registry's
//!   access to models.
//! - [`pool`]: the threads that all guests of processors run on; `suspended` holds their tasks that wait.
//! - [`ports`]: the inputs and outputs of a processor or a model · `join`: joins the outputs of several runs · [`dtypes`]: the contract's
//!   numbers for element types.
//! - [`world`]: processors as a world of `wasm` · `contract`: its interface · [`manifest`]: its fields of `plugin.toml` · [`tensors`]: the
//!   tensors of a guest, from a `buffer` · [`files`]: the files that a model names for a processor.
//! - [`outgoing`]: calls of guests to other models · `models`: the contract's interface for them · `wasi_nn`: wasi-nn over the same calls,
//!   with the guest's `graphs` and the interfaces in `wasi_nn_contract`.
//! - [`refusal`]: why a processor refused a request.

mod buffer;
#[cfg(any(test, feature = "testing"))]
pub mod calling_wat;
pub(crate) mod calls;
pub mod chain;
pub(crate) mod contract;
pub mod dtypes;
pub mod files;
pub(crate) mod fit;
mod graphs;
mod guests;
pub mod health;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings;
mod join;
pub mod link;
pub(crate) mod link_answer;
mod link_place;
pub mod manifest;
mod models;
pub mod operators;
pub mod outgoing;
pub mod place;
mod place_models;
pub mod pool;
pub mod ports;
pub mod refusal;
pub mod registry;
pub mod source;
pub mod status;
mod suspended;
pub mod tensors;
#[cfg(test)]
mod tests;
pub(crate) mod version;
mod wasi_nn;
mod wasi_nn_contract;
#[cfg(any(test, feature = "testing"))]
pub mod wat_fixture;
#[cfg(any(test, feature = "testing"))]
pub mod wat_guest;
pub mod world;

pub use calls::CallFacts;
pub use chain::{Chain, PendingAnswer, Plan, PreparedRequest, SequenceScratch};
pub use fit::KnownMemory;
pub use link_answer::RUN_BYTES;
pub use operators::PluginOperations;
pub use place::PluginPlace;
pub use place_models::PlaceModels;
pub use pool::ProcessorPool;
pub use ports::{PortTensors, TensorPort, TensorSignature};
pub use refusal::{ProcessorRefusal, RefusedBy};
pub use registry::{PlaceRegistry, PlaceRules, ProcessorRegistry};
pub use source::{OnFailure, ProcessorOptions, ProcessorSource};
pub use world::{ProcessorComponent, ProcessorGuest, ProcessorWorld};
