//! Configuration: the server's settings (file, environment, flags) and the models' (config.pbtxt, sequor.toml, completion, validation).
//! It turns texts into values. It serves nothing, loads no graph and reads no clock.
//!
//! # Layout
//!
//! - [`fault`], [`place`]: faults in files and their places · [`toml_file`]: TOML · [`units`]: durations and sizes as text ·
//!   [`atomic_file`]: files written as a whole or not at all. These are modules of the package `sequor-files`.
//! - [`trust`]: checks that no other user can change a file.
//! - [`model`]: one model's configuration.
//! - [`ovms`]: models from the files and flags of OpenVINO Model Server.
//! - [`onnx`]: changes to ONNX files.
//! - [`server`]: the server's settings.

pub mod fault;
pub mod model;
pub mod onnx;
pub mod ovms;
pub mod server;
pub mod trust;

pub use fault::Fault;
pub use sequor_files::{atomic_file, place, toml_file, units};
