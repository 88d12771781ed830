//! Tensors, the memory that they are in, and the states of sequences between two steps. Runs no graph and knows no request.
//!
//! # Layout
//!
//! - [`tensor`]: tensors in host memory, and conversions between rows and tensors.
//! - [`device`]: memory of the host and of accelerators, and moves within it.
//! - [`state`]: the states of sequences between two steps.

pub mod device;
pub mod state;
pub mod tensor;
