//! Sequor (Latin: I follow), an inference server for models that remember. The library is the server's parts; `main.rs` only calls [`cli`].
//!
//! # Layout
//!
//! The modules, each with what it may depend on. `tests/imports.allow` holds the rules and `tests/architecture.rs` checks them.
//!
//! - [`error`]: typed errors of requests and models, independent of protocols.
//! - [`config`]: the server's settings; a model's configuration from `config.pbtxt`, `sequor.toml` and its graph.
//! - [`telemetry`]: metrics and logs.
//! - [`spans`]: spans of requests, and their export to a collector.
//! - [`recording`]: records requests for the simulator.
//! - [`text`]: formats tables and numbers for terminals.
//! - [`tensor`]: tensors in host memory, and conversions between rows and tensors.
//! - [`device`]: memory of the host and of accelerators, and moves within it.
//! - [`state`]: the states of sequences between two steps.
//! - [`batch`]: a batch's inputs and outputs.
//! - [`backend`]: runs graphs: ONNX Runtime, and a stand-in for tests.
//! - [`executor`]: the tasks of one connection, and the short model steps on its thread.
//! - `ensemble`: the steps of an ensemble, and the progress of a request through them.
//! - [`scheduling`]: plug-ins that form batches.
//! - [`processing`]: plug-ins that change a model's inputs and outputs.
//! - [`initializing`]: plug-ins that make the first states of sequences, and kept states.
//! - [`model`]: the repository, loads and instances: the path of a request.
//! - [`api`]: the protocol-independent entry, and the surfaces: KServe v2 over gRPC and HTTP, and the admin listener.
//! - [`server`]: listeners and drain.
//! - [`simulate`]: runs the core in virtual time.
//! - [`mod@bench`]: the load generator behind `sequor bench` and `benches/`.
//! - [`author`]: tools for authors of plug-ins, from sources to a component.
//! - [`cli`]: the commands, one file each.

// The interleaving tests cover requests, models and plug-ins. The modules above those are not compiled for them.
#![cfg_attr(feature = "shuttle", allow(dead_code, reason = "what stands above uses it"))]

#[cfg(not(feature = "shuttle"))]
pub mod api;
#[cfg(not(feature = "shuttle"))]
pub mod author;
pub mod backend;
pub mod batch;
#[cfg(not(feature = "shuttle"))]
pub mod bench;
#[cfg(not(feature = "shuttle"))]
pub mod cli;
pub mod config;
pub mod device;
mod ensemble;
pub mod error;
pub mod executor;
pub mod initializing;
pub mod model;
pub mod processing;
pub mod recording;
pub mod scheduling;
#[cfg(not(feature = "shuttle"))]
pub mod server;
#[cfg(not(feature = "shuttle"))]
pub mod simulate;
pub mod spans;
pub mod state;
mod sync;
pub mod telemetry;
pub mod tensor;
pub mod text;
