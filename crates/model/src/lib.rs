//! Models: the path of a request from a surface to the graph and back. Knows no protocol.
//!
//! # Layout
//!
//! - `ensemble`: the steps of an ensemble, and the progress of a request through them.
//! - [`model`]: the repository, loads and instances: the path of a request.

#![cfg_attr(feature = "shuttle", allow(dead_code, reason = "what is above uses it"))]

mod ensemble;
pub mod model;

use sequor_backend::{backend, batch};
use sequor_config::{config, error};
use sequor_executor::{executor, sync};
use sequor_plugins::{initializing, processing, scheduling};
use sequor_state::{device, state, tensor};
use sequor_telemetry::{recording, spans, telemetry};
