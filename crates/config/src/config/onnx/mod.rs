//! Changes to ONNX files that need no runtime.
//!
//! # Layout
//!
//! - `wire`: a protobuf message as a list of fields; unknown fields stay unchanged.
//! - `fields`: the field numbers of ONNX's messages · `node`: a node of a graph.
//! - [`inputs`]: the shapes of a graph's inputs.
//! - [`low_latency`]: makes the states of recurrent nodes inputs and outputs.

mod fields;
pub mod inputs;
pub mod low_latency;
mod node;
#[cfg(test)]
mod tests;
mod wire;

pub use inputs::input_dims;
pub use low_latency::{LowLatencyError, NamedState, Transformed, transform};
