//! What clients and operators call: the protocols and the sockets that they arrive on.
//!
//! # Layout
//!
//! - [`api`]: the protocol-independent entry, and the surfaces: KServe v2 over gRPC and HTTP, TensorFlow Serving, and the admin listener.
//! - [`server`]: listeners and drain.

// The tests of interleavings are in the packages below.
#![cfg(not(feature = "shuttle"))]

pub mod api;
pub mod server;

use sequor_config::{config, error};
use sequor_executor::executor;
use sequor_model::model;
use sequor_plugins::scheduling;
use sequor_telemetry::{spans, telemetry, text};
