//! Reading and writing of Sequor's own files. Independent of models, server and plug-ins.
//!
//! # Layout
//!
//! - [`fault`], [`place`]: a fault in a file, and its place.
//! - [`toml_file`]: TOML, with the line of every error.
//! - [`units`]: durations and sizes as text.
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
