//! What files, environment and flags say, as values; and the typed failures that all packages above share. Serves nothing.
//!
//! # Layout
//!
//! - [`error`]: typed errors of requests and models, independent of protocols.
//! - [`config`]: the server's settings; a model's configuration from `config.pbtxt`, `sequor.toml` and its graph.

pub mod config;
pub mod error;
