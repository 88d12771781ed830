//! Configuration: the server's settings (file, environment, flags) and the models' (config.pbtxt, sequor.toml, completion, validation).
//! Texts in, settled values out; nothing here serves, loads a graph or reads a clock.
//!
//! # Layout
//!
//! - [`fault`], [`place`]: what is wrong in a file, and where.
//! - [`atomic_file`]: files written whole or not at all.
//! - [`units`]: durations and sizes as people write them.
//! - [`trust`]: whether others can change a file.
//! - [`model`]: one model's configuration.
//! - [`server`]: the server's settings.

pub mod atomic_file;
pub mod fault;
pub mod model;
pub mod place;
pub mod server;
pub(crate) mod toml_file;
pub mod trust;
pub mod units;

pub use fault::Fault;
