//! How Sequor reads and writes its own files. Knows no model, no server and no plug-in.
//!
//! # Layout
//!
//! - [`fault`], [`place`]: what is wrong in a file, and where.
//! - [`toml_file`]: TOML with every error at its line.
//! - [`units`]: durations and sizes as people write them.
//! - [`atomic_file`]: files written whole or not at all.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")
)]

pub mod atomic_file;
pub mod fault;
pub mod place;
pub mod toml_file;
pub mod units;

pub use fault::Fault;
pub use place::At;
