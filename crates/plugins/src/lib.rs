//! Plug-ins of users, each kind with its world, its guests and its registry. `sequor-wasm` runs the components; models use what is here.
//!
//! # Layout
//!
//! - [`scheduling`]: plug-ins that form batches.
//! - [`processing`]: plug-ins that change a model's inputs and outputs.
//! - [`initializing`]: plug-ins that make the first states of sequences, and kept states.

#![cfg_attr(feature = "shuttle", allow(dead_code, reason = "what is above uses it"))]

pub mod initializing;
pub mod processing;
pub mod scheduling;

use sequor_config::{config, error};
use sequor_executor::{executor, sync};
use sequor_state::{state, tensor};
use sequor_telemetry::telemetry;
