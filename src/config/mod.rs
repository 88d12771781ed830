//! Configuration: the server's settings (file, environment, flags) and the models' (config.pbtxt, sequor.toml, completion, validation).
//! Texts in, settled values out; nothing here serves, loads a graph or reads a clock.
//!
//! # Layout
//!
//! - [`fault`], [`place`]: what is wrong in a file, and where · [`toml_file`]: TOML · [`units`]: durations and sizes as people write them ·
//!   [`atomic_file`]: files written whole or not at all. All of the package `sequor-files`.
//! - [`trust`]: whether others can change a file.
//! - [`model`]: one model's configuration.
//! - [`ovms`]: the models that OpenVINO Model Server's files and flags name.
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
