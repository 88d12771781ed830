//! Models as OpenVINO Model Server names them, in `config.json` and on the command line. They are written as a model repository.
//!
//! # Layout
//!
//! - [`model`]: one model, and the rules for its options.
//! - [`mod@file`]: parses `config.json`.
//! - [`command`]: the flags of `ovms`.
//! - [`layout`]: a model as a directory of a repository · [`refresh`]: updates the repository when its models change.

pub mod command;
pub mod file;
pub mod layout;
pub mod model;
pub mod refresh;

pub use command::OvmsCommand;
pub use file::{OvmsFile, OvmsNotice, parse as parse_ovms};
pub use model::{DEFAULT_SCAN_MINUTES, OvmsModel};
