//! Models as OpenVINO Model Server names them, in `config.json` and on the command line. They are written as a model repository.
//!
//! # Layout
//!
//! - [`model`]: one model, and the rules for its options.
//! - [`mod@file`]: parses `config.json` · `json_places`: the places of its values.
//! - [`command`]: the flags of `ovms`.
//! - `plan`: the versions and files of a model's directory · `entries`: links and copies · [`layout`]: writes the directory.
//! - [`refresh`]: updates the repository when its models change.

pub mod command;
mod entries;
pub mod file;
mod json_places;
pub mod layout;
pub mod model;
mod plan;
pub mod refresh;

pub use command::OvmsCommand;
pub use file::{OvmsFile, OvmsNotice, parse as parse_ovms};
pub use model::{DEFAULT_SCAN_MINUTES, OvmsModel};
