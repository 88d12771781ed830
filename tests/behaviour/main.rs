//! Tests the promises of docs/dev/conformance.md about implicit state and the sequence batcher. Each test runs models with the real runtime
//! in this process. Surfaces are tested elsewhere.

#![allow(unreachable_pub, reason = "a test binary has no public face")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod accelerator;
mod accumulators;
mod ahead;
mod alike;
mod backlog;
mod budget;
mod busy;
mod client_state;
mod controls;
mod direct;
mod echo_world;
mod failures;
mod finite;
mod idle;
mod initial;
mod loading;
mod low_latency;
mod memory;
mod oldest;
mod optional;
mod ovms_models;
mod padded_states;
mod padding;
mod queue;
mod ragged;
mod record;
mod reshape;
mod slots;
mod state;
mod stateful;
mod support;
mod transducer;
mod warm_up;

#[global_allocator]
static ALLOCATOR: sequor::device::ProgramAllocator = sequor::device::ProgramAllocator;
