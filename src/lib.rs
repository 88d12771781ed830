//! Sequor (Latin: I follow), an inference server for models that remember. The library is the server's parts; `main.rs` only calls [`cli`].
//!
//! # Layout
//!
//! Rooms, each with what it may know of; `tests/imports.allow` is the rule and `tests/architecture.rs` the judge.
//!
//! - [`error`]: what can go wrong with a request or a model, in no protocol's words.
//! - [`config`]: the server's settings; a model's configuration from config.pbtxt, sequor.toml and its graph.
//! - [`telemetry`]: metrics and logs.
//! - [`recording`]: requests written down for the simulator.
//! - [`text`]: tables for terminals, and numbers in them.
//! - [`tensor`]: tensors on host memory, rows ↔ tensors.
//! - [`device`]: memory, host or accelerator, and moves within it.
//! - [`state`]: the states of sequences between two steps.
//! - [`batch`]: a batch's inputs and outputs.
//! - [`backend`]: what runs a graph: ONNX Runtime, and a stand-in for tests.
//! - [`executor`]: the tasks of one connection, and the short model steps on its thread.
//! - `ensemble`: the steps of an ensemble, and how far a request has come through them.
//! - [`scheduling`]: plug-ins that decide which requests run together.
//! - [`processing`]: plug-ins that prepare a model's inputs and finish its outputs.
//! - [`initializing`]: plug-ins that make the first states of sequences, and states that are kept.
//! - [`model`]: the repository, loads, instances: the way of a request.
//! - [`api`]: the neutral door, and the surfaces: KServe v2 over gRPC and HTTP, operators.
//! - [`server`]: listeners, drain.
//! - [`simulate`]: the core in virtual time.
//! - [`mod@bench`]: the load generator behind `sequor bench` and `benches/`.
//! - [`author`]: what authors of plug-ins need: from sources to a component.
//! - [`cli`]: one file a command.

// Interleavings are of requests, models and plug-ins; what stands above them is not compiled for their tests.
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
pub mod state;
mod sync;
pub mod telemetry;
pub mod tensor;
pub mod text;
