//! The generated messages and services of `proto/`, with their descriptors. Nothing else: no function decides anything here.
//!
//! `tests/generated.rs` generates the code and compares it with the checked-in files.

#[rustfmt::skip]
#[allow(clippy::all, unreachable_pub, missing_debug_implementations, rustdoc::all)]
mod messages;
#[rustfmt::skip]
#[allow(clippy::all, unreachable_pub, missing_debug_implementations, rustdoc::all)]
pub mod service;
#[rustfmt::skip]
#[allow(clippy::all, unreachable_pub, missing_debug_implementations, rustdoc::all)]
pub mod tensorflow;
#[rustfmt::skip]
#[allow(clippy::all, unreachable_pub, missing_debug_implementations, rustdoc::all)]
pub mod tensorflow_service;

pub use messages::*;
pub use prost_types::Any;

/// The descriptors of all files, for gRPC reflection and for the text and JSON forms of [`ModelConfig`].
pub const DESCRIPTORS: &[u8] = include_bytes!("../../../proto/descriptors.bin");

/// The descriptors of TensorFlow Serving's protocol, for gRPC reflection.
pub const TENSORFLOW_DESCRIPTORS: &[u8] = include_bytes!("../../../proto/tensorflow/descriptors.bin");
