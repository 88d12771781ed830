//! Runs a graph on a batch. Knows no sequence and no request.
//!
//! # Layout
//!
//! - [`batch`]: a batch's inputs and outputs.
//! - [`backend`]: runs graphs: ONNX Runtime, and a stand-in for tests.

pub mod backend;
pub mod batch;

use sequor_config::config;
use sequor_state::{device, tensor};
