//! The generated messages and service of `proto/`, with their descriptors. Nothing else: no function decides anything here.
//!
//! `tests/generated.rs` generates the code and compares it with the checked-in files.

#[rustfmt::skip]
#[allow(clippy::all, unreachable_pub, missing_debug_implementations, rustdoc::all)]
mod messages;
#[rustfmt::skip]
#[allow(clippy::all, unreachable_pub, missing_debug_implementations, rustdoc::all)]
pub mod service;

pub use messages::*;

/// The descriptors of all files, for gRPC reflection and for the text and JSON forms of [`ModelConfig`].
pub const DESCRIPTORS: &[u8] = include_bytes!("../../../proto/descriptors.bin");
