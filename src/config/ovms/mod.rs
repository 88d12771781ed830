//! OpenVINO Model Server's way to name models: `config.json` and the command line. What they say becomes a model repository.
//!
//! # Layout
//!
//! - [`model`]: one model, and the rules for its options.
//! - [`mod@file`]: the file `config.json`.
//! - [`command`]: the flags of `ovms`.
//! - [`layout`]: a model as a directory of a repository · [`refresh`]: the repository as its models change.

pub mod command;
pub mod file;
pub mod layout;
pub mod model;
pub mod refresh;

pub use command::OvmsCommand;
pub use file::{OvmsFile, OvmsNotice, parse as parse_ovms};
pub use model::{DEFAULT_SCAN_MINUTES, OvmsModel};
